// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A program that fails as its arguments say; throws.py runs it and judges how the job ends.
//   throws one <rank> <place>   one rank throws at a place of a loop of halo exchanges and sums, while the others go on
//   throws all <place>          all ranks throw there
//   throws most <place>         all ranks but 0 throw there
//   throws unknown <rank>       one rank throws something that is no std::exception
//   throws destructor <rank>    one rank throws where the stack holds a grid, a tensor and an exchange under way
//   throws unwound <rank>       an exception unwinds past Environment, and main catches it
//   throws guarded <rank>       an exception leaves the body of Environment::guard
//   throws agreed <rank>        a check fails on one rank, and all throw its message
//   throws none                 nothing fails

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/exchange/halo.hpp"

namespace {

using Slabs = tessera::Distribution<tessera::axes::Depth>;
using Tensor = tessera::Tensor<double, 3, Slabs>;
using Halo = tessera::Halo<double, 3, Slabs, Kokkos::DefaultExecutionSpace>;

struct Failure {
  std::string kind;
  int rank = -1;
  int place = 0;
  int passed = 0;  ///< places so far

  void at_a_place(int me) {
    bool const mine = kind == "all" || (kind == "most" && me != 0) || (kind == "one" && me == rank);
    if (passed++ == place && mine)
      throw tessera::Error("throws: place " + std::to_string(place) + " must not be reached; this is meant");
  }
};

/// Five steps with four places each: 20 places.
void steps(tessera::RankGrid<Slabs> const& ranks, Failure& failure) {
  Tensor const u(ranks, tessera::Extents<3>{.space = {9, 4, 4}}, 1);
  Halo halo(u, 1, tessera::Padding::circular);
  u.fill(1.0);
  for (int step = 0; step < 5; ++step) {
    failure.at_a_place(ranks.rank());
    halo.start(u);
    failure.at_a_place(ranks.rank());
    halo.finish(u);
    failure.at_a_place(ranks.rank());
    ranks.world().all_reduce(1.0);
    failure.at_a_place(ranks.rank());
  }
}

int run(int argc, char** argv, Failure& failure) {
  tessera::Environment const env(argc, argv);
  tessera::RankGrid<Slabs> const ranks(env.world());
  bool const mine = failure.rank == ranks.rank();
  std::string const message = "throws: rank " + std::to_string(failure.rank) + " must not go on; this is meant";
  steps(ranks, failure);
  if (failure.kind == "unknown" && mine) throw 42;
  if (failure.kind == "unwound" && mine) throw tessera::Error(message);
  if (failure.kind == "agreed")
    tessera::agreed(env.world(), [&] {
      if (mine) throw tessera::Error(message);
    });
  if (failure.kind == "guarded")
    return env.guard([&] {
      if (mine) throw tessera::Error(message);
      ranks.world().barrier();
      return 0;
    });
  if (failure.kind == "destructor") {
    tessera::RankGrid<Slabs> const other(env.world());
    other.group(tessera::all_axes);
    Tensor const u(other, tessera::Extents<3>{.space = {9, 4, 4}}, 1);
    Halo halo(u, 1, tessera::Padding::circular);
    halo.start(u);
    if (mine) throw tessera::Error(message);
    halo.finish(u);
  }
  ranks.world().barrier();  // here the others wait
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Failure failure;
  if (argc > 1) failure.kind = argv[1];
  bool const by_place = failure.kind == "all" || failure.kind == "most";
  if (argc > 2) (by_place ? failure.place : failure.rank) = std::atoi(argv[2]);
  if (argc > 3) failure.place = std::atoi(argv[3]);
  if (failure.kind != "unwound" && failure.kind != "destructor") return run(argc, argv, failure);
  try {
    return run(argc, argv, failure);
  } catch (tessera::Error const&) {
    return 0;  // not reached: Environment has ended the job
  }
}
