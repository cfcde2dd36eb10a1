// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/layer/activation.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/host_tensor.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/oracle/pointwise.hpp"
#include "tessera/comm/rank_grid.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

enum class Kind { relu, leaky_relu, tanh, dropout };

struct Case {
  Kind kind = Kind::relu;
  double parameter = 0;  ///< slope, scale or rate
  Partition input;
  Pass pass;
  bool adds = false;
  std::uint64_t seed = 0;

  std::string text() const {
    return tessera::detail::text("activation ", static_cast<int>(kind), " (", parameter, ") of ", test::text(input),
                                 pass.mode == Mode::training ? ", training" : ", inference", ", pass seed ", pass.seed,
                                 " step ", pass.step, " first sample ", pass.first_sample, adds ? ", adds" : "",
                                 ", seed ", seed);
  }
};

struct Expected {
  HostTensor y, dx, y_error, dx_error;
};

/// The factor that dropout gives each cell.
HostTensor dropout_factors(Case const& c, Shape const& shape) {
  HostTensor factors(shape);
  std::uint64_t const key = random_stream(c.pass.seed, "dropout1").key;
  auto const sample = static_cast<std::uint64_t>(shape.volume() / shape.sample);
  for (std::size_t i = 0; i < factors.values.size(); ++i) {
    std::uint64_t const index = static_cast<std::uint64_t>(c.pass.first_sample) * sample + i;
    bool const kept = std::ldexp(static_cast<double>(oracle::random_word(key, c.pass.step, index)), -32) >= c.parameter;
    factors.values[i] = c.pass.mode == Mode::inference || c.parameter == 0 ? 1 : kept ? 1 / (1 - c.parameter) : 0;
  }
  return factors;
}

template <class T>
Expected expected_of(Case const& c, HostTensor const& x, HostTensor const& dy) {
  double const u = unit_roundoff<T>, p = static_cast<double>(static_cast<T>(c.parameter));
  auto const product = [](double a, double b) { return a * b; };
  HostTensor slope, y;
  HostTensor slope_error = oracle::cell_by_cell(x, [](double) { return 0.0; }), y_error = slope_error;
  switch (c.kind) {
    case Kind::relu:
      y = oracle::cell_by_cell(x, [](double v) { return v > 0 ? v : 0; });
      slope = oracle::cell_by_cell(x, [](double v) { return v > 0 ? 1.0 : 0.0; });
      break;
    case Kind::leaky_relu:
      y = oracle::cell_by_cell(x, [&](double v) { return v > 0 ? v : p * v; });
      slope = oracle::cell_by_cell(x, [&](double v) { return v > 0 ? 1.0 : p; });
      y_error = oracle::cell_by_cell(y, [&](double v) { return u * std::abs(v); });
      break;
    case Kind::tanh:
      y = oracle::cell_by_cell(x, [&](double v) { return p * std::tanh(v); });
      slope = oracle::cell_by_cell(x, [&](double v) { return p * (1 - std::tanh(v) * std::tanh(v)); });
      // The library's tanh is within 2 ulp (4 u); its square, and the difference from 1, carry that on.
      y_error = oracle::cell_by_cell(y, [&](double v) { return 6 * u * std::abs(v); });
      slope_error = oracle::cell_by_cell(x, [&](double) { return std::abs(p) * 24 * u; });
      break;
    case Kind::dropout:
      slope = dropout_factors(c, x.shape);
      y = oracle::cell_by_cell(x, slope, product);
      y_error = oracle::cell_by_cell(y, [&](double v) { return 3 * u * std::abs(v); });
      slope_error = oracle::cell_by_cell(slope, [&](double v) { return u * std::abs(v); });
      break;
  }
  Expected e{y, oracle::cell_by_cell(slope, dy, product), y_error, {}};
  e.dx_error = oracle::cell_by_cell(slope_error, dy, [](double s, double g) { return s * std::abs(g); });
  e.dx_error = oracle::cell_by_cell(e.dx_error, e.dx, [&](double s, double d) { return s + 2 * u * std::abs(d); });
  return e;
}

