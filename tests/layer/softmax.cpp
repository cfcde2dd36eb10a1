// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/layer/softmax.hpp"

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
#include "support/oracle/softmax.hpp"
#include "tessera/comm/rank_grid.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Case {
  bool logarithm = false;
  Partition input;
  double mean = 0, deviation = 1;
  bool adds = false;
  std::int64_t samples = 1;
  std::uint64_t seed = 0;

  std::string text() const {
    return tessera::detail::text(logarithm ? "log_softmax" : "softmax", " of ", test::text(input), ", mean ", mean,
                                 ", deviation ", deviation, adds ? ", adds" : "", ", then ", samples, " samples, seed ",
                                 seed);
  }
};

/// Whether a rank has positions, but no channels.
bool lacks_channels(Partition const& input) {
  for (std::int64_t rank = 0; rank < input.grid().size(); ++rank) {
    Box own = input.owned(rank);
    if (!own[AxisId::channel].empty()) continue;
    own[AxisId::channel] = {0, 1};
    if (!own.empty()) return true;
  }
  return false;
}

template <class T>
void step(Case const& c, Driver<T>& driver, Partition const& input, std::uint64_t seed) {
  HostTensor x = random_tensor(input.shape(), seed);
  for (double& value : x.values) value = static_cast<double>(static_cast<T>(c.mean + c.deviation * value));
  HostTensor const dy = random_tensor(input.shape(), seed + 1), start = random_tensor(input.shape(), seed + 2);
  double const u = unit_roundoff<T>;
  oracle::SoftmaxResult r =
      oracle::softmax(x, dy, c.logarithm, u, unit_roundoff<double>, static_cast<double>(std::numeric_limits<T>::min()));
  if (c.adds)
    for (std::size_t i = 0; i < r.dx.values.size(); ++i) {
      r.dx.values[i] += start.values[i];
      r.dx_error.values[i] += 2 * u * (std::abs(start.values[i]) + std::abs(r.dx.values[i]));
    }
  driver.forward(input, x);
  driver.backward(dy, {}, c.adds ? &start : nullptr);
  together([&] {
    driver.expect_clean();
    expect_owned("y", driver.y(), r.y, [&](std::size_t i) { return r.y_error.values[i]; });
    expect_owned("dx", driver.dx(), r.dx, [&](std::size_t i) { return r.dx_error.values[i]; });
  });
}

template <class T>
void check(Case const& c, RankGrid<AnySplit> const& world) {
  RankGrid<AnySplit> const ranks(world, c.input.grid().counts());
  try {
    Driver<T> driver(ranks, c.input, c.logarithm ? log_softmax() : softmax());
    step<T>(c, driver, c.input, c.seed);
    if (c.input.blocks(AxisId::sample).balanced()) step<T>(c, driver, c.input.with_samples(c.samples), c.seed + 10);
  } catch (Error const& error) {
    throw Error(error.what() + std::string("\n  in ") + c.text());
  }
}

Case draw_case(std::int64_t ranks, bool logarithm) {
  Case c;
  c.logarithm = logarithm;
  std::int64_t const space = draw(1, 3, "spatial axes");
  Counts const counts = draw_counts(ranks, space, ChannelCuts::yes);
  Shape shape = draw_shape(counts, space);
  shrink(shape, 3000);
  c.input = draw_partition(shape, counts);
  int const values = static_cast<int>(draw(0, 2, "values (near 0, far apart, large mean)"));
  c.mean = values == 2 ? 1000 : 0;
  c.deviation = values == 1 ? 200 : 3;
  c.adds = draw(0, 1, "adds") == 1;
  c.samples = draw(1, shape.sample, "samples of an incomplete batch");
  c.seed = static_cast<std::uint64_t>(draw(0, 1'000'000, "seed"));
  return c;
}

