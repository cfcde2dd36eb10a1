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
#include "support/finite_differences.hpp"
#include "support/host_tensor.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/oracle/pointwise.hpp"
#include "tessera/comm/rank_grid.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

enum class Kind { relu, leaky_relu, tanh, dropout, sigmoid, silu, elu, gelu, gelu_tanh, prelu, shared_prelu };

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

/// A function and its derivative at one x, and how far rounding may move them.
struct Curve {
  long double y = 0, slope = 0;
  double y_error = 0, slope_error = 0;
};

/// exp, expm1 and erfc of the library are within 5 units in the last place, 10 roundings; u is one rounding.
Curve curve(Kind kind, long double x, long double alpha, double u) {
  long double const s = 1 / (1 + std::exp(-x)), r = 1 / (1 + std::exp(x));
  double const far = static_cast<double>(std::abs(x));
  // The error of a factor's argument, times the factor's logarithmic derivative, is the factor's relative error.
  auto const of = [&](long double y, double relative) { return u * relative * static_cast<double>(std::abs(y)); };
  switch (kind) {
    case Kind::sigmoid:  // the slope is y (1 - y)
      return {s, s * r, of(s, 13), of(s * r, 16) + of(s, 14)};
    case Kind::silu: return {x * s, s + x * s * r, of(x * s, 14), of(s, 15) + of(x * s * r, 29)};
    case Kind::elu:
      if (x > 0) return {x, 1, 0, 0};
      return {alpha * std::expm1(x), alpha * std::exp(x), of(alpha * std::expm1(x), 12), of(alpha * std::exp(x), 12)};
    case Kind::gelu: {  // |z erfc'(z) / erfc(z)| <= 2 z^2 + 2 where z = -x / sqrt(2), which has 2 roundings
      long double const phi = std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846264L),
                        big = std::erfc(-x / std::sqrt(2.0L)) / 2;
      double const tail = 16 + 2 * far * far;
      return {x * big, big + x * phi, of(x * big, tail), of(big, tail) + of(x * phi, 15 + 2 * far * far)};
    }
    case Kind::gelu_tanh: {
      long double const k = 2 * std::sqrt(2 / 3.14159265358979323846264L), a = k * (x + 0.044715L * x * x * x),
                        inner = k * (1 + 3 * 0.044715L * x * x), p = 1 / (1 + std::exp(-a)), q = 1 / (1 + std::exp(a));
      double const moved = 8 * static_cast<double>(std::abs(a));
      return {x * p, p + x * p * q * inner, of(x * p, 14 + moved),
              of(p, 15 + moved) + of(x * p * q * inner, 36 + 2 * moved)};
    }
    default: break;
  }
  return {};
}

std::vector<double> slopes_of(Case const& c) {
  return random_values(c.kind == Kind::shared_prelu ? 1 : c.input.shape().channel, c.seed + 5);
}

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
    case Kind::prelu:
    case Kind::shared_prelu: {
      std::vector<double> const slopes = slopes_of(c);
      slope = y = x;
      for (std::size_t i = 0; i < x.values.size(); ++i) {
        double& a = slope.values[i];
        a = x.values[i] > 0 ? 1.0 : slopes[i % static_cast<std::size_t>(x.shape.channel) % slopes.size()];
        y.values[i] *= a;
        y_error.values[i] = u * std::abs(y.values[i]);
      }
      break;
    }
    case Kind::sigmoid:
    case Kind::silu:
    case Kind::elu:
    case Kind::gelu:
    case Kind::gelu_tanh:
      slope = y = x;
      for (std::size_t i = 0; i < x.values.size(); ++i) {
        Curve const f = curve(c.kind, static_cast<long double>(x.values[i]), static_cast<long double>(p), u);
        y.values[i] = static_cast<double>(f.y);
        slope.values[i] = static_cast<double>(f.slope);
        y_error.values[i] = f.y_error + u * std::abs(y.values[i]);
        slope_error.values[i] = f.slope_error + u * std::abs(slope.values[i]);
      }
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
  bool const learns = c.kind == Kind::prelu || c.kind == Kind::shared_prelu;
  if (learns) driver.set(".weight", slopes_of(c));
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
    if (!learns) return;
    std::vector<double> gradient(slopes_of(c).size(), 0.0), error = gradient;
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      std::size_t const at = i % static_cast<std::size_t>(shape.channel) % gradient.size();
      gradient[at] += x.values[i] > 0 ? 0 : x.values[i] * dy.values[i];
      error[at] += x.values[i] > 0 ? 0 : std::abs(x.values[i] * dy.values[i]);
    }
    double const terms = static_cast<double>(x.values.size() / gradient.size());
    for (double& bound : error)  // sums in double here and there, then one rounding per rank and for each sum of ranks
      bound *= 2 * (terms + 2) * unit_roundoff<double> + static_cast<double>(ranks.size() + 1) * unit_roundoff<T>;
    expect_values("dslope", driver.gradient(".weight"), gradient, error);
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
      case Kind::sigmoid: return check_spec<T>(c, ranks, sigmoid());
      case Kind::silu: return check_spec<T>(c, ranks, silu());
      case Kind::elu: return check_spec<T>(c, ranks, elu(c.parameter));
      case Kind::gelu: return check_spec<T>(c, ranks, gelu());
      case Kind::gelu_tanh: return check_spec<T>(c, ranks, gelu(tanh_form));
      case Kind::prelu: return check_spec<T>(c, ranks, prelu());
      case Kind::shared_prelu: return check_spec<T>(c, ranks, prelu({.shared = true}));
    }
  } catch (Error const& error) {
    throw Error(error.what() + std::string("\n  in ") + c.text());
  }
}

