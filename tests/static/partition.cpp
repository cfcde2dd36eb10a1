// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

// What must hold at compile time: this file passes by compiling.

#include <array>
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tessera/op/geometry.hpp"
#include "tessera/partition/blocks.hpp"
#include "tessera/partition/box.hpp"
#include "tessera/partition/counts.hpp"
#include "tessera/partition/distribution.hpp"
#include "tessera/partition/grid.hpp"
#include "tessera/partition/interval.hpp"
#include "tessera/partition/shape.hpp"
#include "tessera/partition/window.hpp"
#include "tessera/tensor/tile.hpp"

namespace {

using namespace tessera;
using namespace tessera::axes;

// Axes

static_assert(index(AxisId::sample) == 0 && index(AxisId::channel) == axis_count - 1, "channels-last storage");
static_assert(rank_order.front() == AxisId::sample && rank_order.back() == AxisId::width);
static_assert(name(AxisId::sample) == "sample" && name(AxisId::depth) == "depth" && name(AxisId::height) == "height" &&
              name(AxisId::width) == "width" && name(AxisId::channel) == "channel");
static_assert(AxisTag<Sample> && AxisTag<Channel> && AxisTag<Depth> && AxisTag<Height> && AxisTag<Width>);
static_assert(!AxisTag<int> && !AxisTag<AxisId>);

// Distribution and Split

static_assert(std::same_as<Distribution<Sample, Depth, Height>, Distribution<Height, Sample, Depth>>);
static_assert(std::same_as<Distribution<Channel, Split<Width, 2>>, Distribution<Split<Width, 2>, Channel>>);
static_assert(std::same_as<Distribution<Depth>, Distribution<Split<Depth>>>);
static_assert(std::same_as<Distribution<Depth>, Distribution<Split<Depth, dynamic>>>);
static_assert(std::same_as<Distribution<Split<Depth, 1>, Sample>, Distribution<Sample>>, "one block is a whole axis");
static_assert(std::same_as<Distribution<>, AxisSplits<1, 1, 1, 1, 1>>);
static_assert(std::same_as<Distribution<Split<Width, 6>, Split<Height, 5>, Split<Depth, 4>, Split<Channel, 3>, Sample>,
                           AxisSplits<dynamic, 3, 4, 5, 6>>);
static_assert(!std::same_as<Distribution<Split<Depth, 2>>, Distribution<Split<Depth, 3>>>);
static_assert(!std::same_as<Distribution<Split<Depth, 2>>, Distribution<Depth>>);
static_assert(!std::same_as<Distribution<Depth>, Distribution<Height>>);

using Mixed = Distribution<Split<Depth, 4>, Sample, Width>;
static_assert(Mixed::counts == Counts{.sample = dynamic, .depth = 4, .width = dynamic});
static_assert(Mixed::dynamic_axes == 2);
static_assert(Mixed::splits(AxisId::sample) && Mixed::splits(AxisId::depth) && Mixed::splits(AxisId::width));
static_assert(!Mixed::splits(AxisId::channel) && !Mixed::splits(AxisId::height));
static_assert(Mixed::splits_space && !Mixed::splits_channel);
static_assert(Distribution<Channel>::splits_channel && !Distribution<Channel, Sample>::splits_space);
static_assert(Distribution<Height>::splits_space && Distribution<Width>::splits_space);
static_assert(!Distribution<>::splits_space && Distribution<>::dynamic_axes == 0);

static_assert(PartitionPolicy<Distribution<>> && PartitionPolicy<Mixed> && PartitionPolicy<AxisSplits<1, 2, 1, 1, 1>>);
static_assert(!PartitionPolicy<Depth> && !PartitionPolicy<Split<Depth, 2>> && !PartitionPolicy<Counts>);

// Counts

template <class C>
concept TakesPositions = requires {
  C{2, 2, 2};
}
|| requires { C{{}, 2, 2}; }
|| requires { C{{2, 2, 2}}; };
static_assert(!TakesPositions<Counts>, "a position says nothing about the axis");

static_assert(Counts{}.product() == 1);
static_assert(Counts{.sample = 2, .depth = 4}.product() == 8);
static_assert(Counts{.sample = 2, .channel = 3, .depth = 5, .height = 7, .width = 11}.product() == 2310);
static_assert(Counts{.height = 3} == Counts{.sample = 1, .channel = 1, .depth = 1, .height = 3, .width = 1});
static_assert(Counts{.height = 3} != Counts{.width = 3} && Counts{.sample = 3} != Counts{.channel = 3} &&
              Counts{.depth = 3} != Counts{});

constexpr bool counts_by_axis() {
  Counts counts;
  std::int64_t value = 2;
  for (AxisId axis : rank_order) counts[axis] = value++;
  return counts == Counts{.sample = 2, .channel = 3, .depth = 4, .height = 5, .width = 6} &&
         std::as_const(counts)[AxisId::sample] == 2 && std::as_const(counts)[AxisId::channel] == 3 &&
         std::as_const(counts)[AxisId::depth] == 4 && std::as_const(counts)[AxisId::height] == 5 &&
         std::as_const(counts)[AxisId::width] == 6;
}
static_assert(counts_by_axis());

// Interval

constexpr bool division_rounds() {
  for (std::int64_t b = 1; b <= 9; ++b)
    for (std::int64_t a = -40; a <= 40; ++a) {
      std::int64_t const below = floor_div(a, b), above = ceil_div(a, b), rest = floor_mod(a, b);
      if (!(below * b <= a && a < (below + 1) * b)) return false;
      if (!((above - 1) * b < a && a <= above * b)) return false;
      if (!(0 <= rest && rest < b && below * b + rest == a)) return false;
    }
  return true;
}
static_assert(division_rounds());
static_assert(floor_div(-1, 2) == -1 && ceil_div(-1, 2) == 0 && floor_mod(-1, 2) == 1);

static_assert(Interval{}.empty() && Interval{3, 1}.empty() && Interval{3, 1}.size() == 0);
static_assert(Interval{3, 1} == Interval{7, 7} && Interval{3, 1} != Interval{0, 1}, "nothing has no position");
static_assert(intersect(Interval{0, 5}, Interval{3, 9}) == Interval{3, 5});
static_assert(intersect(Interval{0, 2}, Interval{4, 6}).empty());
static_assert(hull(Interval{0, 2}, Interval{4, 6}) == Interval{0, 6});
static_assert(hull(Interval{9, 1}, Interval{4, 6}) == Interval{4, 6});
static_assert(hull(Interval{4, 6}, Interval{0, 0}) == Interval{4, 6});
static_assert(Interval{2, 4}.contains(2) && !Interval{2, 4}.contains(4) && !Interval{2, 4}.contains(1));
static_assert(Interval{2, 4}.contains(Interval{9, 9}) && !Interval{2, 4}.contains(Interval{3, 5}));
static_assert(shifted({1, 3}, -4) == Interval{-3, -1});

// Blocks

constexpr bool balanced_blocks_partition() {
  for (std::int64_t n = 0; n <= 20; ++n)
    for (std::int64_t parts = 1; parts <= 8; ++parts) {
      std::int64_t next = 0;
      for (std::int64_t i = 0; i < parts; ++i) {
        Interval const block = block_range(n, parts, i);
        if (block.begin != next || block.end < block.begin) return false;
        if (block.size() != n / parts + (i < n % parts ? 1 : 0)) return false;
        for (std::int64_t g = block.begin; g < block.end; ++g)
          if (block_owner(n, parts, g) != i) return false;
        next = block.end;
      }
      if (next != n) return false;
    }
  return true;
}
static_assert(balanced_blocks_partition());
static_assert(block_range(5, 8, 4).size() == 1 && block_range(5, 8, 5).empty(), "empty blocks come last");

constexpr bool given_boundaries() {
  Blocks const blocks = Blocks::at({0, 0, 3, 3, 3, 7, 7});
  return !blocks.balanced() && blocks.extent() == 7 && blocks.parts() == 6 && blocks[0].empty() &&
         blocks[1] == Interval{0, 3} && blocks[2].empty() && blocks[4] == Interval{3, 7} && blocks[5].empty() &&
         blocks.owner(0) == 1 && blocks.owner(2) == 1 && blocks.owner(3) == 4 && blocks.owner(6) == 4 &&
         blocks.owners({2, 4}) == Interval{1, 5} && blocks.owners({4, 4}).empty();
}
static_assert(given_boundaries());

constexpr bool blocks_scale() {
  return Blocks::at({0, 1, 8}).scaled_to(4) == Blocks::at({0, 1, 4}) &&
         Blocks::at({0, 1, 8}).scaled_to(16) == Blocks::at({0, 2, 16}) && Blocks(8, 3).scaled_to(5) == Blocks(5, 3) &&
         Blocks::at({0, 0, 0}).scaled_to(3) == Blocks::at({0, 3, 3});
}
static_assert(blocks_scale());
static_assert(Blocks(7, 3) == Blocks::at({0, 3, 5, 7}) && Blocks(7, 3) != Blocks::at({0, 3, 4, 7}) &&
              Blocks(7, 3) != Blocks(7, 2) && Blocks(7, 3) != Blocks(8, 3));

// Shape and Box

constexpr Box cube(std::int64_t begin, std::int64_t end) {
  Box box;
  for (Interval& along : box.axis) along = {begin, end};
  return box;
}

static_assert(Shape{2, 3, 5, 7, 11}.volume() == 2310 && Shape{2, 3, 5, 7, 11}.box().volume() == 2310);
static_assert(Shape{2, 3, 5, 7, 11}[AxisId::sample] == 2 && Shape{2, 3, 5, 7, 11}[AxisId::depth] == 3 &&
              Shape{2, 3, 5, 7, 11}[AxisId::height] == 5 && Shape{2, 3, 5, 7, 11}[AxisId::width] == 7 &&
              Shape{2, 3, 5, 7, 11}[AxisId::channel] == 11);
static_assert(Shape{2, 3, 5, 7, 11}.with_samples(4) == Shape{4, 3, 5, 7, 11} &&
              Shape{2, 3, 5, 7, 11}.with_channels(4) == Shape{2, 3, 5, 7, 4});
static_assert(Shape{2, 3, 5, 7, 11}.box()[AxisId::width] == Interval{0, 7});

static_assert(Box{}.empty() && Box{}.volume() == 0 && cube(0, 2).volume() == 32);
static_assert(intersect(cube(0, 3), cube(1, 5)) == cube(1, 3) && intersect(cube(0, 2), cube(2, 4)).empty());
static_assert(hull(cube(0, 1), cube(3, 4)) == cube(0, 4) && hull(Box{}, cube(3, 4)) == cube(3, 4) &&
              hull(cube(3, 4), Box{}) == cube(3, 4));
static_assert(cube(0, 4).contains(cube(1, 4)) && !cube(0, 4).contains(cube(1, 5)) && cube(0, 1).contains(Box{}));

constexpr bool rim_covers(Box const& box, Box const& hole) {
  std::int64_t cells = 0, pieces = 0;
  bool good = true;
  for_each_rim(box, hole, [&](Box const& piece) {
    good = good && !piece.empty() && box.contains(piece) && intersect(piece, hole).empty();
    cells += piece.volume();
    ++pieces;
  });
  return good && pieces <= 2 * axis_count && cells == box.volume() - intersect(box, hole).volume();
}
static_assert(rim_covers(cube(0, 4), cube(1, 3)) && rim_covers(cube(0, 4), cube(0, 4)) &&
              rim_covers(cube(0, 4), cube(2, 9)) && rim_covers(cube(0, 4), Box{}) && rim_covers(Box{}, cube(0, 4)) &&
              rim_covers(cube(0, 4), cube(6, 9)));

// Grid

constexpr bool coordinates_round_trip() {
  Grid const grid(Counts{.sample = 2, .channel = 3, .depth = 1, .height = 4, .width = 2});
  if (grid.size() != 48) return false;
  for (std::int64_t rank = 0; rank < grid.size(); ++rank) {
    Coordinates const at = grid.coordinates(rank);
    for (AxisId axis : rank_order)
      if (at[axis] < 0 || at[axis] >= grid.counts()[axis]) return false;
    if (grid.rank(at) != rank) return false;
  }
  Coordinates next_in_width, next_in_sample;
  next_in_width[AxisId::width] = 1;
  next_in_sample[AxisId::sample] = 1;
  return grid.rank(next_in_width) == 1 && grid.rank(next_in_sample) == 24;
}
static_assert(coordinates_round_trip());
static_assert(Grid().size() == 1 && Grid().coordinates(0) == Coordinates{});
static_assert(Grid(Counts{.depth = 2}) == Grid(Counts{.depth = 2}) && Grid(Counts{.depth = 2}) != Grid());

// Window

constexpr Window three{.kernel = 3, .low = 1, .high = 1};
static_assert(three.span() == 3 && three.outputs(8) == 8);
static_assert(three.required({2, 4}) == Interval{1, 5} && three.required({4, 4}).empty());
static_assert(three.touch({2, 4}) == Interval{1, 5} && three.interior({2, 6}) == Interval{3, 5});

constexpr Window strided{.kernel = 2, .stride = 3};
static_assert(strided.outputs(8) == 3 && strided.outputs(7) == 2 && strided.outputs(1) == 0);
static_assert(strided.touch({2, 3}).empty() && strided.touch({3, 4}) == Interval{1, 2}, "a gap is read by nobody");

constexpr Window cropped{.kernel = 3, .stride = 2, .dilation = 2, .low = -2, .high = -1};
static_assert(cropped.span() == 5 && cropped.outputs(12) == 3 && cropped.outputs(7) == 0);
static_assert(cropped.required({0, 2}) == Interval{2, 9});
static_assert(cropped.touch({0, 2}) == Interval{-3, 0} && cropped.touch({2, 4}) == Interval{-2, 1});
static_assert(cropped.interior({0, 8}) == Interval{-1, 1} && cropped.interior({3, 8}) == Interval{1, 1});
static_assert(Window{.low = -3, .high = -2}.outputs(9) == 4 && Window{.low = -3}.required({0, 1}) == Interval{3, 4});

static_assert(Window{}.pointwise() && !three.pointwise() && !Window{.stride = 2}.pointwise() &&
              !Window{.low = 1}.pointwise() && !Window{.high = -1}.pointwise());
static_assert(checked_outputs(three, 8, "conv", "depth") == 8);

constexpr bool same_makes_ceil_outputs() {
  for (std::int64_t n = 1; n <= 16; ++n)
    for (std::int64_t kernel = 1; kernel <= 5; ++kernel)
      for (std::int64_t stride = 1; stride <= 4; ++stride)
        for (std::int64_t dilation = 1; dilation <= 3; ++dilation) {
          Window const window = same_window(n, kernel, stride, dilation);
          if (window.outputs(n) != ceil_div(n, stride)) return false;
          if (window.low < 0 || window.high - window.low < 0 || window.high - window.low > 1) return false;
        }
  return true;
}
static_assert(same_makes_ceil_outputs());
static_assert(same_window(7, 3, 1, 2) == Window{3, 1, 2, 2, 2} && same_window(8, 3, 2, 1) == Window{3, 2, 1, 0, 1});

// Windows and Tile

constexpr Windows windows{{{.kernel = 2}, {.kernel = 3}, {.kernel = 5}}};
static_assert(windows.taps() == 30);
static_assert(windows[AxisId::depth].kernel == 2 && windows[AxisId::height].kernel == 3 &&
              windows[AxisId::width].kernel == 5);
static_assert(windows[AxisId::sample].pointwise() && windows[AxisId::channel].pointwise());
static_assert(spatial_axes == std::array{AxisId::depth, AxisId::height, AxisId::width});

static_assert(std::is_trivially_copyable_v<Tile<float>> && std::is_trivially_copyable_v<Box> &&
                  std::is_trivially_copyable_v<Windows>,
              "kernels take them by value");
static_assert(std::convertible_to<Tile<float>, Tile<float const>>);
static_assert(!std::convertible_to<Tile<float const>, Tile<float>>);

}  // namespace
