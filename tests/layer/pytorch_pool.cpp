// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Pools and upsampling against PyTorch (tests/fixtures/make.py), in double and float, on 1 rank and on 2 x 2.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "support/fixture.hpp"
#include "support/pytorch.hpp"
#include "tessera/layer/adaptive_pool.hpp"
#include "tessera/layer/pool.hpp"
#include "tessera/layer/upsample.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Sets what max and average pools have in common.
template <class Spec>
void set_pool(Spec& spec, FixtureCase const& c) {
  set_window(spec, c);
  set_each(
      spec, [](auto... n) { return padding(n...); }, c["padding"]);
  if (c.number("ceil") != 0.0) spec.set(ceil_mode);
}

template <class T>
void check_max(FixtureCase const& c, RankGrid<All> const& ranks) {
  std::size_t const rank = c["kernel"].values.size();
  MaxPoolSpec spec = rank == 1 ? max_pool1d() : rank == 2 ? max_pool2d() : max_pool3d();
  set_pool(spec, c);
  set_each(
      spec, [](auto... n) { return dilation(n...); }, c["dilation"]);
  Driven<T> layer(ranks, c["x"], spec);
  layer.forward(c["x"]).backward(c["dy"]);
  if constexpr (in_double<T>) {
    check_norm_wise("y", layer.y(), c["y"]);
    check_norm_wise("dx", layer.dx(), c["dx"]);
  } else {  // rounding to float keeps the order of cells, and no two of these become equal: the winners are the same
    Driven<double> most(ranks, c["x"], spec);
    most.forward(c["x"]).backward(c["dy"].magnitude());
    check_roundings("y in float", layer.y(), c["y"], c["y"].magnitude().values, 1);
    check_roundings("dx in float", layer.dx(), c["dx"], most.dx(), product(c["kernel"].whole()) + 1);
  }
}

template <class T>
void check_average(FixtureCase const& c, RankGrid<All> const& ranks) {
  std::size_t const rank = c["kernel"].values.size();
  AveragePoolSpec spec = rank == 1 ? avg_pool1d() : rank == 2 ? avg_pool2d() : avg_pool3d();
  set_pool(spec, c);
  if (c.number("count_padding") == 0.0) spec.set(exclude_padding);
  if (c.has("divisor")) spec.set(divisor(static_cast<std::int64_t>(c.number("divisor"))));
  double const taps = product(c["kernel"].whole());
  check_linear<T>(c, ranks, spec, taps, taps, 0);
}

/// The most terms of one sum, where `each` of so many outputs per input along an axis are read, give or take two.
double most_terms(std::vector<std::int64_t> const& from, std::vector<std::int64_t> const& to) {
  double terms = 1.0;
  for (std::size_t a = 2; a < from.size(); ++a)
    terms *= 2.0 * std::ceil(static_cast<double>(to[a]) / static_cast<double>(from[a])) + 2.0;
  return terms;
}

template <class T, class Spec>
void check_to_size(FixtureCase const& c, RankGrid<All> const& ranks, Spec const& spec) {
  auto const &x = c["x"].shape, &y = c["y"].shape;
  check_linear<T>(c, ranks, spec, most_terms(y, x), most_terms(x, y), 0);
}

}  // namespace

TEST_CASE("max pools with dilation and averages with a divisor agree with PyTorch, in ceil mode too") {
  std::map<std::string, int> seen;
  for_each_case("pool_modes", [&](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
    ++seen[c.kind];
    if (c.kind == "max")
      check_max<decltype(t)>(c, ranks);
    else
      check_average<decltype(t)>(c, ranks);
  });
  CHECK(seen["max"] >= 2 * 20);
  CHECK(seen["average"] >= 2 * 20);
}

TEST_CASE("adaptive and global average pools agree with PyTorch") {
  for_each_case("adaptive_pool", [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
    auto const m = c["outputs"].whole();
    if (c.kind == "global")
      check_to_size<decltype(t)>(c, ranks, global_avg_pool());
    else
      check_to_size<decltype(t)>(c, ranks,
                                 m.size() == 1   ? adaptive_avg_pool1d(m[0])
                                 : m.size() == 2 ? adaptive_avg_pool2d({m[0], m[1]})
                                                 : adaptive_avg_pool3d({m[0], m[1], m[2]}));
  });
}

TEST_CASE("upsampling agrees with PyTorch") {
  for_each_case("upsample", [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
    std::size_t const rank = c["size"].values.size();
    auto const to_size = [](auto... n) { return tessera::size(n...); };
    if (c.kind.starts_with("nearest")) {
      auto spec = rank == 1 ? upsample_nearest1d() : rank == 2 ? upsample_nearest2d() : upsample_nearest3d();
      set_each(spec, to_size, c["size"]);
      if (c.kind == "nearest-exact") spec.set(nearest_exact);
      check_to_size<decltype(t)>(c, ranks, spec);
    } else {
      auto spec = rank == 1 ? upsample_linear1d() : rank == 2 ? upsample_linear2d() : upsample_linear3d();
      set_each(spec, to_size, c["size"]);
      if (c.kind == "aligned") spec.set(align_corners);
      check_to_size<decltype(t)>(c, ranks, spec);
    }
  });
}
