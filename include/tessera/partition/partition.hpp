// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/partition/axis.hpp"
#include "tessera/partition/blocks.hpp"
#include "tessera/partition/box.hpp"
#include "tessera/partition/grid.hpp"
#include "tessera/partition/shape.hpp"

namespace tessera {

/// Who owns what of one tensor: a Grid of ranks and, per axis, the blocks. Owned boxes partition the tensor.
class Partition {
 public:
  Partition() = default;

  /// Balanced blocks.
  Partition(Grid const& grid, Shape const& shape) : grid_(grid) {
    for (AxisId axis : rank_order) blocks_[at(axis)] = Blocks(shape[axis], grid.counts()[axis]);
  }

  /// Blocks as given, in the order (sample, depth, height, width, channel).
  Partition(Grid const& grid, std::array<Blocks, axis_count> blocks) : grid_(grid), blocks_(std::move(blocks)) {
    for (AxisId axis : rank_order)
      require(blocks_[at(axis)].parts() == grid.counts()[axis], "Partition", "the ", name(axis), " axis has ",
              blocks_[at(axis)].parts(), " blocks for ", grid.counts()[axis], " ranks; give one block per rank");
  }

  Grid const& grid() const { return grid_; }
  Blocks const& blocks(AxisId axis) const { return blocks_[at(axis)]; }

  Shape shape() const {
    return {blocks(AxisId::sample).extent(), blocks(AxisId::depth).extent(), blocks(AxisId::height).extent(),
            blocks(AxisId::width).extent(), blocks(AxisId::channel).extent()};
  }

  /// The box that a rank owns.
  Box owned(std::int64_t rank) const {
    Coordinates const where = grid_.coordinates(rank);
    Box box;
    for (AxisId axis : rank_order) box[axis] = blocks(axis)[where[axis]];
    return box;
  }

  /// The same grid and cuts for a tensor of another shape that is computed from this one (see Blocks::scaled_to).
  Partition scaled_to(Shape const& shape) const {
    Partition scaled = *this;
    for (AxisId axis : rank_order) scaled.blocks_[at(axis)] = blocks(axis).scaled_to(shape[axis]);
    return scaled;
  }

  /// The same cuts in space and channels for n samples, in balanced blocks.
  Partition with_samples(std::int64_t n) const {
    Partition other = *this;
    other.blocks_[at(AxisId::sample)] = Blocks(n, grid_.counts().sample);
    return other;
  }

  friend bool operator==(Partition const&, Partition const&) = default;

 private:
  static constexpr std::size_t at(AxisId axis) { return static_cast<std::size_t>(axis); }

  Grid grid_;
  std::array<Blocks, axis_count> blocks_;
};

/// An interval per axis and block: what every rank needs, as formulas give it. Intervals may reach beyond the tensor.
class Region {
 public:
  /// Everything that the ranks own.
  explicit Region(Partition const& partition) : grid_(partition.grid()) {
    for (AxisId axis : rank_order)
      for (std::int64_t i = 0; i < grid_.counts()[axis]; ++i) along(axis).push_back(partition.blocks(axis)[i]);
  }

  Grid const& grid() const { return grid_; }
  std::vector<Interval> const& intervals(AxisId axis) const { return intervals_[static_cast<std::size_t>(axis)]; }

  /// Replaces every interval along one axis by change(interval).
  template <class Change>
  Region& map(AxisId axis, Change change) {
    for (Interval& interval : along(axis)) interval = change(interval);
    return *this;
  }

  /// Replaces the intervals along one axis by others, one per block.
  Region& set(AxisId axis, std::vector<Interval> intervals) {
    require(static_cast<std::int64_t>(intervals.size()) == grid_.counts()[axis], "Region",
            "needs an interval for each ", "of the ", grid_.counts()[axis], " blocks along ", name(axis), ", but ",
            intervals.size(), " were given");
    along(axis) = std::move(intervals);
    return *this;
  }

  Box box(std::int64_t rank) const {
    Coordinates const where = grid_.coordinates(rank);
    Box box;
    for (AxisId axis : rank_order) box[axis] = intervals(axis)[static_cast<std::size_t>(where[axis])];
    return box;
  }

 private:
  std::vector<Interval>& along(AxisId axis) { return intervals_[static_cast<std::size_t>(axis)]; }

  Grid grid_;
  std::array<std::vector<Interval>, axis_count> intervals_;
};

}  // namespace tessera
