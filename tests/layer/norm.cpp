// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Group, instance and layer norm, and how exact the statistics of every norm are.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/finite_differences.hpp"
#include "support/host_tensor.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/oracle/group_norm.hpp"
#include "tessera/comm/rank_grid.hpp"
#include "tessera/layer/batch_norm.hpp"
#include "tessera/layer/group_norm.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

enum class Kind { group, instance, layer };

struct Case {
  Kind kind = Kind::group;
  std::int64_t groups = 1;
  bool affine = true;
  bool tracks = false;
  Partition input;
  double momentum = 0.1;
  double epsilon = 1e-5;
  double mean = 0, deviation = 1;  ///< of the values, roughly
  bool adds = false;
  std::int64_t samples = 1;
  std::uint64_t seed = 0;

  std::string text() const {
    return tessera::detail::text("norm ", static_cast<int>(kind), " (group, instance, layer) of ", test::text(input),
                                 ", groups ", groups, affine ? ", affine" : "", tracks ? ", running" : "",
                                 ", momentum ", momentum, ", epsilon ", epsilon, ", mean ", mean, ", deviation ",
                                 deviation, adds ? ", adds" : "", ", then ", samples, " samples, seed ", seed);
  }
};

template <class T>
Driver<T> driver_of(Case const& c, RankGrid<AnySplit> const& ranks) {
  switch (c.kind) {
    case Kind::group: return {ranks, c.input, group_norm(c.groups, {.epsilon = c.epsilon, .affine = c.affine})};
    case Kind::layer: return {ranks, c.input, layer_norm({.epsilon = c.epsilon, .affine = c.affine})};
    case Kind::instance: break;
  }
  InstanceNormOptions options{.epsilon = c.epsilon};
  options.momentum = c.momentum;
  options.affine = c.affine;
  options.track_running = c.tracks;
  return {ranks, c.input, instance_norm(options)};
}

template <class T>
HostTensor values_of(Case const& c, Shape const& shape, std::uint64_t seed) {
  HostTensor x = random_tensor(shape, seed);
  for (double& value : x.values) value = static_cast<double>(static_cast<T>(c.mean + c.deviation * 1.7 * value));
  return x;
}

template <class T>
struct Subject {
  Case const& c;
  Driver<T> driver;
  oracle::GroupNorm norm;
  std::vector<double> running_mean, running_variance;

  Subject(Case const& given, RankGrid<AnySplit> const& ranks) : c(given), driver(driver_of<T>(given, ranks)) {
    std::int64_t const channels = c.input.shape().channel;
    norm.groups = c.kind == Kind::group ? c.groups : c.kind == Kind::instance ? channels : 1;
    norm.epsilon = c.epsilon;
    norm.roundoff = unit_roundoff<T>;
    norm.sum_roundoff = unit_roundoff<double>;
    norm.gamma.assign(static_cast<std::size_t>(channels), 1.0);
    norm.beta.assign(norm.gamma.size(), 0.0);
    running_mean = norm.beta;
    running_variance = norm.gamma;
    if (!c.affine) return;
    norm.gamma = random_values(channels, c.seed + 7);
    norm.beta = random_values(channels, c.seed + 8);
    driver.set(".weight", norm.gamma);
    driver.set(".bias", norm.beta);
  }

