// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include <tessera/core/version.hpp>

#include <doctest/doctest.h>
#include <mpi.h>

TEST_CASE("versions compare in their natural order") {
  static_assert(tessera::Version{0, 9, 9} < tessera::Version{1, 0, 0});
  static_assert(tessera::Version{1, 2, 3} == tessera::Version{1, 2, 3});
  CHECK(tessera::version >= tessera::Version{0, 1, 0});
}

TEST_CASE("every rank was built from the same version") {
  int const mine =
      tessera::version.major_number * 1000000 + tessera::version.minor_number * 1000 + tessera::version.patch_number;
  int lowest = 0;
  int highest = 0;
  MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&mine, &highest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  CHECK(lowest == mine);
  CHECK(highest == mine);
}
