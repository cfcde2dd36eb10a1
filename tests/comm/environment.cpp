// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/comm/environment.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>

using namespace tessera;

namespace {

Communicator<Mpi> world() { return Communicator<Mpi>::borrow(MPI_COMM_WORLD); }

}  // namespace

TEST_CASE("what all ranks agree on does not throw") {
  CHECK_NOTHROW(agree(world(), ""));
  int runs = 0;
  CHECK_NOTHROW(agreed(world(), [&] { ++runs; }));
  CHECK(runs == 1);
}

TEST_CASE("if a check fails on one rank, every rank throws its message") {
  auto const ranks = world();
  for (int culprit = 0; culprit < ranks.size(); ++culprit) {
    std::string const message = "Source: rank " + std::to_string(culprit) + " cannot read its file; check the path";
    CHECK_THROWS_WITH_AS(agree(ranks, ranks.rank() == culprit ? message : ""), message.c_str(), Error);
    CHECK_THROWS_WITH_AS(agreed(ranks,
                                [&] {
                                  if (ranks.rank() == culprit) throw std::runtime_error(message);
                                }),
                         message.c_str(), Error);
  }
}

TEST_CASE("if several ranks fail, the lowest one's message counts") {
  auto const ranks = world();
  std::string const lowest = ranks.size() > 1 ? "rank 1 failed, and says more than others" : "rank 0 failed";
  std::string mine = "rank " + std::to_string(ranks.rank()) + " failed";
  if (ranks.rank() == 0 && ranks.size() > 1) mine.clear();
  if (ranks.rank() == 1) mine = lowest;
  CHECK_THROWS_WITH_AS(agree(ranks, mine), lowest.c_str(), Error);
  ranks.barrier();  // and the ranks are still in step
}

TEST_CASE("a failure without a message is a failure") {
  CHECK_THROWS_WITH_AS(agreed(world(), [] { throw std::runtime_error(""); }), "an error without a message", Error);
}

TEST_CASE("the job's ranks are at hand, and MPI and Kokkos run") {
  CHECK(Kokkos::is_initialized());
  int argc = 0;
  char** argv = nullptr;
  {
    Environment const inner(argc, argv);  // finds both running, and leaves them
    CHECK(inner.world().native() == MPI_COMM_WORLD);
    CHECK(inner.guard([] { return 7; }) == 7);
  }
  int finalized = 1;
  MPI_Finalized(&finalized);
  CHECK(finalized == 0);
  CHECK(Kokkos::is_initialized());
}
