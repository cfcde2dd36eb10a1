// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/layer/adaptive_pool.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/host_tensor.hpp"
#include "support/layer_harness.hpp"
#include "support/separable_cases.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

AdaptiveAveragePoolSpec spec_of(SeparableCase const& c) {
  auto const& [d, h, w] = c.outputs;
  return c.space == 3   ? adaptive_avg_pool3d({d, h, w})
         : c.space == 2 ? adaptive_avg_pool2d({h, w})
                        : adaptive_avg_pool1d(w);
}

/// A sum in T of all cells or readers, a scale, its rounding, and the sum with what was there.
template <class T>
SeparableBounds adaptive_bounds(SeparableCase const& c) {
  bool const global = c.outputs == std::array<std::int64_t, 3>{1, 1, 1};
  return {gamma_n<T>(c.map.terms() + 2), gamma_n<T>(c.map.readers() + 3), !global};
}

/// A sum in double, and few roundings to T.
template <class T>
SeparableBounds global_bounds(SeparableCase const& c) {
  return {gamma_n<T>(1) + gamma_n<double>(c.map.terms() + 2), gamma_n<T>(3) + gamma_n<double>(4), false};
}

template <class T>
void distributed_equals_serial(std::string const& name, bool global) {
  poison_fresh_memory();
  auto const world = world_ranks();
  Coverage coverage(name, world.size());
  distributed_property(
      name + ": distributed equals serial",
      [&] {
        SeparableCase const c = draw_separable(world.size(), global, oracle::adaptive_axis);
        if (global) {
          coverage.begin_case();
          coverage.count_decomposition(c.input, c.input.scaled_to(c.map.output(c.x)));
          coverage.count("cut channels", cuts_channels(c.input), world.size() > 1);
          check_separable<T>(c, world, global_avg_pool(), global_bounds<T>(c));
        } else {
          count_separable(coverage, c, world.size());
          coverage.count("multi-hop", is_multi_hop(c), world.size() > 2);
          check_separable<T>(c, world, spec_of(c), adaptive_bounds<T>(c));
        }
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}

SeparableCase along_width(std::int64_t n, std::int64_t m) {
  SeparableCase c;
  c.x = {2, 1, 1, n, 3};
  c.outputs = {1, 1, m};
  c.map.axis[2] = oracle::adaptive_axis(n, m);
  c.input = Partition(Grid(Counts{.width = world_ranks().size()}), c.x);
  c.samples = 1;
  return c;
}

}  // namespace

TEST_CASE("adaptive average pool in double: forward and gradient equal the serial ones") {
  distributed_equals_serial<double>("adaptive average pool in double", false);
}
TEST_CASE("adaptive average pool in float: forward and gradient equal the serial ones") {
  distributed_equals_serial<float>("adaptive average pool in float", false);
}
TEST_CASE("global average pool in double: forward and gradient equal the serial ones") {
  distributed_equals_serial<double>("global average pool in double", true);
}
TEST_CASE("global average pool in float: forward and gradient equal the serial ones") {
  distributed_equals_serial<float>("global average pool in float", true);
}

TEST_CASE("adaptive and global average pools and their gradients are adjoint") {
  auto const world = world_ranks();
  distributed_property(
      "<A x, y> = <x, A' y>",
      [&] {
        bool const global = draw(0, 3, "global") == 3;
        SeparableCase const c = draw_separable(world.size(), global, oracle::adaptive_axis);
        RankGrid<AnySplit> const ranks(world, c.input.grid().counts());
        if (global)
          check_adjoint(ranks, c.input, global_avg_pool(), c.seed);
        else
          check_adjoint(ranks, c.input, spec_of(c), c.seed);
      },
      MPI_COMM_WORLD);
}

TEST_CASE("adaptive average pool: windows by hand, more outputs than cells too") {
  auto const ranks = world_ranks();
  auto const check = [&](std::vector<double> const& cells, std::vector<double> const& expected) {
    Partition const input(ranks.grid(), {1, 1, 1, static_cast<std::int64_t>(cells.size()), 1});
    HostTensor x(input.shape()), y({1, 1, 1, static_cast<std::int64_t>(expected.size()), 1});
    x.values = cells;
    y.values = expected;
    Driver<double> driver(ranks, input, adaptive_avg_pool1d(y.shape.width));
    driver.forward(input, x);
    together([&] { expect_owned("y", driver.y(), y, [](std::size_t) { return 0.0; }); });
  };
  check({1, 2, 3, 4, 5}, {2, 4});           // [0, 3) and [2, 5)
  check({1, 2, 3, 4, 5, 6, 7}, {2, 4, 6});  // [0, 3), [2, 5) and [4, 7)
  check({2, 4, 8}, {2, 3, 6, 8});           // [0, 1), [0, 2), [1, 3), [2, 3)
  check({3, 5}, {3, 3, 4, 5, 5});
  check({7}, {7, 7, 7});
}

TEST_CASE("cases 6, 7: ranks without a cell or an output take part in adaptive and global pools") {
  auto const world = world_ranks();
  for (auto const& [n, m] : {std::pair{1, 1}, {1, 5}, {3, 1}, {3, 2}, {2, 7}, {19, 2}}) {
    SeparableCase const c = along_width(n, m);
    check_separable<double>(c, world, spec_of(c), adaptive_bounds<double>(c));
    check_separable<float>(c, world, spec_of(c), adaptive_bounds<float>(c));
  }
}

TEST_CASE("the mean of a window with many cells is as exact as that of a few") {
  auto const world = world_ranks();
  std::int64_t const half = 100003;
  Partition const input(Grid(Counts{.width = world.size()}), {1, 1, 1, 2 * half, 3});
  RankGrid<AnySplit> const ranks(world, input.grid().counts());
  HostTensor x(input.shape()), y({1, 1, 1, 2, 3});
  for (std::int64_t w = 0; w < 2 * half; ++w)
    for (std::int64_t c = 0; c < 3; ++c) {
      float const value = 0.1f + 0.3f * static_cast<float>(c) + 1e-3f * static_cast<float>(w % 7);
      x.at(0, 0, 0, w, c) = value;
      y.at(0, 0, 0, w / half, c) += static_cast<double>(value) / static_cast<double>(half);
    }
  Driver<float> driver(ranks, input, adaptive_avg_pool1d(2));
  driver.forward(input, x);
  together([&] { expect_owned("y", driver.y(), y, [&](std::size_t i) { return gamma_n<float>(2) * y.values[i]; }); });
}

TEST_CASE("a global average gathers no cells, whichever way it is asked for") {
  auto const world = world_ranks();
  Partition const input(world.grid(), {2, 1, 1, 40, 3});
  auto const holds_nothing_more = [&](auto const& spec) {
    Driver<float> driver(world, input, spec);
    CHECK(driver.layer().needs_input(input).empty());
    CHECK(driver.layer().needs_error(input).empty());
    std::vector<LayerInfo> infos;
    driver.layer().describe(input, true, infos);
    CHECK(infos.at(0).halo_cells == 0);
    CHECK(infos.at(0).what == "global_avg_pool");
    CHECK(infos.at(0).output.shape() == Shape{2, 1, 1, 1, 3});
  };
  holds_nothing_more(global_avg_pool());
  holds_nothing_more(adaptive_avg_pool3d({1, 1, 1}));
  holds_nothing_more(adaptive_avg_pool1d(1));
}

TEST_CASE("a global average in float rounds once, however many cells it has") {
  auto const world = world_ranks();
  Partition const input(world.grid(), {1, 1, 1, 200'000, 1});
  HostTensor x(input.shape()), y({1, 1, 1, 1, 1});
  for (double& value : x.values) value = static_cast<double>(0.1f);  // a sum in float would be off by 1e-4 and more
  y.values = {static_cast<double>(0.1f)};
  Driver<float> driver(world, input, global_avg_pool());
  driver.forward(input, x);
  together([&] { expect_owned("y", driver.y(), y, [](std::size_t) { return 0.1 * 0x1p-24; }); });
}

TEST_CASE("an adaptive pool refuses to make no outputs") {
  auto const ranks = world_ranks();
  Partition const input(ranks.grid(), {1, 1, 4, 4, 1});
  CHECK_THROWS_WITH_AS(Driver<double>(ranks, input, adaptive_avg_pool2d({0, 2})),
                       "adaptive_avg_pool1: the number of outputs must be at least 1, but along height it is 0", Error);
}