template <class T, class Spec>
void check_spec(Case const& c, RankGrid<AnySplit> const& ranks, Spec const& spec) {
  Shape const shape = c.input.shape();
  Driver<T> driver(ranks, c.input, spec);
  HostTensor x = random_tensor(shape, c.seed);
  HostTensor const dy = random_tensor(shape, c.seed + 1), start = random_tensor(shape, c.seed + 2);
  for (double& value : x.values) value *= 4;
  for (std::size_t i = 0; i < x.values.size(); i += 5) x.values[i] = 0;  // derivatives at 0 are as in PyTorch
  driver.forward(c.input, x, c.pass);
  driver.backward(dy, c.pass, c.adds ? &start : nullptr);
  together([&] {
    driver.expect_clean();
    Expected e = expected_of<T>(c, x, dy);
    if (c.adds)
      for (std::size_t i = 0; i < x.values.size(); ++i) {
        e.dx_error.values[i] += 2 * unit_roundoff<T> * (std::abs(start.values[i]) + std::abs(e.dx.values[i]));
        e.dx.values[i] += start.values[i];
      }
    expect_owned("y", driver.y(), e.y, [&](std::size_t i) { return e.y_error.values[i]; });
    expect_owned("dx", driver.dx(), e.dx, [&](std::size_t i) { return e.dx_error.values[i]; });
  });
}

template <class T>
void check(Case const& c, RankGrid<AnySplit> const& world) {
  RankGrid<AnySplit> const ranks(world, c.input.grid().counts());
  try {
    switch (c.kind) {
      case Kind::relu: return check_spec<T>(c, ranks, relu());
      case Kind::leaky_relu: return check_spec<T>(c, ranks, leaky_relu(c.parameter));
      case Kind::tanh: return check_spec<T>(c, ranks, scaled_tanh(c.parameter));
      case Kind::dropout: return check_spec<T>(c, ranks, dropout(c.parameter));
    }
  } catch (Error const& error) {
    throw Error(error.what() + std::string("\n  in ") + c.text());
  }
}

Case draw_case(std::int64_t ranks, Kind kind) {
  Case c;
  c.kind = kind;
  std::int64_t const space = draw(1, 3, "spatial axes");
  Counts const counts = draw_counts(ranks, space);
  Shape shape = draw_shape(counts, space);
  while (shape.volume() > 6000) (shape.sample > shape.channel ? shape.sample : shape.channel) -= 1;
  c.input = draw_partition(shape, counts);
  switch (kind) {
    case Kind::relu: break;
    case Kind::leaky_relu: c.parameter = static_cast<double>(draw(0, 3, "slope in eighths")) / 8 + 0.01; break;
    case Kind::tanh: c.parameter = static_cast<double>(draw(1, 20, "scale in tenths")) / 10; break;
    case Kind::dropout: c.parameter = static_cast<double>(draw(0, 10, "rate in tenths")) / 10; break;
  }
  c.pass.mode = draw_one_in(4, "inference") ? Mode::inference : Mode::training;
  c.pass.seed = static_cast<std::uint64_t>(draw(0, 1000, "pass seed"));
  c.pass.step = static_cast<std::uint64_t>(draw(0, 1000, "step"));
  c.pass.first_sample = draw_one_in(3, "a later micro-batch") ? draw(1, 9, "first sample") : 0;
  c.adds = draw(0, 1, "adds") == 1;
  c.seed = static_cast<std::uint64_t>(draw(0, 1'000'000, "seed"));
  return c;
}

