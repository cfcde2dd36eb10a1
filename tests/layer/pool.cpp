// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/layer/pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/adjoint.hpp"
#include "support/alone.hpp"
#include "support/distributed_property.hpp"
#include "support/host_tensor.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/oracle/pool.hpp"
#include "support/pool_window.hpp"
#include "support/window_options.hpp"
#include "tessera/comm/rank_grid.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

enum class Values { spread, tied, special, negative };

struct Case {
  bool largest = false;  ///< max, else average
  bool count_padding = true;
  bool ceil = false;
  bool same_padding = false;
  std::int64_t divisor = 0;
  std::array<Window, 3> windows;
  Shape x;
  Partition input;
  Values values = Values::spread;
  bool adds = false;
  std::int64_t samples = 1;
  std::uint64_t seed = 0;

  oracle::Pool oracle() const { return {windows, ceil, static_cast<double>(divisor)}; }

  std::string text() const {
    return tessera::detail::text(
        largest         ? "max"
        : count_padding ? "average"
                        : "average without padding",
        " pool of ", test::text(input), ", ", test::text(windows[0]), " | ", test::text(windows[1]), " | ",
        test::text(windows[2]), ceil ? ", ceil" : "", same_padding ? ", same" : "", ", divisor ", divisor, ", values ",
        static_cast<int>(values), adds ? ", adds" : "", ", then ", samples, " samples, seed ", seed);
  }

  template <class Spec>
  Spec with_windows(Spec spec) const {
    set_windows(spec, windows, same_padding);
    if (ceil) spec.set(ceil_mode);
    return spec;
  }
  AveragePoolSpec averages() const {
    AveragePoolSpec spec = with_windows(avg_pool3d());
    if (!count_padding) spec.set(exclude_padding);
    if (divisor > 0) spec.set(tessera::divisor(divisor));
    return spec;
  }
};

Case draw_case(std::int64_t ranks, bool largest) {
  Case c;
  c.largest = largest;
  c.count_padding = draw(0, 1, "padding counts") == 1;
  c.ceil = draw(0, 1, "ceil mode") == 1;
  c.same_padding = draw_one_in(6, "same padding");
  if (!largest && draw_one_in(4, "a divisor of its own")) c.divisor = draw(1, 9, "divisor");
  std::int64_t const space = draw(1, 3, "spatial axes");
  Counts const counts = draw_counts(ranks, space, ChannelCuts::yes);
  c.x = draw_shape(counts, space);
  if (space == 1 && draw(0, 1, "a long width") == 1) c.x.width = draw(1, 20, "width");
  if (draw_one_in(2, "about a cell per block"))
    for (std::int64_t i = 3 - space; i < 3; ++i) {
      AxisId const axis = space_in_order[static_cast<std::size_t>(i)];
      if (counts[axis] > 2) (i == 0 ? c.x.depth : i == 1 ? c.x.height : c.x.width) = counts[axis] + draw(0, 2, "more");
    }
  for (std::int64_t i = 3 - space; i < 3; ++i)
    c.windows[static_cast<std::size_t>(i)] =
        draw_pool_window(c.x[space_in_order[static_cast<std::size_t>(i)]], c.ceil, c.same_padding, largest);
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
  if (sizeof(T) == sizeof(float) && c.seed % 2 == 0) {
    HostTensor const start = random_tensor(c.x, c.seed + 2);
    expect_bits_of_one_rank(driver, spec, values_of(c, c.x, c.seed), random_tensor(c.oracle().output(c.x), c.seed + 1),
                            c.adds ? &start : nullptr);
  }
  if (c.input.blocks(AxisId::sample).balanced() && c.samples < c.x.sample) {
    check_batch(c, c.input.with_samples(c.samples), driver, c.seed + 10);
    check_batch(c, c.input, driver, c.seed + 20);
  }
}