Case draw_case(std::int64_t ranks, Kind kind) {
  Case c;
  c.kind = kind;
  std::int64_t const space = draw(1, 3, "spatial axes");
  Counts const counts = draw_counts(ranks, space, ChannelCuts::yes);
  Shape shape = draw_shape(counts, space);
  shrink(shape, 3000);
  c.input = draw_partition(shape, counts);
  switch (kind) {
    case Kind::elu: c.parameter = static_cast<double>(draw(-2, 8, "alpha in quarters")) / 4; break;
    case Kind::leaky_relu: c.parameter = static_cast<double>(draw(0, 3, "slope in eighths")) / 8 + 0.01; break;
    case Kind::tanh: c.parameter = static_cast<double>(draw(1, 20, "scale in tenths")) / 10; break;
    case Kind::dropout: c.parameter = static_cast<double>(draw(0, 10, "rate in tenths")) / 10; break;
    default: break;
  }
  c.pass.mode = draw_one_in(4, "inference") ? Mode::inference : Mode::training;
  c.pass.seed = static_cast<std::uint64_t>(draw(0, 1000, "pass seed"));
  c.pass.step = static_cast<std::uint64_t>(draw(0, 1000, "step"));
  c.pass.first_sample = draw_one_in(3, "a later micro-batch") ? draw(1, 9, "first sample") : 0;
  c.adds = draw(0, 1, "adds") == 1;
  c.seed = static_cast<std::uint64_t>(draw(0, 1'000'000, "seed"));
  return c;
}

