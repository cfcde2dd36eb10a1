// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/layer/upsample.hpp"

#include <doctest/doctest.h>

#include <cmath>
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

using Rule = op::Resample;

oracle::AxisMap axis_map(Rule rule, std::int64_t n, std::int64_t m) {
  switch (rule) {
    case Rule::nearest: return oracle::nearest_axis(n, m, false);
    case Rule::nearest_exact: return oracle::nearest_axis(n, m, true);
    case Rule::linear: return oracle::linear_axis(n, m, false);
    case Rule::linear_aligned: return oracle::linear_axis(n, m, true);
  }
  return {};
}

/// Some cases by whole factors, where all axes have one.
template <class Spec>
Spec sized(SeparableCase const& c, Spec spec) {
  std::int64_t factor[3] = {1, 1, 1};
  bool whole = c.seed % 2 == 0;
  for (std::size_t i = 0; i < 3; ++i) {
    factor[i] = c.map.axis[i].m / c.map.axis[i].n;
    whole = whole && c.map.axis[i].m % c.map.axis[i].n == 0;
  }
  auto const& [d, h, w] = c.outputs;
  if (c.space == 3)
    whole ? spec.set(scale(factor[0], factor[1], factor[2])) : spec.set(tessera::size(d, h, w));
  else if (c.space == 2)
    whole ? spec.set(scale(factor[1], factor[2])) : spec.set(tessera::size(h, w));
  else
    whole ? spec.set(scale(factor[2])) : spec.set(tessera::size(w));
  return spec;
}

NearestUpsampleSpec nearest_spec(SeparableCase const& c, Rule rule) {
  auto spec = sized(c, c.space == 3   ? upsample_nearest3d()
                       : c.space == 2 ? upsample_nearest2d()
                                      : upsample_nearest1d());
  if (rule == Rule::nearest_exact) spec.set(nearest_exact);
  return spec;
}
LinearUpsampleSpec linear_spec(SeparableCase const& c, Rule rule) {
  auto spec = sized(c, c.space == 3 ? upsample_linear3d() : c.space == 2 ? upsample_linear2d() : upsample_linear1d());
  if (rule == Rule::linear_aligned) spec.set(align_corners);
  return spec;
}

/// Three weights are rounded, and their product twice in double and once to T; then products, and a sum. A nearest cell
/// is copied, and its gradient a sum of at most all its outputs.
template <class T>
SeparableBounds bounds(SeparableCase const& c, bool linear) {
  if (linear) return {gamma_n<T>(c.map.terms() + 7), gamma_n<T>(c.map.readers() + 7)};
  return {0.0, gamma_n<T>(c.map.readers())};
}

SeparableCase draw_case(std::int64_t ranks, Rule rule) {
  return draw_separable(ranks, false, [rule](std::int64_t n, std::int64_t m) { return axis_map(rule, n, m); });
}

