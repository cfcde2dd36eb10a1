// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/layer/batch_norm.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/host_tensor.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/oracle/batch_norm.hpp"
#include "tessera/comm/rank_grid.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Case {
  Partition input;
  Statistics statistics = Statistics::global;
  double momentum = 0.1;
  double epsilon = 1e-5;
  double mean = 0, deviation = 1;  ///< of the values, roughly
  bool adds = false;
  std::int64_t samples = 1;
  std::uint64_t seed = 0;

  std::string text() const {
    return tessera::detail::text("batch_norm of ", test::text(input), ", statistics ", static_cast<int>(statistics),
                                 ", momentum ", momentum, ", epsilon ", epsilon, ", mean ", mean, ", deviation ",
                                 deviation, adds ? ", adds" : "", ", then ", samples, " samples, seed ", seed);
  }
};

/// The number of the block that holds a cell, by looking at every block.
std::int64_t block_of(Blocks const& blocks, std::int64_t cell) {
  for (std::int64_t i = 0; i < blocks.parts(); ++i)
    if (blocks[i].begin <= cell && cell < blocks[i].end) return i;
  return -1;
}

/// Which positions share statistics.
void set_groups(oracle::BatchNorm& norm, Statistics statistics, Partition const& input) {
  Shape const s = input.shape();
  norm.groups = statistics == Statistics::global  ? 1
                : statistics == Statistics::space ? static_cast<std::size_t>(input.grid().counts().sample)
                                                  : static_cast<std::size_t>(input.grid().size());
  norm.group.clear();
  for (std::int64_t n = 0; n < s.sample; ++n)
    for (std::int64_t d = 0; d < s.depth; ++d)
      for (std::int64_t h = 0; h < s.height; ++h)
        for (std::int64_t w = 0; w < s.width; ++w) {
          Coordinates at;
          at[AxisId::sample] = block_of(input.blocks(AxisId::sample), n);
          at[AxisId::depth] = block_of(input.blocks(AxisId::depth), d);
          at[AxisId::height] = block_of(input.blocks(AxisId::height), h);
          at[AxisId::width] = block_of(input.blocks(AxisId::width), w);
          norm.group.push_back(statistics == Statistics::global  ? 0
                               : statistics == Statistics::space ? static_cast<std::size_t>(at[AxisId::sample])
                                                                 : static_cast<std::size_t>(input.grid().rank(at)));
        }
}

