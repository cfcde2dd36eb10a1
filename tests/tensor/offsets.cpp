// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Tensors of more cells than 32 bits can count. None of them is allocated: where addresses must be real, they are of
// memory that the system promises without giving it.

#include <doctest/doctest.h>
#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <vector>

#include "tessera/exchange/plan.hpp"
#include "tessera/layer/mixing_binding.hpp"
#include "tessera/partition/window.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/shard.hpp"

using namespace tessera;

namespace {

using Host = Kokkos::DefaultHostExecutionSpace;

constexpr Shape large{.depth = 4096, .height = 33, .width = 32768};
constexpr std::int64_t cells = 4'429'185'024;  // above 2^32

/// Elements between the first cell that a tile holds and cell g, as Tile computes it.
template <class T>
std::int64_t offset(Tile<T> const& tile, std::int64_t const (&g)[5]) {
  std::int64_t at = g[4] - tile.origin[4];
  for (int a = 0; a < 4; ++a) at += (g[a] - tile.origin[a]) * tile.stride[a];
  return at;
}

}  // namespace

TEST_CASE("case 17: shapes, boxes, blocks and strides count cells in 64 bits") {
  static_assert(large.volume() == cells);
  static_assert(large.box().volume() == cells);
  Tile<char> const tile = dense_tile<char>(nullptr, large.box());
  CHECK(offset(tile, {0, 4095, 32, 32767, 0}) == cells - 1);
  CHECK(tile.stride[0] == cells);
  // The same far from the origin of the global indices, and with channels.
  std::int64_t const far = std::int64_t{1} << 40;
  Box const box{{{far, far + 4}, {far, far + 4096}, {-far, -far + 33}, {0, 32768}, {5, 8}}};
  Tile<char> const moved = dense_tile<char>(nullptr, box);
  CHECK(offset(moved, {far + 3, far + 4095, -far + 32, 32767, 7}) == 12 * cells - 1);
  CHECK(box.volume() == 12 * cells);

  Partition const halves(Grid(Counts{.depth = 2}), large);
  CHECK(halves.owned(1).volume() == cells / 2);  // above 2^31
  Blocks const blocks(3 * far, 3);
  CHECK(blocks[2].begin == 2 * far);
  CHECK(blocks.owner(2 * far - 1) == 1);
  std::int64_t const long_axis = std::int64_t{1} << 31;
  CHECK(Blocks::at({0, 2, long_axis}).scaled_to(long_axis / 2)[1] == Interval{1, long_axis / 2});
}

TEST_CASE("case 17: windows reach beyond 2^31") {
  std::int64_t const far = std::int64_t{1} << 33;
  constexpr Window window{5, 3, 2, 4, 4};
  std::int64_t const m = window.outputs(far);
  CHECK(m == (far + 8 - 9) / 3 + 1);
  CHECK(window.required({m - 1, m}) == Interval{(m - 1) * 3 - 4, (m - 1) * 3 + 5});
  CHECK(window.touch({far - 1, far}) == Interval{ceil_div(far - 5, 3), floor_div(far + 3, 3) + 1});
  CHECK(window.interior({0, far}) == Interval{2, floor_div(far - 5, 3) + 1});
  Reach const reach = reach_of(window, far);
  CHECK(reach.interior({0, m}, {0, far}) == intersect(Interval{2, floor_div(far - 5, 3) + 1}, {0, m}));
}

TEST_CASE("case 17: plans count more than 2^31 cells, for each box and in all") {
  Partition const halves(Grid(Counts{.depth = 2}), large);
  Region all(halves);
  all.map(AxisId::depth, [](Interval) { return Interval{0, large.depth}; });
  for (int rank = 0; rank < 2; ++rank) {
    ExchangePlan const plan = make_plan(halves, all, rank);
    CHECK(plan.received_cells() == cells / 2);
    CHECK(plan.sent_cells() == cells / 2);
    CHECK(plan.needs.volume() == cells);
  }
  // Circular far beyond the border: every image is a box of its own.
  Region around(halves);
  around.map(AxisId::depth, [](Interval) { return Interval{-2 * large.depth, 3 * large.depth}; });
  CHECK(make_plan(halves, around, 1, Padding::circular).received_cells() == 5 * (cells / 2));

  // A layer whose channels are cut: all inputs come to each block of outputs.
  Shape const in = large.with_channels(4);
  Partition const input(Grid(Counts{.channel = 4}), in);
  Windows windows;
  for (Window& w : windows.axis) w = {3, 1, 1, 1, 1};
  Reaches const reaches = reaches_of(windows, Border::zeros, in);
  ChannelRoles const roles("conv", input, MixingBinding::output(input, reaches, 4), Stationary::y, 1,
                           Grouped::outputs_stay);
  auto const bound = MixingBinding(2, reaches, 4, Padding::zeros, roles).make(input);
  CHECK(bound.x_plan.received_cells() == 3 * cells);
  CHECK(bound.x_plan.sent_cells() == 3 * cells);
  CHECK(bound.x_plan.needs.volume() == 4 * 4098 * std::int64_t{35} * 32770);
}

#if defined(MAP_NORESERVE) && defined(MAP_ANONYMOUS)
TEST_CASE("case 17: the cells of a shard lie where they must, and kernels find them") {
  void* const promised = mmap(nullptr, static_cast<std::size_t>(cells), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (promised == MAP_FAILED) {
    MESSAGE("the system promises no " << cells << " bytes: skipped");
    return;
  }
  auto* const first = static_cast<std::uint8_t*>(promised);
  {
    Partition const partition(Grid(Counts{}), large);
    auto const shard = Shard<std::uint8_t, Host>::wrap(first, partition, 0, large.box());
    CHECK(&shard(0, 4095, 32, 32767, 0) - first == cells - 1);
    CHECK(shard.tile().position(0, 2048, 0, 0) - first == cells / 2);
    Box corner = large.box();
    corner.axis[1] = {4094, 4096};
    corner.axis[2] = {31, 33};
    corner.axis[3] = {32760, 32768};
    fill(Host(), shard.tile(), corner, std::uint8_t{7});
    Host().fence();
    CHECK(first[cells - 1] == 7);
    CHECK(first[cells - 9] == 0);
    CHECK(first[cells - 1 - 32768] == 7);
    CHECK(shard(0, 4094, 31, 32760, 0) == 7);
    // A Kokkos::View computes in the type of its indices: 32 bits would wrap here.
    std::int64_t const last[] = {0, 4095, 32, 32767, 0};
    CHECK(shard.view()(last[0], last[1], last[2], last[3], last[4]) == 7);
  }
  munmap(promised, static_cast<std::size_t>(cells));
}
#endif
