// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "tessera/core/error.hpp"
#include "tessera/partition/axis.hpp"
#include "tessera/partition/counts.hpp"

namespace tessera {

/// Where a rank stands: the number of its block along each axis.
struct Coordinates {
  std::array<std::int64_t, axis_count> at{};

  constexpr std::int64_t& operator[](AxisId axis) { return at[static_cast<std::size_t>(axis)]; }
  constexpr std::int64_t operator[](AxisId axis) const { return at[static_cast<std::size_t>(axis)]; }
  friend constexpr bool operator==(Coordinates const&, Coordinates const&) = default;
};

/// Counts and the coordinates of any rank: all that boxes and plans need, without MPI. Sample is the slowest axis and
/// width the fastest.
class Grid {
 public:
  constexpr Grid() = default;
  constexpr explicit Grid(Counts const& counts) : counts_(counts) {
    for (AxisId axis : rank_order)
      require(counts[axis] >= 1, "Grid", "every count must be at least 1, but ", name(axis), " is ", counts[axis]);
  }

  constexpr Counts const& counts() const { return counts_; }
  constexpr std::int64_t size() const { return counts_.product(); }

  constexpr Coordinates coordinates(std::int64_t rank) const {
    Coordinates at;
    for (std::size_t i = rank_order.size(); i-- > 0;) {
      AxisId const axis = rank_order[i];
      at[axis] = rank % counts_[axis];
      rank /= counts_[axis];
    }
    return at;
  }

  constexpr std::int64_t rank(Coordinates const& at) const {
    std::int64_t rank = 0;
    for (AxisId axis : rank_order) rank = rank * counts_[axis] + at[axis];
    return rank;
  }

  friend constexpr bool operator==(Grid const&, Grid const&) = default;

 private:
  Counts counts_;
};

}  // namespace tessera