/// Whether a group has one value per channel: then training is an error.
bool has_single(oracle::Moments const& moments) {
  for (std::int64_t const count : moments.count)
    if (count == 1) return true;
  return false;
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
  oracle::BatchNorm norm;
  std::vector<double> running_mean, running_variance;

  Subject(Case const& given, RankGrid<AnySplit> const& ranks)
      : c(given),
        driver(ranks, given.input, batch_norm({given.statistics, given.epsilon, given.momentum})),
        running_mean(static_cast<std::size_t>(given.input.shape().channel), 0.0),
        running_variance(running_mean.size(), 1.0) {
    auto const channels = static_cast<std::int64_t>(running_mean.size());
    norm.epsilon = c.epsilon;
    norm.roundoff = unit_roundoff<T>;
    norm.sum_roundoff = unit_roundoff<double>;
    norm.gamma = random_values(channels, c.seed + 7);
    norm.beta = random_values(channels, c.seed + 8);
    driver.set(".weight", norm.gamma);
    driver.set(".bias", norm.beta);
  }

  void step(Partition const& input, Mode mode, std::uint64_t seed) {
    Shape const shape = input.shape();
    bool const training = mode == Mode::training;
    HostTensor const x = values_of<T>(c, shape, seed), dy = random_tensor(shape, seed + 1),
                     start = random_tensor(shape, seed + 2);
    set_groups(norm, c.statistics, input);
    if (!training) {  // from the very numbers that the layer holds, which were checked when they moved
      driver.layer().for_each_buffer([&](std::string const& name, std::vector<double>& values) {
        (name.ends_with("running_mean") ? running_mean : running_variance) = values;
      });
    }
    oracle::Moments const moments =
        training ? oracle::moments(norm, x) : oracle::given(norm, running_mean, running_variance);
    Pass pass;
    pass.mode = mode;
    if (training && has_single(moments)) {
      bool refused = false;
      try {
        driver.forward(input, x, pass);
      } catch (Error const& error) {
        refused = std::string(error.what()).find("needs more than one value per channel") != std::string::npos;
      }
      together([&] { expect(refused, "one value per channel must be refused on every rank"); });
      return;
    }
    driver.forward(input, x, pass);
    driver.backward(dy, pass, c.adds ? &start : nullptr);

    oracle::Normalised r = oracle::batch_norm(norm, moments, x, dy, training, input.grid().size());
    if (c.adds)
      for (std::size_t i = 0; i < r.dx.values.size(); ++i) {
        r.dx.values[i] += start.values[i];
        r.dx_error.values[i] += 2 * norm.roundoff * (std::abs(start.values[i]) + std::abs(r.dx.values[i]));
      }
    if (training) move_running(moments);
    together([&] {
      driver.expect_clean();
      expect_owned("y", driver.y(), r.y, [&](std::size_t i) { return r.y_error.values[i]; });
      expect_owned("dx", driver.dx(), r.dx, [&](std::size_t i) { return r.dx_error.values[i]; });
      expect_values("dgamma", driver.gradient(".weight"), r.dgamma, r.dgamma_error);
      expect_values("dbeta", driver.gradient(".bias"), r.dbeta, r.dbeta_error);
      check_running(moments);
    });
  }

 private:
  /// As PyTorch: (1 - momentum) old + momentum new with the unbiased variance; new is the mean over the groups.
  void move_running(oracle::Moments const& m) {
    for (std::size_t c_at = 0; c_at < running_mean.size(); ++c_at) {
      double mean = 0, variance = 0, groups = 0;
      for (std::size_t g = 0; g < m.count.size(); ++g) {
        auto const n = static_cast<double>(m.count[g]);
        if (n == 0) continue;
        groups += 1;
        mean += static_cast<double>(m.mean[g * running_mean.size() + c_at]);
        variance += static_cast<double>(m.variance[g * running_mean.size() + c_at]) * n / (n - 1);
      }
      running_mean[c_at] = (1 - c.momentum) * running_mean[c_at] + c.momentum * mean / groups;
      running_variance[c_at] = (1 - c.momentum) * running_variance[c_at] + c.momentum * variance / groups;
    }
  }

  void check_running(oracle::Moments const& m) {
    double error = 1e-14;
    for (std::size_t i = 0; i < m.mean.size(); ++i)
      error += 8 * (m.mean_error[i] + m.deviation_error[i] * (static_cast<double>(m.variance[i]) + norm.epsilon)) +
               1e-14 * static_cast<double>(std::abs(m.mean[i]) + m.variance[i]);
    driver.layer().for_each_buffer([&](std::string const& name, std::vector<double>& values) {
      bool const mean = name.ends_with("running_mean");
      expect(mean || name.ends_with("running_var"), "a buffer has another name: " + name);
      expect_values(name, values, mean ? running_mean : running_variance, std::vector<double>(values.size(), error));
    });
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

Case draw_case(std::int64_t ranks) {
  Case c;
  std::int64_t const space = draw(1, 3, "spatial axes");
  Counts const counts = draw_counts(ranks, space, ChannelCuts::yes);
  Shape shape = draw_shape(counts, space);
  shrink(shape, 6000);
  c.input = draw_partition(shape, counts);
  c.statistics = static_cast<Statistics>(draw(0, 2, "statistics (global, space, local)"));
  c.momentum = static_cast<double>(draw(0, 4, "momentum in quarters")) / 4;
  c.epsilon = draw(0, 1, "epsilon") == 0 ? 1e-5 : 1e-2;
  int const kind = static_cast<int>(draw(0, 2, "values (around 0, around 5, large mean)"));
  c.mean = kind == 0 ? 0 : kind == 1 ? 5 : 1e4;
  c.deviation = kind == 0 ? 1 : kind == 1 ? 0.1 : 1e-2;
  c.adds = draw(0, 1, "adds") == 1;
  c.samples = draw(1, shape.sample, "samples of an incomplete batch");
  c.seed = static_cast<std::uint64_t>(draw(0, 1'000'000, "seed"));
  return c;
}

template <class T>
void distributed_equals_serial(std::string const& name) {
  poison_fresh_memory();
  auto const world = world_ranks();
  Coverage coverage(name, world.size());
  distributed_property(
      name + ": distributed equals serial",
      [&] {
        Case const c = draw_case(world.size());
        coverage.begin_case();
        coverage.count_decomposition(c.input, c.input);
        coverage.count("channels cut", cuts_channels(c.input), world.size() > 1);
        coverage.count("global statistics", c.statistics == Statistics::global);
        coverage.count("space statistics", c.statistics == Statistics::space);
        coverage.count("local statistics", c.statistics == Statistics::local);
        check<T>(c, world);
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}

Case along(AxisId axis, std::vector<std::int64_t> boundaries, Statistics statistics) {
  Case c;
  std::int64_t const ranks = world_ranks().size(), n = boundaries.back();
  boundaries.resize(static_cast<std::size_t>(ranks) + 1, n);
  boundaries.back() = n;
  Counts counts;
  counts[axis] = ranks;
  std::array<Blocks, axis_count> blocks{Blocks(2, 1), Blocks(1, 1), Blocks(1, 1), Blocks(7, 1), Blocks(3, 1)};
  blocks[static_cast<std::size_t>(axis)] = Blocks::at(boundaries);
  c.input = Partition(Grid(counts), blocks);
  c.statistics = statistics;
  c.samples = 2;
  return c;
}

}  // namespace

TEST_CASE("batch norm in double: forward, every gradient and the running statistics equal the serial ones") {
  distributed_equals_serial<double>("batch norm in double");
}
TEST_CASE("batch norm in float: forward, every gradient and the running statistics equal the serial ones") {
  distributed_equals_serial<float>("batch norm in float");
}

TEST_CASE("cases 11, 16: unequal and empty shards count by what they hold, forward and backward") {
  for (Statistics statistics : {Statistics::global, Statistics::space, Statistics::local})
    for (auto const& boundaries : std::vector<std::vector<std::int64_t>>{{0, 9, 34}, {0, 0, 2, 12}, {0, 12}})
      for (AxisId axis : {AxisId::width, AxisId::channel}) {
        Case const c = along(axis, boundaries, statistics);
        check<double>(c, world_ranks());
        check<float>(c, world_ranks());
      }
}

TEST_CASE("case 12: a mean far larger than the deviation") {
  for (auto const& [mean, deviation] : std::vector<std::pair<double, double>>{{5, 0.1}, {1e4, 1e-2}}) {
    Case c = along(AxisId::width, {0, 20, 20, 64}, Statistics::global);
    c.mean = mean;
    c.deviation = deviation;
    check<double>(c, world_ranks());
    check<float>(c, world_ranks());
  }
  // The bound itself: in float, normalised values are right to a few 1e-6 where rounding the mean to float loses 5e-2.
  Case c = along(AxisId::width, {0, 64}, Statistics::global);
  c.mean = 1e4;
  c.deviation = 1e-2;
  oracle::BatchNorm norm{{1, 1, 1}, {0, 0, 0}, 1e-5, {}, 1, unit_roundoff<float>, unit_roundoff<double>};
  set_groups(norm, Statistics::global, c.input);
  HostTensor const x = values_of<float>(c, c.input.shape(), 3);
  auto const r = oracle::batch_norm(norm, oracle::moments(norm, x), x, x, true, 1);
  double worst = 0;
  for (double const error : r.y_error.values) worst = std::max(worst, error);
  CHECK(worst < 5e-5);
}

TEST_CASE("case 12: one value per channel is refused in training on every rank, and normal in inference") {
  auto const world = world_ranks();
  RankGrid<AnySplit> const ranks(world, Counts{.sample = world.size()});
  for (Statistics statistics : {Statistics::global, Statistics::space, Statistics::local}) {
    // One sample for each rank but the first, which has two unless statistics are global.
    std::int64_t const samples = statistics == Statistics::global ? 1 : world.size() + (world.size() > 1 ? 1 : 0);
    Partition const input(ranks.grid(), {samples, 1, 1, 1, 2});
    Driver<double> driver(ranks, input, batch_norm({.statistics = statistics}));
    HostTensor const x = random_tensor(input.shape(), 1);
    CHECK_THROWS_WITH_AS(driver.forward(input, x),
                         doctest::Contains("in training the variance needs more than one value per channel"), Error);
    Pass inference;
    inference.mode = Mode::inference;
    driver.forward(input, x, inference);
    bool finite = true;
    for_each_cell(driver.y().owned(), [&](auto n, auto d, auto h, auto w, auto ch) {
      finite = finite && std::isfinite(driver.y()(n, d, h, w, ch));
    });
    CHECK(finite);
  }
}
