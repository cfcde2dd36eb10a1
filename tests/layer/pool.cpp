// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/layer/pool.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/host_tensor.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/oracle/pool.hpp"
#include "tessera/comm/rank_grid.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

enum class Values { spread, tied, special, negative };

struct Case {
  bool largest = false;  ///< max, else average
  bool count_padding = true;
  std::array<Window, 3> windows;
  Shape x;
  Partition input;
  Values values = Values::spread;
  bool adds = false;
  std::int64_t samples = 1;
  std::uint64_t seed = 0;

  oracle::Pool oracle() const { return {windows}; }

  std::string text() const {
    return tessera::detail::text(largest         ? "max"
                                 : count_padding ? "average"
                                                 : "average without padding",
                                 " pool of ", test::text(input), ", ", test::text(windows[0]), " | ",
                                 test::text(windows[1]), " | ", test::text(windows[2]), ", values ",
                                 static_cast<int>(values), adds ? ", adds" : "", ", then ", samples, " samples, seed ",
                                 seed);
  }

  template <class Spec>
  Spec with_windows(Spec spec) const {
    auto const& [d, h, w] = windows;
    spec.set(kernel(d.kernel, h.kernel, w.kernel));
    spec.set(stride(d.stride, h.stride, w.stride));
    spec.set(padding_low(d.low, h.low, w.low));
    spec.set(padding_high(d.high, h.high, w.high));
    return spec;
  }
};

Case draw_case(std::int64_t ranks, bool largest) {
  Case c;
  c.largest = largest;
  c.count_padding = draw(0, 1, "padding counts") == 1;
  std::int64_t const space = draw(1, 3, "spatial axes");
  Counts const counts = draw_counts(ranks, space);
  c.x = draw_shape(counts, space);
  for (std::int64_t i = 3 - space; i < 3; ++i) {
    Window& w = c.windows[static_cast<std::size_t>(i)];
    std::int64_t const extent = c.x[space_in_order[static_cast<std::size_t>(i)]];
    w.kernel = draw(1, draw_one_in(3, "a wide kernel") ? 7 : 4, "kernel");
    while (extent + 2 * (w.kernel / 2) < w.kernel) --w.kernel;
    w.stride = draw(0, 2, "strided") == 0 ? 1 : draw(2, 4, "stride");
    w.low = draw(0, w.kernel / 2, "low");
    w.high = larger(draw(0, w.kernel / 2, "high"), w.kernel - extent - w.low);
    if (2 * w.high > w.kernel) {
      w.low += w.high - w.kernel / 2;
      w.high = w.kernel / 2;
    }
  }
  auto const work = [&] {
    return c.oracle().output(c.x).volume() * c.windows[0].kernel * c.windows[1].kernel * c.windows[2].kernel;
  };
  while (work() > 12000 && c.x.channel > 1) --c.x.channel;
  while (work() > 12000 && c.x.sample > 1) --c.x.sample;
  c.input = draw_partition(c.x, counts);
  c.values = static_cast<Values>(draw(0, largest ? 3 : 0, "values (spread, tied, special, negative)"));
  c.adds = draw(0, 1, "adds") == 1;
  c.samples = draw(1, c.x.sample, "samples of an incomplete batch");
  c.seed = static_cast<std::uint64_t>(draw(0, 1'000'000, "seed"));
  return c;
}

HostTensor values_of(Case const& c, Shape const& shape, std::uint64_t seed) {
  switch (c.values) {
    case Values::spread: return random_tensor(shape, seed);
    case Values::tied: return whole_numbers(shape, seed, 1);
    case Values::negative: {
      HostTensor x = random_tensor(shape, seed);
      for (double& value : x.values) value = -1.0 - std::abs(value);
      return x;
    }
    case Values::special: {
      HostTensor x = whole_numbers(shape, seed, 5);
      for (double& value : x.values) {
        if (value == 5) value = std::numeric_limits<double>::quiet_NaN();
        if (value <= 0) value = -std::numeric_limits<double>::infinity();
      }
      return x;
    }
  }
  return {};
}

template <class T>
void check_batch(Case const& c, Partition const& input, Driver<T>& driver, std::uint64_t seed) {
  oracle::Pool const pool = c.oracle();
  Shape const in = input.shape(), out = pool.output(in);
  HostTensor const x = values_of(c, in, seed), dy = random_tensor(out, seed + 1), start = random_tensor(in, seed + 2);
  driver.forward(input, x);
  driver.backward(dy, {}, c.adds ? &start : nullptr);

  together([&] {
    driver.expect_clean();
    std::int64_t const taps = c.windows[0].kernel * c.windows[1].kernel * c.windows[2].kernel;
    HostTensor dx, dx_size;
    if (c.largest) {
      auto const forward = oracle::max_pool(pool, x);
      expect_owned("y", driver.y(), forward.y, [](std::size_t) { return 0.0; });
      dx = oracle::max_pool_backward(forward, in, dy);
      dx_size = oracle::max_pool_backward(forward, in, dy, true);
    } else {
      HostTensor const size = oracle::average_pool(pool, x, c.count_padding, true);
      expect_owned("y", driver.y(), oracle::average_pool(pool, x, c.count_padding),
                   [&](std::size_t i) { return gamma_n<T>(taps + 2) * size.values[i]; });
      dx = oracle::average_pool_backward(pool, in, dy, c.count_padding);
      dx_size = oracle::average_pool_backward(pool, in, dy, c.count_padding, true);
    }
    if (c.adds)
      for (std::size_t i = 0; i < dx.values.size(); ++i) {
        dx.values[i] += start.values[i];
        dx_size.values[i] += std::abs(start.values[i]);
      }
    expect_owned("dx", driver.dx(), dx, [&](std::size_t i) { return gamma_n<T>(taps + 3) * dx_size.values[i]; });
  });
}

