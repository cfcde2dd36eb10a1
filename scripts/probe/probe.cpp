// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include <mpi.h>

#include <Kokkos_Core.hpp>

#include <cstdio>

// Sums 0 .. 999 on every rank, then over the ranks.
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int good = 0;
  {
    Kokkos::ScopeGuard guard(argc, argv);
    long here = 0;
    Kokkos::parallel_reduce("probe", 1000, KOKKOS_LAMBDA(int i, long& sum) { sum += i; }, here);
    long all = 0;
    int ranks = 0, rank = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&here, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    good = all == 499500L * ranks;
    if (rank == 0) std::printf("probe: %d ranks, sum %ld, %s\n", ranks, all, good ? "good" : "wrong");
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