template <class T>
void check(Case const& c, RankGrid<AnySplit> const& world) {
  RankGrid<AnySplit> const ranks(world, c.input.grid().counts());
  try {
    if (c.largest)
      check_spec<T>(c, ranks, c.with_windows(max_pool3d()));
    else
      check_spec<T>(c, ranks, c.averages());
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
        coverage.count("cut channels", cuts_channels(c.input), world.size() > 1);
        coverage.count("a window more in ceil mode",
                       c.ceil && c.oracle().output(c.x) != oracle::Pool{c.windows}.output(c.x));
        if (!largest) coverage.count("a divisor of its own", c.divisor > 0);
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

TEST_CASE("case 13: an average does not count what overhangs the padding: [1..5] in pairs ends in 5") {
  auto const ranks = world_ranks();
  Partition const input(ranks.grid(), {1, 1, 1, 5, 1});
  HostTensor x(input.shape());
  for (std::size_t i = 0; i < 5; ++i) x.values[i] = static_cast<double>(i + 1);
  auto const check = [&](auto const& spec, std::vector<double> const& expected) {
    Driver<double> driver(ranks, input, spec);
    driver.forward(input, x);
    HostTensor y({1, 1, 1, static_cast<std::int64_t>(expected.size()), 1});
    y.values = expected;
    together([&] { expect_owned("y", driver.y(), y, [](std::size_t) { return 0.0; }); });
  };
  check(avg_pool1d<2>(ceil_mode), {1.5, 3.5, 5.0});
  check(avg_pool1d<2>(ceil_mode, exclude_padding), {1.5, 3.5, 5.0});
  check(avg_pool1d<2>(ceil_mode, padding_high(1)), {1.5, 3.5, 2.5});  // padding does count
  check(avg_pool1d<2>(ceil_mode, divisor(1)), {3.0, 7.0, 5.0});
  check(avg_pool1d<2>(), {1.5, 3.5});
  check(max_pool1d<2>(ceil_mode), {2.0, 4.0, 5.0});
}

TEST_CASE("NaN passes through a max pool that doubles strides, on every decomposition") {
  auto const ranks = world_ranks();
  for (std::int64_t at = 0; at < 8; ++at) {
    Partition const input(ranks.grid(), {1, 1, 1, 8, 1});
    HostTensor x(input.shape()), y({1, 1, 1, 4, 1}), dy(y.shape), dx(input.shape());
    for (std::size_t i = 0; i < 8; ++i) x.values[i] = static_cast<double>(i);
    x.values[static_cast<std::size_t>(at)] = std::numeric_limits<double>::quiet_NaN();
    y.values = {1, 3, 5, 7};
    y.values[static_cast<std::size_t>(at / 2)] = std::numeric_limits<double>::quiet_NaN();
    dy.values = {1, 2, 3, 4};
    for (std::int64_t o = 0; o < 4; ++o)
      dx.values[static_cast<std::size_t>(o == at / 2 ? at : 2 * o + 1)] = static_cast<double>(o + 1);
    Driver<double> driver(ranks, input, max_pool1d<2>());
    driver.forward(input, x);
    driver.backward(dy);
    together([&] {
      expect_owned("y", driver.y(), y, [](std::size_t) { return 0.0; });
      expect_owned("dx", driver.dx(), dx, [](std::size_t) { return 0.0; });
    });
  }
}

TEST_CASE("an average pool and its gradient are adjoint") {
  auto const world = world_ranks();
  distributed_property(
      "<A x, y> = <x, A' y>",
      [&] {
        Case const c = draw_case(world.size(), false);
        check_adjoint(RankGrid<AnySplit>(world, c.input.grid().counts()), c.input, c.averages(), c.seed);
      },
      MPI_COMM_WORLD);
}

TEST_CASE("the gradient of a max pool is that of finite differences") {
  auto const ranks = world_ranks();
  Partition const input(ranks.grid(), {1, 3, 4, 5, 2});
  auto const spec = max_pool3d(kernel(2, 3, 3), stride(2, 1, 2), dilation(1, 1, 2), padding(1, 1, 1), ceil_mode);
  Driver<double> driver(ranks, input, spec);
  HostTensor x(input.shape()), dy = random_tensor(driver.layer().output(input).shape(), 3);
  for (std::size_t i = 0; i < x.values.size(); ++i)  // no two are closer than 0.01
    x.values[i] = 0.01 * static_cast<double>((i * 77) % x.values.size());
  auto const weighted_sum = [&] {
    driver.forward(input, x);
    double sum = 0.0;
    for_each_cell(driver.y().owned(), [&](auto n, auto d, auto h, auto w, auto c) {
      sum += driver.y()(n, d, h, w, c) * dy.at(n, d, h, w, c);
    });
    return ranks.world().all_reduce(sum);
  };
  HostTensor slopes(x.shape);
  double const step = 1e-3;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    double const middle = x.values[i];
    x.values[i] = middle + step;
    double const above = weighted_sum();
    x.values[i] = middle - step;
    slopes.values[i] = (above - weighted_sum()) / (2 * step);
    x.values[i] = middle;
  }
  driver.forward(input, x);
  driver.backward(dy);
  together([&] {
    expect_owned("dx", driver.dx(), slopes,
                 [&](std::size_t i) { return 1e-6 * std::max(1.0, std::abs(slopes.values[i])); });
  });
}

TEST_CASE("a pool is refused exactly if it has no output, or one without a cell, or too much padding") {
  int cases = 0, refused = 0, refused_for_dilation = 0, wrong = 0;
  auto const check = [&](Window const& w, std::int64_t n, bool ceil) {
    MaxPoolSpec spec = max_pool1d();
    spec.set(kernel(w.kernel));
    spec.set(stride(w.stride));
    spec.set(dilation(w.dilation));
    spec.set(padding_low(w.low));
    spec.set(padding_high(w.high));
    if (ceil) spec.set(ceil_mode);
    bool const good = 2 * w.low <= w.kernel && 2 * w.high <= w.kernel && is_sound_pool(w, n, ceil);
    ++cases;
    try {
      Shape const x{1, 1, 1, n, 1};
      std::int64_t const outputs = spec.op<double, Host>(x, "max_pool").reaches(x)[2].outputs;
      wrong += good && outputs == oracle::Pool{{Window{}, Window{}, w}, ceil}.outputs(2, n) ? 0 : 1;
    } catch (Error const& error) {
      wrong += good ? 1 : 0;
      ++refused;
      refused_for_dilation += std::string(error.what()).find("steps over all") != std::string::npos ? 1 : 0;
    }
  };
  Window w;
  for (w.kernel = 1; w.kernel <= 5; ++w.kernel)
    for (w.stride = 1; w.stride <= 4; ++w.stride)
      for (w.dilation = 1; w.dilation <= 3; ++w.dilation)
        for (w.low = 0; w.low <= (w.kernel + 1) / 2; ++w.low)
          for (w.high = 0; w.high <= (w.kernel + 1) / 2; ++w.high)
            for (std::int64_t n = 1; n <= 10; ++n)
              for (bool ceil : {false, true}) check(w, n, ceil);
  CHECK(wrong == 0);
  CHECK(cases > 10000);
  CHECK(refused > 2000);
  CHECK(refused_for_dilation > 20);
}

TEST_CASE("a pool refuses padding that would make empty windows, a dilated average, and a stride of 0") {
  auto const ranks = world_ranks();
  Partition const input(ranks.grid(), {1, 1, 1, 9, 1});
  auto const fails = [&](auto const& spec, char const* message) {
    CHECK_THROWS_WITH_AS(Driver<double>(ranks, input, spec), message, Error);
  };
  fails(max_pool1d<2>(padding(2)),
        "max_pool1: padding must be between 0 and half the kernel, so that every window holds a cell, but "
        "along width kernel 2 has padding 2 and 2");
  fails(max_pool1d<3>(dilation(2), same, stride(1)),
        "max_pool1: padding must be between 0 and half the kernel, so that every window holds a cell, but "
        "along width kernel 3 has padding 2 and 2");
  fails(avg_pool1d<3>(dilation(2)), "avg_pool1: a window must not be dilated, but along width the dilation is 2");
  fails(avg_pool1d<3>(stride(0)),
        "avg_pool1: kernel, stride and dilation must be at least 1, but along width they are 3, 0, 1");
  fails(max_pool1d<10>(),
        "max_pool1: the kernel must fit into the padded input, but along width it covers 10 cells of 9 + 0 + 0; use a "
        "smaller kernel or more padding");
  fails(max_pool1d<12>(ceil_mode, stride(3)),
        "max_pool1: the kernel may overhang the padded input by less than its stride, but along width it covers 12 "
        "cells of 9 + 0 + 0 with stride 3; use a smaller kernel or more padding");
  CHECK_NOTHROW(Driver<double>(ranks, input, max_pool1d<11>(ceil_mode, stride(3))));
  CHECK_THROWS_WITH_AS(avg_pool1d<2>(divisor(0)), "divisor: must be at least 1, it is 0", Error);
}

TEST_CASE("dilation that makes a window miss all cells is refused on every rank, naming axis and output") {
  auto const ranks = world_ranks();
  Partition const input(ranks.grid(), {1, 1, 1, 1, 1});
  CHECK_THROWS_WITH_AS(Driver<double>(ranks, input, max_pool1d<2>(dilation(2), padding(1), stride(1))),
                       "max_pool1: every window must hold a cell, but along width that of output 0 steps over all 1 "
                       "with kernel 2, stride 1, dilation 2, padding 1 and 1; use less dilation or less padding",
                       Error);
}
