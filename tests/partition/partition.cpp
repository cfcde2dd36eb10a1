// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/partition/partition.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "support/property.hpp"

namespace {

using tessera::axis_count;
using tessera::AxisId;
using tessera::Blocks;
using tessera::Box;
using tessera::Coordinates;
using tessera::Counts;
using tessera::Error;
using tessera::Grid;
using tessera::Interval;
using tessera::Partition;
using tessera::rank_order;
using tessera::Region;
using tessera::Shape;
using tessera::test::property;

std::int64_t draw(char const* name, std::int64_t least, std::int64_t most) {
  return *rc::gen::inRange<std::int64_t>(least, most + 1).as(name);
}

Counts draw_counts() {
  return {.sample = draw("samples", 1, 3),
          .channel = draw("channels", 1, 3),
          .depth = draw("depths", 1, 3),
          .height = draw("heights", 1, 3),
          .width = draw("widths", 1, 3)};
}

Shape draw_shape(char const* name) {
  return {draw(name, 0, 5), draw(name, 0, 5), draw(name, 0, 5), draw(name, 0, 5), draw(name, 0, 5)};
}

Blocks draw_blocks(std::int64_t parts) {
  if (*rc::gen::arbitrary<bool>().as("balanced")) return Blocks(draw("extent", 0, 5), parts);
  std::vector<std::int64_t> boundaries{0};
  for (std::int64_t i = 0; i < parts; ++i) boundaries.push_back(draw("boundary", 0, 5));
  std::sort(boundaries.begin(), boundaries.end());
  return Blocks::at(boundaries);
}

Partition draw_partition() {
  Counts const counts = draw_counts();
  std::array<Blocks, axis_count> blocks;
  for (AxisId axis : rank_order) blocks[static_cast<std::size_t>(axis)] = draw_blocks(counts[axis]);
  return {Grid(counts), blocks};
}

/// Calls visit(coordinates) for all ranks in the documented order: sample slowest, then channel, depth, height, width.
template <class Visit>
void in_rank_order(Counts const& counts, Visit visit) {
  Coordinates at;
  for (at[AxisId::sample] = 0; at[AxisId::sample] < counts.sample; ++at[AxisId::sample])
    for (at[AxisId::channel] = 0; at[AxisId::channel] < counts.channel; ++at[AxisId::channel])
      for (at[AxisId::depth] = 0; at[AxisId::depth] < counts.depth; ++at[AxisId::depth])
        for (at[AxisId::height] = 0; at[AxisId::height] < counts.height; ++at[AxisId::height])
          for (at[AxisId::width] = 0; at[AxisId::width] < counts.width; ++at[AxisId::width]) visit(at);
}

using Cell = std::array<std::int64_t, axis_count>;

template <class Visit>
void for_each_cell(Box const& box, Visit visit) {
  Cell at;
  for (at[0] = box.axis[0].begin; at[0] < box.axis[0].end; ++at[0])
    for (at[1] = box.axis[1].begin; at[1] < box.axis[1].end; ++at[1])
      for (at[2] = box.axis[2].begin; at[2] < box.axis[2].end; ++at[2])
        for (at[3] = box.axis[3].begin; at[3] < box.axis[3].end; ++at[3])
          for (at[4] = box.axis[4].begin; at[4] < box.axis[4].end; ++at[4]) visit(at);
}

}  // namespace

TEST_CASE("Grid: ranks are numbered with sample slowest and width fastest") {
  property("coordinates and rank follow the order of the nested loops", [] {
    Counts const counts = draw_counts();
    Grid const grid(counts);
    RC_ASSERT(grid.counts() == counts);
    std::int64_t next = 0;
    in_rank_order(counts, [&](Coordinates const& at) {
      RC_ASSERT(grid.rank(at) == next);
      RC_ASSERT(grid.coordinates(next) == at);
      ++next;
    });
    RC_ASSERT(grid.size() == next);
    RC_ASSERT(counts.product() == next);
  });
}

TEST_CASE("Partition: every cell of the tensor has one owner") {
  property("the owned boxes are disjoint and cover the shape", [] {
    Partition const partition = draw_partition();
    std::map<Cell, int> owners;
    for (std::int64_t rank = 0; rank < partition.grid().size(); ++rank)
      for_each_cell(partition.owned(rank), [&](Cell const& cell) { ++owners[cell]; });
    for (auto const& [cell, times] : owners) RC_ASSERT(times == 1);
    RC_ASSERT(static_cast<std::int64_t>(owners.size()) == partition.shape().volume());
    for_each_cell(partition.shape().box(), [&](Cell const& cell) { RC_ASSERT(owners.count(cell) == 1U); });
  });
  property("a rank owns the block of its coordinates along each axis", [] {
    Partition const partition = draw_partition();
    std::int64_t rank = 0;
    in_rank_order(partition.grid().counts(), [&](Coordinates const& at) {
      Box const owned = partition.owned(rank++);
      for (AxisId axis : rank_order) RC_ASSERT(owned[axis] == partition.blocks(axis)[at[axis]]);
    });
  });
}