void distributed_equals_serial(std::string const& name, std::vector<Kind> const& kinds) {
  poison_fresh_memory();
  auto const world = world_ranks();
  Coverage coverage(name, world.size());
  distributed_property(
      name + ": distributed equals serial",
      [&] {
        auto const last = static_cast<std::int64_t>(kinds.size()) - 1;
        Kind const kind = kinds[static_cast<std::size_t>(last > 0 ? draw(0, last, "function") : 0)];
        Case const c = draw_case(world.size(), kind);
        coverage.begin_case();
        coverage.count_decomposition(c.input, c.input);
        for (std::size_t i = 0; last > 0 && i < kinds.size(); ++i)
          coverage.count("function " + std::to_string(i), kind == kinds[i]);
        coverage.count("channels cut", cuts_channels(c.input), world.size() > 1);
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

TEST_CASE("relu: forward and gradient equal the serial ones") { distributed_equals_serial("relu", {Kind::relu}); }
TEST_CASE("leaky relu: forward and gradient equal the serial ones") {
  distributed_equals_serial("leaky relu", {Kind::leaky_relu});
}
TEST_CASE("scaled tanh: forward and gradient equal the serial ones") {
  distributed_equals_serial("scaled tanh", {Kind::tanh});
}
TEST_CASE("sigmoid, silu, elu and gelu: forward and gradient equal the serial ones") {
  distributed_equals_serial("sigmoid, silu, elu or gelu",
                            {Kind::sigmoid, Kind::silu, Kind::elu, Kind::gelu, Kind::gelu_tanh});
}
TEST_CASE("prelu: forward and every gradient equal the serial ones") {
  distributed_equals_serial("prelu", {Kind::prelu, Kind::shared_prelu});
}
TEST_CASE("dropout: the mask is that of one rank, whatever the decomposition (case 30)") {
  distributed_equals_serial("dropout", {Kind::dropout});
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
  auto const nan = std::numeric_limits<double>::quiet_NaN();
  passes_on(sigmoid(), nan);
  passes_on(silu(), nan);
  passes_on(elu(), nan);
  passes_on(gelu(), nan);
  passes_on(gelu(tanh_form), nan);
  passes_on(prelu(), 0.75);
}

TEST_CASE("activations reach their limits at large and at infinite x, forward and backward") {
  auto const ranks = world_ranks();
  auto const reaches = [&](auto t, auto const& spec, double low, double rate) {
    using T = decltype(t);
    for (double const far : {200.0, 3e4, 1e30, std::numeric_limits<double>::infinity()}) {
      Partition const input(ranks.grid(), {1, 1, 1, ranks.size(), 2});
      HostTensor x(input.shape()), dy(input.shape());
      for (std::size_t i = 0; i < x.values.size(); ++i) {
        x.values[i] = i % 2 == 0 ? -far : far;
        dy.values[i] = 3.0;
      }
      Driver<T> driver(ranks, input, spec);
      driver.forward(input, x);
      driver.backward(dy);
      double const above = rate > 0 ? static_cast<double>(static_cast<T>(far)) : 1.0;
      double const off = std::isinf(above) ? 0.0 : 4 * unit_roundoff<T> * above;
      CHECK(near(static_cast<double>(driver.y()(0, 0, 0, ranks.rank(), 0)), low, 1e-30));
      CHECK(near(static_cast<double>(driver.y()(0, 0, 0, ranks.rank(), 1)), above, off));
      CHECK(near(static_cast<double>(driver.dx()(0, 0, 0, ranks.rank(), 0)), 0.0, 1e-30));
      CHECK(near(static_cast<double>(driver.dx()(0, 0, 0, ranks.rank(), 1)), 3 * rate, 8 * unit_roundoff<T>));
    }
  };
  auto const all = [&](auto t) {
    reaches(t, sigmoid(), 0, 0);
    reaches(t, silu(), 0, 1);
    reaches(t, elu(0.5), -0.5, 1);
    reaches(t, gelu(), 0, 1);
    reaches(t, gelu(tanh_form), 0, 1);
  };
  all(double());
  all(float());
}

TEST_CASE("gradients of the activations agree with finite differences") {
  auto const world = world_ranks();
  RankGrid<AnySplit> const ranks(world, Counts{.channel = world.size()});
  Partition const input(ranks.grid(), {2, 1, 2, 3, 5});
  HostTensor x = random_tensor(input.shape(), 3);
  for (double& value : x.values) value *= 3;
  HostTensor const dy = random_tensor(input.shape(), 4);
  auto const agree = [&](auto const& spec) {
    Driver<double> driver(ranks, input, spec);
    expect_finite_differences(driver, ranks, input, x, dy, {});
  };
  CHECK_NOTHROW(agree(scaled_tanh(1.3)));
  CHECK_NOTHROW(agree(sigmoid()));
  CHECK_NOTHROW(agree(silu()));
  CHECK_NOTHROW(agree(elu(0.7)));
  CHECK_NOTHROW(agree(gelu()));
  CHECK_NOTHROW(agree(gelu(tanh_form)));
  for (bool const shared : {false, true}) {
    Driver<double> driver(ranks, input, prelu({.shared = shared}));
    std::vector<double> const slopes(shared ? 1 : 5, 0.25);  // where they start
    CHECK_NOTHROW(expect_finite_differences(driver, ranks, input, x, dy, {}, {{".weight", slopes}}));
  }
}

TEST_CASE("wrong options of activations are refused") {
  double const infinite = std::numeric_limits<double>::infinity();
  CHECK_THROWS_WITH_AS(elu(infinite), "elu: alpha must be finite, it is inf", Error);
  CHECK_THROWS_WITH_AS(prelu({.start = infinite}), "prelu: the slopes must start at a finite number, it is inf", Error);
}