template <class T>
void distributed_equals_serial(std::string const& name, bool linear) {
  poison_fresh_memory();
  auto const world = world_ranks();
  Coverage coverage(name, world.size());
  distributed_property(
      name + ": distributed equals serial",
      [&] {
        bool const second = draw(0, 1, "exact or aligned") == 1;
        Rule const rule =
            linear ? (second ? Rule::linear_aligned : Rule::linear) : (second ? Rule::nearest_exact : Rule::nearest);
        SeparableCase const c = draw_case(world.size(), rule);
        count_separable(coverage, c, world.size());
        coverage.count(linear ? "corners aligned" : "nearest exact", second);
        if (linear)
          check_separable<T>(c, world, linear_spec(c, rule), bounds<T>(c, linear));
        else
          check_separable<T>(c, world, nearest_spec(c, rule), bounds<T>(c, linear));
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}

/// One axis under every decomposition of this test: y, bit by bit.
template <class T, class Spec>
void expect_line(Spec const& spec, std::vector<double> const& cells, std::vector<double> const& expected) {
  auto const ranks = world_ranks();
  Partition const input(ranks.grid(), {1, 1, 1, static_cast<std::int64_t>(cells.size()), 1});
  HostTensor x(input.shape()), y({1, 1, 1, static_cast<std::int64_t>(expected.size()), 1});
  x.values = cells;
  y.values = expected;
  Driver<T> driver(ranks, input, spec);
  driver.forward(input, x);
  together([&] {
    expect_owned("y", driver.y(), y, [](std::size_t) { return 0.0; });
    for_each_cell(driver.y().owned(), [&](auto n, auto d, auto h, auto w, auto c) {
      expect(std::signbit(driver.y()(n, d, h, w, c)) == std::signbit(y.at(n, d, h, w, c)), "the sign of a zero");
    });
  });
}

}  // namespace

TEST_CASE("upsample nearest in double: forward and gradient equal the serial ones") {
  distributed_equals_serial<double>("upsample nearest in double", false);
}
TEST_CASE("upsample nearest in float: forward and gradient equal the serial ones") {
  distributed_equals_serial<float>("upsample nearest in float", false);
}
TEST_CASE("upsample linear in double: forward and gradient equal the serial ones") {
  distributed_equals_serial<double>("upsample linear in double", true);
}
TEST_CASE("upsample linear in float: forward and gradient equal the serial ones") {
  distributed_equals_serial<float>("upsample linear in float", true);
}

TEST_CASE("upsampling and its gradient are adjoint") {
  auto const world = world_ranks();
  distributed_property(
      "<A x, y> = <x, A' y>",
      [&] {
        auto const rule = static_cast<Rule>(draw(0, 3, "rule"));
        SeparableCase const c = draw_case(world.size(), rule);
        RankGrid<AnySplit> const ranks(world, c.input.grid().counts());
        if (rule == Rule::nearest || rule == Rule::nearest_exact)
          check_adjoint(ranks, c.input, nearest_spec(c, rule), c.seed);
        else
          check_adjoint(ranks, c.input, linear_spec(c, rule), c.seed);
      },
      MPI_COMM_WORLD);
}

TEST_CASE("each axis: what outputs need and who reads a cell, for all small extents, cell by cell") {
  int wrong = 0;
  for (Rule rule : {Rule::nearest, Rule::nearest_exact, Rule::linear, Rule::linear_aligned})
    for (std::int64_t n = 1; n <= 12; ++n)
      for (std::int64_t m = 1; m <= 14; ++m) {
        op::ResampledAxis const axis{rule, n, m};
        oracle::AxisMap const map = axis_map(rule, n, m);
        for (std::int64_t a = 0; a < m; ++a)
          for (std::int64_t b = a + 1; b <= m; ++b) {
            Interval needed{};
            for (std::int64_t o = a; o < b; ++o)
              for (std::int64_t i = 0; i < n; ++i)
                if (map.at(o, i) != 0) needed = hull(needed, Interval{i, i + 1});
            wrong += axis.required({a, b}) == needed ? 0 : 1;
          }
        for (std::int64_t a = 0; a < n; ++a)
          for (std::int64_t b = a + 1; b <= n; ++b) {
            Interval readers{};
            for (std::int64_t i = a; i < b; ++i)
              for (std::int64_t o = 0; o < m; ++o)
                if (map.at(o, i) != 0) readers = hull(readers, Interval{o, o + 1});
            Interval const touch = axis.touch({a, b});
            wrong += touch.contains(readers) && Interval{0, m}.contains(touch) ? 0 : 1;
            // A neighbour of weight zero on either side may be there too, all of them where m = 1 or n = 1.
            bool const loose = touch.size() <= readers.size() + 2 || n == 1;
            wrong += loose ? 0 : 1;
          }
      }
  CHECK(wrong == 0);
}

TEST_CASE("case 17: places are exact for extents beyond 32 bits") {
  std::int64_t const n = 2'147'483'659, m = 3 * n - 1;
  for (std::int64_t o : {std::int64_t{0}, n / 2, n - 1, m - 1}) {
    op::ResampledAxis const nearest{Rule::nearest, 1'000'003, 2'000'000'011};
    std::int64_t const p = o % 2'000'000'011;
    __extension__ using Wide = __int128;
    CHECK(nearest.place(p).cell == static_cast<std::int64_t>(Wide(p) * 1'000'003 / 2'000'000'011));
    op::ResampledAxis const linear{Rule::linear, n / 2, m / 2};
    std::int64_t const q = o / 2;
    Wide const above = Wide(2 * q + 1) * (n / 2) - m / 2;
    CHECK(linear.place(q).cell == static_cast<std::int64_t>(above < 0 ? 0 : above / (2 * (m / 2))));
  }
}

TEST_CASE("upsampling by hand: factors, other sizes, smaller ones, one cell") {
  double const third = 1.0 / 3.0;
  expect_line<double>(upsample_nearest1d(scale(2)), {1, 2, 3}, {1, 1, 2, 2, 3, 3});
  expect_line<double>(upsample_nearest1d(tessera::size(2)), {1, 2, 3, 4, 5}, {1, 3});
  expect_line<double>(upsample_nearest1d(tessera::size(2), nearest_exact), {1, 2, 3, 4, 5}, {2, 4});
  expect_line<double>(upsample_nearest1d(tessera::size(5), nearest_exact), {1, 2}, {1, 1, 2, 2, 2});
  expect_line<double>(upsample_linear1d(scale(2)), {0, 1}, {0, 0.25, 0.75, 1});
  expect_line<double>(upsample_linear1d(tessera::size(4), align_corners), {0, 3}, {0, 3 * third, 3 * (1 - third), 3});
  expect_line<double>(upsample_linear1d(tessera::size(1), align_corners), {5, 7, 9}, {5});
  expect_line<double>(upsample_linear1d(tessera::size(1)), {5, 7, 9}, {7});
  expect_line<double>(upsample_linear1d(tessera::size(3)), {5}, {5, 5, 5});
  expect_line<double>(upsample_linear1d(tessera::size(3), align_corners), {5}, {5, 5, 5});
}

TEST_CASE("upsampling keeps the bits of cells that it copies, and NaN stays with the outputs that take of it") {
  double const nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  std::vector<double> const cells{-0.0, inf, 2, nan, -inf, 0.0};
  for (auto const& spec : {upsample_linear1d(scale(1)), upsample_linear1d(scale(1), align_corners)}) {
    expect_line<double>(spec, {-0.0, inf, 2, -inf, 0.0}, {-0.0, inf, 2, -inf, 0.0});
    expect_line<float>(spec, {-0.0, inf, 2, -inf, 0.0}, {-0.0, inf, 2, -inf, 0.0});
  }
  expect_line<float>(upsample_nearest1d(scale(2)), {-0.0, inf, -3}, {-0.0, -0.0, inf, inf, -3, -3});
  // With corners aligned, every second one of 11 outputs lies on a cell.
  auto const ranks = world_ranks();
  Partition const input(ranks.grid(), {1, 1, 1, 6, 1});
  HostTensor x(input.shape());
  x.values = cells;
  Driver<double> driver(ranks, input, upsample_linear1d(tessera::size(11), align_corners));
  driver.forward(input, x);
  together([&] {
    HostTensor y({1, 1, 1, 11, 1});
    y.values = {-0.0, inf, inf, inf, 2, nan, nan, nan, -inf, -inf, 0.0};
    expect_owned("y", driver.y(), y, [](std::size_t) { return 0.0; });
  });
}

TEST_CASE("whole numbers: 6 cells to 74, where a factor in float takes the wrong cell") {
  std::vector<double> cells{0, 1, 2, 3, 4, 5}, expected;
  for (int o = 0; o < 74; ++o) expected.push_back(o * 6 / 74);
  expect_line<float>(upsample_nearest1d(tessera::size(74)), cells, expected);
}

TEST_CASE("upsampling refuses what has no meaning") {
  auto const ranks = world_ranks();
  Partition const input(ranks.grid(), {1, 1, 4, 4, 1});
  auto const fails = [&](auto const& spec, char const* message) {
    CHECK_THROWS_WITH_AS(Driver<double>(ranks, input, spec), message, Error);
  };
  fails(upsample_nearest2d(), "upsample_nearest1: needs either size or scale, and not both");
  fails(upsample_linear2d(scale(2), tessera::size(8)), "upsample_linear1: needs either size or scale, and not both");
  fails(upsample_linear2d(tessera::size(8, 0)),
        "upsample_linear1: size and scale must be at least 1, but along width the output would have 0 cells");
  fails(upsample_nearest2d(scale(-1)),
        "upsample_nearest1: size and scale must be at least 1, but along height the output would have -4 cells");
  fails(upsample_nearest2d(tessera::size(8, 8, 8)),
        "size: takes one number, or one per spatial axis (2), but was given 3");
}