TEST_CASE("Partition: a grid and a shape make balanced blocks") {
  property("the shape is kept, and blocks along each axis are those of its extent and count", [] {
    Counts const counts = draw_counts();
    Shape const shape = draw_shape("extent");
    Partition const partition(Grid(counts), shape);
    RC_ASSERT(partition.shape() == shape);
    RC_ASSERT(partition.grid() == Grid(counts));
    RC_ASSERT(partition.blocks(AxisId::sample) == Blocks(shape.sample, counts.sample));
    RC_ASSERT(partition.blocks(AxisId::depth) == Blocks(shape.depth, counts.depth));
    RC_ASSERT(partition.blocks(AxisId::height) == Blocks(shape.height, counts.height));
    RC_ASSERT(partition.blocks(AxisId::width) == Blocks(shape.width, counts.width));
    RC_ASSERT(partition.blocks(AxisId::channel) == Blocks(shape.channel, counts.channel));
  });
}

TEST_CASE("Partition: scaled_to scales every axis") {
  property("grid kept, new shape, each axis as its blocks scale", [] {
    Partition const partition = draw_partition();
    Shape const shape = draw_shape("new extent");
    Partition const scaled = partition.scaled_to(shape);
    RC_ASSERT(scaled.grid() == partition.grid());
    RC_ASSERT(scaled.shape() == shape);
    for (AxisId axis : rank_order) RC_ASSERT(scaled.blocks(axis) == partition.blocks(axis).scaled_to(shape[axis]));
    RC_ASSERT(partition.scaled_to(partition.shape()) == partition);
  });
}

TEST_CASE("Partition: equal when grid and blocks are") {
  Grid const by_depth(Counts{.depth = 2}), by_height(Counts{.height = 2});
  Shape const shape{1, 4, 4, 4, 1};
  CHECK(Partition(by_depth, shape) == Partition(by_depth, shape));
  CHECK(Partition(by_depth, shape) != Partition(by_height, shape));
  CHECK(Partition(by_depth, shape) != Partition(by_depth, shape.with_channels(2)));
  CHECK(Partition(by_depth, shape) !=
        Partition(by_depth, {Blocks(1, 1), Blocks::at({0, 1, 4}), Blocks(4, 1), Blocks(4, 1), Blocks(1, 1)}));
  CHECK(Partition(by_depth, shape) ==
        Partition(by_depth, {Blocks(1, 1), Blocks::at({0, 2, 4}), Blocks(4, 1), Blocks(4, 1), Blocks(1, 1)}));
}

TEST_CASE("Region: what each rank needs") {
  property("it starts as what is owned, and map changes one axis of every rank alike", [] {
    Partition const partition = draw_partition();
    AxisId const changed = rank_order[static_cast<std::size_t>(draw("axis", 0, axis_count - 1))];
    auto const grow = [](Interval i) { return Interval{i.begin - 2, i.end + 1}; };
    Region const owned(partition), grown = Region(partition).map(changed, grow);
    RC_ASSERT(owned.grid() == partition.grid());
    RC_ASSERT(grown.grid() == partition.grid());
    for (std::int64_t rank = 0; rank < partition.grid().size(); ++rank)
      for (AxisId axis : rank_order) {
        Interval const own = partition.owned(rank)[axis], grew = grow(own);
        RC_ASSERT(owned.box(rank)[axis] == own);
        RC_ASSERT(grown.box(rank)[axis].begin == (axis == changed ? grew.begin : own.begin));
        RC_ASSERT(grown.box(rank)[axis].end == (axis == changed ? grew.end : own.end));
      }
    for (AxisId axis : rank_order)
      RC_ASSERT(static_cast<std::int64_t>(grown.intervals(axis).size()) == partition.grid().counts()[axis]);
  });
}

TEST_CASE("Partition: errors say what must hold") {
  CHECK_THROWS_WITH_AS(Grid(Counts{.height = 0}), "Grid: every count must be at least 1, but height is 0", Error);
  CHECK_THROWS_WITH_AS(Grid(Counts{.channel = -1}), "Grid: every count must be at least 1, but channel is -1", Error);
  CHECK_THROWS_WITH_AS(
      Partition(Grid(Counts{.width = 3}), {Blocks(1, 1), Blocks(4, 1), Blocks(4, 1), Blocks(4, 2), Blocks(1, 1)}),
      "Partition: the width axis has 2 blocks for 3 ranks; give one block per rank", Error);
  CHECK_THROWS_WITH_AS(Partition(Grid(), Shape{1, -2, 1, 1, 1}), "Blocks: the extent must not be negative, it is -2",
                       Error);
}

TEST_CASE("Shape: prints its extents") { CHECK(tessera::detail::text(Shape{1, 2, 3, 4, 5}) == "(1, 2, 3, 4, 5)"); }