  void step(Partition const& input, Mode mode, std::uint64_t seed) {
    Shape const shape = input.shape();
    bool const measures = mode == Mode::training || !c.tracks;
    HostTensor const x = values_of<T>(c, shape, seed), dy = random_tensor(shape, seed + 1),
                     start = random_tensor(shape, seed + 2);
    if (!measures)  // from the very numbers that the layer holds, which were checked when they moved
      driver.layer().for_each_buffer([&](std::string const& name, std::vector<double>& values) {
        (name.ends_with("running_mean") ? running_mean : running_variance) = values;
      });
    Pass pass;
    pass.mode = mode;
    if (c.kind == Kind::instance && measures && shape.depth * shape.height * shape.width == 1) {
      bool refused = false;
      try {
        driver.forward(input, x, pass);
      } catch (Error const& error) {
        refused =
            std::string(error.what()).find("needs more than one value per channel of a sample") != std::string::npos;
      }
      together([&] { expect(refused, "one value per channel must be refused on every rank"); });
      return;
    }
    oracle::GroupMoments const moments =
        measures ? oracle::group_moments(norm, x) : oracle::given_moments(shape.sample, running_mean, running_variance);
    driver.forward(input, x, pass);
    driver.backward(dy, pass, c.adds ? &start : nullptr);

    oracle::GroupNormalised r = oracle::group_norm(norm, moments, x, dy, measures, input.grid().size());
    if (c.adds)
      for (std::size_t i = 0; i < r.dx.values.size(); ++i) {
        r.dx.values[i] += start.values[i];
        r.dx_error.values[i] += 2 * norm.roundoff * (std::abs(start.values[i]) + std::abs(r.dx.values[i]));
      }
    together([&] {
      driver.expect_clean();
      expect_owned("y", driver.y(), r.y, [&](std::size_t i) { return r.y_error.values[i]; });
      expect_owned("dx", driver.dx(), r.dx, [&](std::size_t i) { return r.dx_error.values[i]; });
      if (c.affine) {
        expect_values("dgamma", driver.gradient(".weight"), r.dgamma, r.dgamma_error);
        expect_values("dbeta", driver.gradient(".bias"), r.dbeta, r.dbeta_error);
      }
      check_running(moments, shape.sample, mode == Mode::training);
    });
  }

 private:
  /// As PyTorch: (1 - momentum) old + momentum new; new is the mean over the samples, with the unbiased variance.
  void check_running(oracle::GroupMoments const& m, std::int64_t samples, bool moves) {
    int buffers = 0;
    std::vector<double> mean_error(running_mean.size(), 1e-15), variance_error = mean_error;
    if (c.tracks && moves) {
      auto const channels = running_mean.size();
      double const a = c.momentum, n = m.count, all = static_cast<double>(samples);
      for (std::size_t i = 0; i < channels; ++i) {
        double mean = 0, variance = 0, mean_off = 0, variance_off = 0;
        for (std::size_t at = i; at < m.mean.size(); at += channels) {
          mean += static_cast<double>(m.mean[at]) / all;
          variance += static_cast<double>(m.variance[at]) * n / (n - 1) / all;
          mean_off += m.mean_error[at] / all;
          variance_off += m.variance_error[at] * n / (n - 1) / all;
        }
        running_mean[i] = (1 - a) * running_mean[i] + a * mean;
        running_variance[i] = (1 - a) * running_variance[i] + a * variance;
        mean_error[i] += 2 * mean_off + (all + 8) * norm.sum_roundoff * std::abs(c.mean) * 2;
        variance_error[i] += 2 * variance_off + (all + 8) * norm.sum_roundoff * (1 + variance);
      }
    }
    driver.layer().for_each_buffer([&](std::string const& name, std::vector<double>& values) {
      ++buffers;
      bool const mean = name.ends_with(".running_mean");
      expect(mean || name.ends_with(".running_var"), "a buffer has another name: " + name);
      expect_values(name, values, mean ? running_mean : running_variance, mean ? mean_error : variance_error);
      if (moves) (mean ? running_mean : running_variance) = values;
    });
    expect(buffers == (c.tracks ? 2 : 0), "a layer has two buffers if it keeps running statistics");
  }
};