void distributed_equals_serial(std::string const& name, Kind kind) {
  poison_fresh_memory();
  auto const world = world_ranks();
  Coverage coverage(name, world.size());
  distributed_property(
      name + ": distributed equals serial",
      [&] {
        Case const c = draw_case(world.size(), kind);
        coverage.begin_case();
        coverage.count_decomposition(c.input, c.input);
        check<double>(c, world);
        check<float>(c, world);
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}

Case along_width(Kind kind, double parameter, Shape const& shape) {
  Case c;
  c.kind = kind;
  c.parameter = parameter;
  c.input = Partition(Grid(Counts{.width = world_ranks().size()}), shape);
  return c;
}

}  // namespace

TEST_CASE("relu: forward and gradient equal the serial ones") { distributed_equals_serial("relu", Kind::relu); }
TEST_CASE("leaky relu: forward and gradient equal the serial ones") {
  distributed_equals_serial("leaky relu", Kind::leaky_relu);
}
TEST_CASE("scaled tanh: forward and gradient equal the serial ones") {
  distributed_equals_serial("scaled tanh", Kind::tanh);
}
TEST_CASE("dropout: the mask is that of one rank, whatever the decomposition (case 30)") {
  distributed_equals_serial("dropout", Kind::dropout);
}

TEST_CASE("the oracle's random words are the published ones") {
  CHECK(oracle::philox({0, 0, 0, 0}, {0, 0}) ==
        std::vector<std::uint32_t>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  CHECK(oracle::philox({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu}) ==
        std::vector<std::uint32_t>{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
  CHECK(oracle::philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}) ==
        std::vector<std::uint32_t>{0xd16cfe09u, 0x94fdcceb, 0x5001e420u, 0x24126ea1u});
}

TEST_CASE("dropout keeps the share that it should, and other steps, seeds and samples keep other cells") {
  auto const world = world_ranks();
  for (double rate : {0.1, 0.5, 0.8}) {
    Case c = along_width(Kind::dropout, rate, {4, 8, 8, 16, 8});
    RankGrid<AnySplit> const ranks(world, c.input.grid().counts());
    Driver<float> driver(ranks, c.input, dropout(rate));
    HostTensor const ones = oracle::cell_by_cell(HostTensor(c.input.shape()), [](double) { return 1.0; });
    auto const mask = [&](Pass const& pass) {
      driver.forward(c.input, ones, pass);
      std::vector<int> kept(ones.values.size());
      for_each_cell(driver.y().owned(), [&](auto n, auto d, auto h, auto w, auto ch) {
        kept[ones.index(n, d, h, w, ch)] = driver.y()(n, d, h, w, ch) != 0 ? 1 : 0;
      });
      world.world().all_reduce(kept.data(), static_cast<std::int64_t>(kept.size()));
      return kept;
    };
    auto const share = [](std::vector<int> const& kept) {
      double sum = 0;
      for (int const one : kept) sum += one;
      return sum / static_cast<double>(kept.size());
    };
    auto const agreement = [&](std::vector<int> const& a, std::vector<int> const& b) {
      std::vector<int> equal(a.size());
      for (std::size_t i = 0; i < a.size(); ++i) equal[i] = a[i] == b[i] ? 1 : 0;
      return share(equal);
    };
    // Six standard deviations of a share of this many independent cells.
    double const spread = 6 * std::sqrt(rate * (1 - rate) / static_cast<double>(ones.values.size()));
    double const by_chance = rate * rate + (1 - rate) * (1 - rate);
    auto const first = mask({});
    CHECK(std::abs(share(first) - (1 - rate)) < spread);
    CHECK(mask({}) == first);
    Pass later, other, shifted;
    later.step = 1;
    other.seed = 1;
    shifted.first_sample = 1;
    for (Pass const& pass : {later, other, shifted}) CHECK(std::abs(agreement(first, mask(pass)) - by_chance) < 0.05);
  }
}

TEST_CASE("dropout at the ends: a rate of 0 changes nothing, a rate of 1 leaves zeros") {
  for (double rate : {0.0, 1.0}) {
    Case const c = along_width(Kind::dropout, rate, {2, 1, 3, 9, 3});
    check<double>(c, world_ranks());
    check<float>(c, world_ranks());
  }
}

TEST_CASE("a NaN goes through activations, forward and backward, as in PyTorch") {
  auto const ranks = world_ranks();
  Partition const input(ranks.grid(), {1, 1, 1, ranks.size(), 1});
  HostTensor x(input.shape()), dy(input.shape());
  for (double& value : x.values) value = std::numeric_limits<double>::quiet_NaN();
  for (double& value : dy.values) value = 3.0;
  auto const passes_on = [&](auto const& spec, double expected) {
    Driver<double> driver(ranks, input, spec);
    driver.forward(input, x);
    driver.backward(dy);
    CHECK(std::isnan(driver.y()(0, 0, 0, ranks.rank(), 0)));
    CHECK(near(driver.dx()(0, 0, 0, ranks.rank(), 0), expected, 0.0));
  };
  passes_on(relu(), 3.0);
  passes_on(leaky_relu(0.5), 1.5);
  passes_on(scaled_tanh(), std::numeric_limits<double>::quiet_NaN());
}