void distributed_equals_serial(std::string const& name, bool logarithm) {
  poison_fresh_memory();
  auto const world = world_ranks();
  Coverage coverage(name, world.size());
  distributed_property(
      name + ": distributed equals serial",
      [&] {
        Case const c = draw_case(world.size(), logarithm);
        coverage.begin_case();
        coverage.count_decomposition(c.input, c.input);
        coverage.count("channels cut", cuts_channels(c.input), world.size() > 1);
        coverage.count("positions, no channels", lacks_channels(c.input), world.size() > 2);
        coverage.count("values far apart", c.deviation > 100);
        check<double>(c, world);
        check<float>(c, world);
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}

}  // namespace

TEST_CASE("softmax: forward and gradient equal the serial ones") { distributed_equals_serial("softmax", false); }
TEST_CASE("log softmax: forward and gradient equal the serial ones") { distributed_equals_serial("log softmax", true); }

TEST_CASE("ranks without channels join in the sums of their positions") {
  auto const world = world_ranks();
  std::int64_t const ranks = world.size();
  for (bool const logarithm : {false, true})
    for (std::int64_t const owner : {std::int64_t{0}, ranks / 2, ranks - 1}) {
      std::vector<std::int64_t> boundaries(static_cast<std::size_t>(ranks) + 1, 5);
      for (std::int64_t i = 0; i <= owner; ++i) boundaries[static_cast<std::size_t>(i)] = 0;
      Case c;
      c.logarithm = logarithm;
      c.input = Partition(Grid(Counts{.channel = ranks}),
                          {Blocks(2, 1), Blocks(1, 1), Blocks(3, 1), Blocks(4, 1), Blocks::at(boundaries)});
      c.samples = 1;
      check<double>(c, world);
      check<float>(c, world);
    }
}

TEST_CASE("softmax of infinities and NaN is PyTorch's, wherever the channels are") {
  auto const world = world_ranks();
  RankGrid<AnySplit> const ranks(world, Counts{.channel = world.size()});
  Partition const input(ranks.grid(), {1, 1, 1, 4, 6});
  double const infinite = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  HostTensor x(input.shape());
  for (std::int64_t c = 0; c < 6; ++c) {
    x.at(0, 0, 0, 0, c) = c == 2 ? 1e308 : -infinite;  // all weight on one
    x.at(0, 0, 0, 1, c) = -infinite;                   // no weight at all
    x.at(0, 0, 0, 2, c) = c == 4 ? infinite : 0;
    x.at(0, 0, 0, 3, c) = c == 1 ? nan : 0;
  }
  Driver<double> plain(ranks, input, softmax()), logarithm(ranks, input, log_softmax());
  plain.forward(input, x);
  logarithm.forward(input, x);
  bool right = true;
  for_each_cell(plain.y().owned(), [&](auto, auto, auto, auto w, auto c) {
    double const y = plain.y()(0, 0, 0, w, c), log_y = logarithm.y()(0, 0, 0, w, c);
    right = right && (w == 0 ? y == (c == 2 ? 1.0 : 0.0) && log_y == (c == 2 ? 0.0 : -infinite)
                             : std::isnan(y) && std::isnan(log_y));
  });
  CHECK(right);
}

TEST_CASE("log softmax keeps what softmax rounds to zero") {
  auto const world = world_ranks();
  RankGrid<AnySplit> const ranks(world, Counts{.channel = world.size()});
  Partition const input(ranks.grid(), {1, 1, 1, 1, 2});
  HostTensor x(input.shape());
  x.values = {0.0, -1000.0};
  Driver<float> driver(ranks, input, log_softmax());
  driver.forward(input, x);
  for_each_cell(driver.y().owned(), [&](auto, auto, auto, auto, auto c) {
    CHECK(driver.y()(0, 0, 0, 0, c) == (c == 0 ? 0.0f : -1000.0f));
  });
}

TEST_CASE("gradients of softmax agree with finite differences") {
  auto const world = world_ranks();
  for (AxisId axis : {AxisId::width, AxisId::channel}) {
    Counts counts;
    counts[axis] = world.size();
    RankGrid<AnySplit> const ranks(world, counts);
    Partition const input(ranks.grid(), {2, 1, 2, 3, 6});
    HostTensor const x = random_tensor(input.shape(), 3), dy = random_tensor(input.shape(), 4);
    for (auto const& spec : {softmax(), log_softmax()}) {
      Driver<double> driver(ranks, input, spec);
      CHECK_NOTHROW(expect_finite_differences(driver, ranks, input, x, dy, {}));
    }
  }
}