template <class T>
void check(Case const& c, RankGrid<AnySplit> const& world) {
  RankGrid<AnySplit> const ranks(world, c.input.grid().counts());
  try {
    Subject<T> subject(c, ranks);
    subject.step(c.input, Mode::training, c.seed);
    if (c.input.blocks(AxisId::sample).balanced())
      subject.step(c.input.with_samples(c.samples), Mode::training, c.seed + 10);
    subject.step(c.input, Mode::inference, c.seed + 20);
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
  if (kind == Kind::group) {
    c.groups = draw(1, 3, "groups");
    shape.channel = c.groups * larger(1, shape.channel / c.groups);
  }
  c.input = draw_partition(shape, counts);
  c.affine = draw(0, 3, "affine (0-2)") < 3;
  c.tracks = kind == Kind::instance && draw(0, 1, "running statistics") == 1;
  c.momentum = static_cast<double>(draw(0, 4, "momentum in quarters")) / 4;
  c.epsilon = draw(0, 1, "epsilon") == 0 ? 1e-5 : 1e-2;
  int const values = static_cast<int>(draw(0, 2, "values (around 0, around 5, large mean)"));
  c.mean = values == 0 ? 0 : values == 1 ? 5 : 1e4;
  c.deviation = values == 0 ? 1 : values == 1 ? 0.1 : 1e-2;
  c.adds = draw(0, 1, "adds") == 1;
  c.samples = draw(1, shape.sample, "samples of an incomplete batch");
  c.seed = static_cast<std::uint64_t>(draw(0, 1'000'000, "seed"));
  return c;
}

/// Whether some cut of the channels lies within a group.
bool straddles(Case const& c) {
  Blocks const& blocks = c.input.blocks(AxisId::channel);
  std::int64_t const each = blocks.extent() / c.groups;
  for (std::int64_t i = 1; i < blocks.parts(); ++i)
    if (blocks[i].begin % each != 0) return true;
  return false;
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
        coverage.count("channels cut", cuts_channels(c.input), world.size() > 1);
        if (kind != Kind::instance) coverage.count("a cut within a group", straddles(c), world.size() > 1);
        coverage.count("large mean", c.mean > 1000);
        if (kind == Kind::instance) coverage.count("running statistics", c.tracks);
        check<double>(c, world);
        check<float>(c, world);
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}

Case with_cut(Kind kind, AxisId axis, std::vector<std::int64_t> boundaries) {
  Case c;
  c.kind = kind;
  std::int64_t const ranks = world_ranks().size(), n = boundaries.back();
  boundaries.resize(static_cast<std::size_t>(ranks) + 1, n);
  boundaries.back() = n;
  Counts counts;
  counts[axis] = ranks;
  std::array<Blocks, axis_count> blocks{Blocks(2, 1), Blocks(1, 1), Blocks(3, 1), Blocks(4, 1), Blocks(6, 1)};
  blocks[static_cast<std::size_t>(axis)] = Blocks::at(boundaries);
  c.input = Partition(Grid(counts), blocks);
  c.groups = c.input.shape().channel % 3 == 0 ? 3 : 1;
  c.samples = 2;
  return c;
}

}  // namespace

TEST_CASE("group norm: forward and every gradient equal the serial ones") {
  distributed_equals_serial("group norm", Kind::group);
}
TEST_CASE("instance norm: forward, every gradient and the running statistics equal the serial ones") {
  distributed_equals_serial("instance norm", Kind::instance);
}
TEST_CASE("layer norm: forward and every gradient equal the serial ones") {
  distributed_equals_serial("layer norm", Kind::layer);
}

TEST_CASE("case 11: unequal and empty shards count by what they hold, along every axis") {
  for (Kind kind : {Kind::group, Kind::instance, Kind::layer})
    for (AxisId axis : {AxisId::sample, AxisId::height, AxisId::width, AxisId::channel})
      for (auto const& boundaries : std::vector<std::vector<std::int64_t>>{{0, 4, 15}, {0, 0, 2, 9}, {0, 6}}) {
        Case c = with_cut(kind, axis, boundaries);
        check<double>(c, world_ranks());
        c.tracks = kind == Kind::instance;
        check<float>(c, world_ranks());
      }
}

TEST_CASE("case 12: one value per channel of a sample is refused by instance norm where it is measured") {
  auto const world = world_ranks();
  RankGrid<AnySplit> const ranks(world, Counts{.channel = world.size()});
  Partition const input(ranks.grid(), {3, 1, 1, 1, 5});
  HostTensor const x = random_tensor(input.shape(), 1);
  Pass inference;
  inference.mode = Mode::inference;
  Driver<double> measuring(ranks, input, instance_norm());
  for (Pass const& pass : {Pass{}, inference})
    CHECK_THROWS_WITH_AS(measuring.forward(input, x, pass),
                         doctest::Contains("instance_norm1: the variance needs more than one value per channel of a "
                                           "sample, but each has one; use batch_norm"),
                         Error);
  Driver<double> tracking(ranks, input, instance_norm({.track_running = true}));
  CHECK_THROWS_AS(tracking.forward(input, x), Error);
  tracking.forward(input, x, inference);
  // Group and layer norm measure over channels too, and a group of one value is its shift.
  Driver<double> single(ranks, input, group_norm(5));
  single.forward(input, x);
  single.backward(x);
  bool right = true;
  for_each_cell(single.y().owned(), [&](auto n, auto d, auto h, auto w, auto c) {
    right = right && single.y()(n, d, h, w, c) == 0.0 && single.dx()(n, d, h, w, c) == 0.0;
  });
  CHECK(right);
}