template <class T, class Spec>
void check_spec(Case const& c, RankGrid<AnySplit> const& ranks, Spec const& spec) {
  Driver<T> driver(ranks, c.input, spec);
  check_batch(c, c.input, driver, c.seed);
  if (c.input.blocks(AxisId::sample).balanced() && c.samples < c.x.sample) {
    check_batch(c, c.input.with_samples(c.samples), driver, c.seed + 10);
    check_batch(c, c.input, driver, c.seed + 20);
  }
}

template <class T>
void check(Case const& c, RankGrid<AnySplit> const& world) {
  RankGrid<AnySplit> const ranks(world, c.input.grid().counts());
  try {
    if (c.largest) {
      check_spec<T>(c, ranks, c.with_windows(max_pool3d()));
    } else {
      AveragePoolSpec spec = c.with_windows(avg_pool3d());
      spec.count_padding = c.count_padding;
      check_spec<T>(c, ranks, spec);
    }
  } catch (Error const& error) {
    throw Error(error.what() + std::string("\n  in ") + c.text());
  }
}

template <class T>
void distributed_equals_serial(std::string const& name, bool largest) {
  poison_fresh_memory();
  auto const world = world_ranks();
  Coverage coverage(name, world.size());
  distributed_property(
      name + ": distributed equals serial",
      [&] {
        Case const c = draw_case(world.size(), largest);
        coverage.begin_case();
        coverage.count_windows(c.input, c.input.scaled_to(c.oracle().output(c.x)), c.windows);
        bool padded = false;
        for (Window const& w : c.windows) padded |= w.low > 0 || w.high > 0;
        coverage.count("padding", padded);
        check<T>(c, world);
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}

Case along_width(bool largest, std::int64_t n, Window const& window) {
  Case c;
  c.largest = largest;
  c.windows[2] = window;
  c.x = {2, 1, 1, n, 3};
  c.input = Partition(Grid(Counts{.width = world_ranks().size()}), c.x);
  c.samples = 2;
  return c;
}

void check_named(Case const& c) {
  auto const world = world_ranks();
  check<double>(c, world);
  check<float>(c, world);
}

}  // namespace

TEST_CASE("average pool in double: forward and gradient equal the serial ones") {
  distributed_equals_serial<double>("average pool in double", false);
}
TEST_CASE("average pool in float: forward and gradient equal the serial ones") {
  distributed_equals_serial<float>("average pool in float", false);
}
TEST_CASE("max pool in double: forward and gradient equal the serial ones, with ties, NaN and infinities") {
  distributed_equals_serial<double>("max pool in double", true);
}
TEST_CASE("max pool in float: forward and gradient equal the serial ones, with ties, NaN and infinities") {
  distributed_equals_serial<float>("max pool in float", true);
}

TEST_CASE("case 13: the largest of negative cells is never a padding zero, and only the global border pads") {
  for (std::int64_t n : {2, 5, 11}) {
    Case c = along_width(true, n, {3, 1, 1, 1, 1});
    c.values = Values::negative;
    check_named(c);
    c.windows[2].stride = 2;
    check_named(c);
  }
  for (bool count_padding : {true, false}) {
    Case c = along_width(false, 11, {3, 1, 1, 1, 1});
    c.count_padding = count_padding;
    check_named(c);
  }
}

TEST_CASE("cases 7, 18: ranks without a cell take part in pooling") {
  for (bool largest : {false, true}) {
    check_named(along_width(largest, 1, {1, 1, 1, 0, 0}));
    check_named(along_width(largest, 3, {3, 3, 1, 0, 0}));
  }
}

TEST_CASE("case 8: a pool whose halo is wider than the block") {
  std::int64_t const ranks = world_ranks().size();
  for (bool largest : {false, true}) check_named(along_width(largest, 2 * ranks + 5, {7, 1, 1, 3, 3}));
}

TEST_CASE("a pool refuses padding that would make empty windows, dilation, and a stride of 0") {
  auto const ranks = world_ranks();
  Partition const input(ranks.grid(), {1, 1, 1, 9, 1});
  CHECK_THROWS_WITH_AS(
      Driver<double>(ranks, input, max_pool1d<2>(padding(2))),
      "max_pool: padding must be between 0 and half the kernel, so that every window holds a cell, but "
      "along width kernel 2 has padding 2 and 2",
      Error);
  CHECK_THROWS_WITH_AS(Driver<double>(ranks, input, avg_pool1d<3>(dilation(2))),
                       "avg_pool: a window must not be dilated, but along width the dilation is 2", Error);
  CHECK_THROWS_WITH_AS(Driver<double>(ranks, input, avg_pool1d<3>(stride(0))),
                       "avg_pool: kernel, stride and dilation must be at least 1, but along width they are 3, 0, 1",
                       Error);
  CHECK_THROWS_AS(Driver<double>(ranks, input, max_pool1d<10>()), Error);
}
