// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include <tessera/core/version.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <cstdio>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  bool good = false;
  {
    Kokkos::ScopeGuard guard(argc, argv);
    int sum = 0;
    Kokkos::parallel_reduce("consumer", 10, KOKKOS_LAMBDA(int i, int& part) { part += i; }, sum);
    int all = 0, ranks = 0, rank = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&sum, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    good = all == 45 * ranks;
    if (rank == 0) std::printf("consumer: Tessera %d.%d on %d ranks\n", tessera::version.major_number, tessera::version.minor_number, ranks);
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