TEST_CASE("parameters have the same gradients where no data gradient is wanted") {
  for (Kind kind : {Kind::group, Kind::instance, Kind::layer}) {
    Case const c = with_cut(kind, AxisId::channel, {0, 1, 6});
    RankGrid<AnySplit> const ranks(world_ranks(), c.input.grid().counts());
    Driver<float> driver = driver_of<float>(c, ranks);
    HostTensor const x = random_tensor(c.input.shape(), 1), dy = random_tensor(c.input.shape(), 2);
    driver.forward(c.input, x);
    driver.backward(dy);
    auto const dgamma = driver.gradient(".weight"), dbeta = driver.gradient(".bias");
    driver.backward(dy, {}, nullptr, true);
    CHECK(driver.gradient(".weight") == dgamma);
    CHECK(driver.gradient(".bias") == dbeta);
  }
}

TEST_CASE("wrong options are refused on every rank when the layer is bound") {
  auto const world = world_ranks();
  RankGrid<AnySplit> const ranks(world, Counts{.channel = world.size()});
  Partition const input(ranks.grid(), {1, 1, 1, 2, 6});
  auto const bind = [&](auto const& spec) { Driver<double>(ranks, input, spec); };
  CHECK_THROWS_WITH_AS(bind(group_norm(4)),
                       "group_norm1: the number of groups must divide the number of channels, but there are 4 groups "
                       "and 6 channels; choose a divisor of 6",
                       Error);
  CHECK_THROWS_WITH_AS(bind(group_norm(0)), "group_norm1: the number of groups must be at least 1, it is 0", Error);
  CHECK_THROWS_WITH_AS(bind(group_norm(2, {.epsilon = 0})), "group_norm1: epsilon must be positive, it is 0", Error);
  CHECK_THROWS_WITH_AS(bind(layer_norm({.epsilon = -1})), "layer_norm1: epsilon must be positive, it is -1", Error);
  CHECK_THROWS_WITH_AS(bind(instance_norm({.epsilon = 0})), "instance_norm1: epsilon must be positive, it is 0", Error);
  CHECK_THROWS_WITH_AS(bind(instance_norm({.momentum = 1.5})),
                       "instance_norm1: momentum must be within [0, 1], it is 1.5", Error);
  CHECK_THROWS_WITH_AS(bind(batch_norm({.epsilon = 0})), "batch_norm1: epsilon must be positive, it is 0", Error);
}

TEST_CASE("gradients of the norms agree with finite differences") {
  auto const world = world_ranks();
  for (AxisId axis : {AxisId::width, AxisId::channel, AxisId::sample}) {
    Counts counts;
    counts[axis] = world.size();
    RankGrid<AnySplit> const ranks(world, counts);
    Partition const input(ranks.grid(), {2, 1, 2, 3, 6});
    HostTensor const x = random_tensor(input.shape(), 3), dy = random_tensor(input.shape(), 4);
    auto const agree = [&](auto const& spec) {
      Driver<double> driver(ranks, input, spec);
      auto const gamma = random_values(6, 5), beta = random_values(6, 6);
      driver.set(".weight", gamma);
      driver.set(".bias", beta);
      expect_finite_differences(driver, ranks, input, x, dy, {}, {{".weight", gamma}, {".bias", beta}});
    };
    CHECK_NOTHROW(agree(group_norm(2)));
    CHECK_NOTHROW(agree(layer_norm()));
    CHECK_NOTHROW(agree(instance_norm({.affine = true})));
    CHECK_NOTHROW(agree(batch_norm()));
  }
}

