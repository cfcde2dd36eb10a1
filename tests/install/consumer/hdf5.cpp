// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include <tessera/core/version.hpp>

#include <hdf5.h>
#include <mpi.h>

#include <cstdio>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  unsigned major = 0, minor = 0, release = 0;
  bool const good = H5open() >= 0 && H5get_libversion(&major, &minor, &release) >= 0;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) std::printf("consumer: Tessera %d.%d with HDF5 %u.%u\n", tessera::version.major_number, tessera::version.minor_number, major, minor);
  H5close();
  MPI_Finalize();
  return good ? 0 : 1;
}
