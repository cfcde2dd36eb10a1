// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>

#include "tessera/comm/ranks.hpp"
#include "tessera/core/error.hpp"
#include "tessera/partition/distribution.hpp"

namespace tessera {

namespace detail {

/// Fixed counts of the policy checked against, and filled into, what the user gave.
template <PartitionPolicy Policy>
Counts checked_counts(Counts counts) {
  for (AxisId axis : rank_order) {
    std::int64_t const fixed = Policy::counts[axis];
    if (fixed == dynamic) continue;
    require(counts[axis] == 1 || counts[axis] == fixed, "RankGrid", "the Distribution ",
            fixed == 1 ? "does not split " : "fixes the count of ", name(axis), fixed == 1 ? "" : " to ",
            fixed == 1 ? "" : std::to_string(fixed), ", but the count given is ", counts[axis],
            fixed == 1 ? "; name the axis in the Distribution" : "; leave it out");
    counts[axis] = fixed;
  }
  return counts;
}

/// All ranks on the policy's single dynamic axis.
template <PartitionPolicy Policy>
Counts all_on_the_dynamic_axis(std::int64_t ranks) {
  static_assert(
      Policy::dynamic_axes <= 1,
      "tessera::redistribute: a Distribution with several dynamic axes needs counts: redistribute<P>({.sample = ...})");
  Counts counts;
  std::int64_t fixed = 1;
  for (AxisId axis : rank_order)
    if (Policy::counts[axis] != dynamic) fixed *= counts[axis] = Policy::counts[axis];
  for (AxisId axis : rank_order)
    if (Policy::counts[axis] == dynamic) counts[axis] = ranks % fixed == 0 ? ranks / fixed : 1;
  return counts;
}

}  // namespace detail

/// Ranks whose decomposition is a type: which axes may be cut is known at compile time, by how much at run time.
template <PartitionPolicy Policy_>
class RankGrid : public Ranks {
 public:
  using Policy = Policy_;

  /// Counts are given by name: `{.sample = 2, .depth = 4}`. Collective over `comm`.
  /// Fails: if the product of the counts is not the number of ranks, or a count contradicts the policy.
  RankGrid(Communicator<Mpi> const& comm, Counts const& counts) : Ranks(comm, detail::checked_counts<Policy>(counts)) {}

  /// Gives all ranks to the policy's single dynamic axis.
  explicit RankGrid(Communicator<Mpi> const& comm)
      : Ranks(comm, detail::all_on_the_dynamic_axis<Policy>(comm.size())) {}

  /// The same ranks under another policy.
  template <PartitionPolicy Other>
  RankGrid(RankGrid<Other> const& ranks, Counts const& counts)
      : Ranks(ranks.regrid(detail::checked_counts<Policy>(counts))) {}

  /// The same ranks under another policy, all of them on its single dynamic axis.
  template <PartitionPolicy Other>
  static RankGrid spread(RankGrid<Other> const& ranks) {
    return RankGrid(ranks, detail::all_on_the_dynamic_axis<Policy>(ranks.size()));
  }
};

}  // namespace tessera