namespace {

/// The mean lies between two floats, 4.4e-4 from the nearest: rounding it there would be seen.
constexpr double far_mean = 1e4 + 4.4e-4;

/// What the norm of a million values or more around 1e4, 1e-2 apart, must be: from exact statistics of the values.
template <class Spec>
void check_exact(std::string const& name, Shape const& shape, Counts const& counts, Spec const& spec,
                 std::size_t groups, std::size_t (*group)(Shape const&, std::size_t), double running_values) {
  auto const world = world_ranks();
  RankGrid<AnySplit> const ranks(world, counts);
  Partition const input(ranks.grid(), shape);
  HostTensor x = random_tensor(shape, 17);
  for (double& value : x.values)
    value = static_cast<double>(static_cast<float>(far_mean + 1e-2 * std::sqrt(3.0) * value));
  std::vector<long double> count(groups, 0), mean(groups, 0), variance(groups, 0);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    count[group(shape, i)] += 1;
    mean[group(shape, i)] += static_cast<long double>(x.values[i]);
  }
  for (std::size_t g = 0; g < groups; ++g) mean[g] /= count[g];
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    long double const far = static_cast<long double>(x.values[i]) - mean[group(shape, i)];
    variance[group(shape, i)] += far * far / count[group(shape, i)];
  }
  Driver<float> driver(ranks, input, spec);
  driver.forward(input, x);
  double worst = 0, low = 0, high = 0, x_low = 1e9, x_high = -1e9;  // the variance follows from y's slope in group 0
  auto const& y = driver.y();
  for_each_cell(y.owned(), [&](auto n, auto d, auto h, auto w, auto c) {
    std::size_t const i = x.index(n, d, h, w, c), g = group(shape, i);
    double const exact = static_cast<double>((static_cast<long double>(x.values[i]) - mean[g]) /
                                             std::sqrt(variance[g] + 1e-5L)),
                 got = static_cast<double>(y(n, d, h, w, c));
    worst = std::max(worst, std::abs(got - exact));
    if (g == 0 && x.values[i] < x_low) x_low = x.values[i], low = got;
    if (g == 0 && x.values[i] > x_high) x_high = x.values[i], high = got;
  });
  INFO(name);
  CHECK(count[0] >= 1e6L);
  CHECK(worst <= 1e-5);
  if (x_high > x_low) {
    double const found = std::pow((x_high - x_low) / (high - low), 2) - 1e-5,
                 expected = static_cast<double>(variance[0]);
    CHECK(std::abs(found - expected) <= 1e-4 * expected);
  }
  if (running_values > 0)
    driver.layer().for_each_buffer([&](std::string const& buffer, std::vector<double>& values) {
      double const expected = buffer.ends_with("mean")
                                  ? static_cast<double>(mean[0])
                                  : static_cast<double>(variance[0]) * running_values / (running_values - 1);
      CHECK(std::abs(values[0] - expected) <= (buffer.ends_with("mean") ? 1e-12 : 1e-4) * expected);
    });
}

}  // namespace

TEST_CASE("case 12: a mean of 1e4 and a deviation of 1e-2 over 1e6 values in float, against exact statistics") {
  std::int64_t const ranks = world_ranks().size();
  if (ranks != 1 && ranks != 4) return;
  std::int64_t const two = ranks == 4 ? 2 : 1;
  check_exact(
      "batch norm", {2, 100, 100, 50, 1}, Counts{.depth = two, .width = two}, batch_norm({.momentum = 1}), 1,
      [](Shape const&, std::size_t) -> std::size_t { return 0; }, 1e6);
  check_exact(
      "instance norm", {1, 100, 100, 100, 1}, Counts{.depth = two, .width = two},
      instance_norm({.momentum = 1, .track_running = true}), 1,
      [](Shape const&, std::size_t) -> std::size_t { return 0; }, 1e6);
  check_exact(
      "group norm", {1, 100, 100, 25, 8}, Counts{.channel = two, .height = two}, group_norm(2), 2,
      [](Shape const&, std::size_t i) -> std::size_t { return i % 8 / 4; }, 0);
  check_exact(
      "layer norm", {1, 100, 100, 20, 5}, Counts{.channel = two, .width = two}, layer_norm(), 1,
      [](Shape const&, std::size_t) -> std::size_t { return 0; }, 0);
}
