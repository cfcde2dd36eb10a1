// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/layer/dense.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/host_tensor.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/oracle/dense.hpp"
#include "tessera/comm/rank_grid.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Case {
  Partition input;
  std::int64_t outputs = 1;
  bool bias = true;
  bool adds = false;
  bool without_dx = false;
  std::int64_t samples = 1;
  std::uint64_t seed = 0;

  std::string text() const {
    return tessera::detail::text("dense of ", test::text(input), " to ", outputs, bias ? ", bias" : "",
                                 adds ? ", adds" : "", without_dx ? ", no dx" : "", ", then ", samples,
                                 " samples, seed ", seed);
  }
};

template <class T>
void check_batch(Case const& c, Partition const& input, Driver<T>& driver, std::uint64_t seed) {
  Shape const in = input.shape(), out = in.with_channels(c.outputs);
  HostTensor const x = random_tensor(in, seed), dy = random_tensor(out, seed + 1), start = random_tensor(in, seed + 2);
  auto const w = random_values(c.outputs * in.channel, seed + 3);
  auto const b = c.bias ? random_values(c.outputs, seed + 4) : std::vector<double>{};
  driver.set(".weight", w);
  if (c.bias) driver.set(".bias", b);
  driver.forward(input, x);
  driver.backward(dy, {}, c.adds ? &start : nullptr, c.without_dx);

  together([&] {
    driver.expect_clean();
    oracle::Dense exact = oracle::dense(x, w, b, dy), size = oracle::dense(x, w, b, dy, true);
    expect_owned("y", driver.y(), exact.y,
                 [&](std::size_t i) { return gamma_n<T>(in.channel + 1) * size.y.values[i]; });
    if (!c.without_dx) {
      if (c.adds)
        for (std::size_t i = 0; i < start.values.size(); ++i) {
          exact.dx.values[i] += start.values[i];
          size.dx.values[i] += std::abs(start.values[i]);
        }
      expect_owned("dx", driver.dx(), exact.dx,
                   [&](std::size_t i) { return gamma_n<T>(c.outputs + 1) * size.dx.values[i]; });
    }
    std::int64_t const terms = in.sample * in.depth * in.height * in.width + input.grid().size();
    for (double& bound : size.dw) bound *= gamma_n<T>(terms + 1);
    for (double& bound : size.db) bound *= gamma_n<T>(terms);
    expect_values("dw", driver.gradient(".weight"), exact.dw, size.dw);
    if (c.bias) expect_values("db", driver.gradient(".bias"), exact.db, size.db);
  });
}

template <class T>
void check(Case const& c, RankGrid<AnySplit> const& world) {
  RankGrid<AnySplit> const ranks(world, c.input.grid().counts());
  try {
    DenseSpec spec = dense(c.outputs);
    spec.bias = c.bias;
    Driver<T> driver(ranks, c.input, spec);
    check_batch(c, c.input, driver, c.seed);
    if (c.input.blocks(AxisId::sample).balanced() && c.samples < c.input.shape().sample) {
      check_batch(c, c.input.with_samples(c.samples), driver, c.seed + 10);
      check_batch(c, c.input, driver, c.seed + 20);
    }
  } catch (Error const& error) {
    throw Error(error.what() + std::string("\n  in ") + c.text());
  }
}

Case draw_case(std::int64_t ranks) {
  Case c;
  std::int64_t const space = draw(1, 3, "spatial axes");
  Counts const counts = draw_counts(ranks, space);
  Shape shape = draw_shape(counts, space);
  // Mostly the one position that flatten leaves, with many channels.
  if (draw(0, 2, "one position (0, 1)") < 2) shape = {shape.sample, 1, 1, 1, draw(1, 60, "channels")};
  c.outputs = draw(1, 20, "outputs");
  while (shape.volume() * c.outputs > 20000) (shape.sample > shape.channel ? shape.sample : shape.channel) -= 1;
  c.input = draw_partition(shape, counts);
  c.bias = draw(0, 2, "bias") > 0;
  c.adds = draw(0, 1, "adds") == 1;
  c.without_dx = draw_one_in(8, "no data gradient");
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
        check<T>(c, world);
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}

}  // namespace

TEST_CASE("dense in double: forward and every gradient equal the serial ones") {
  distributed_equals_serial<double>("dense in double");
}
TEST_CASE("dense in float: forward and every gradient equal the serial ones") {
  distributed_equals_serial<float>("dense in float");
}

TEST_CASE("cases 7, 16, 18: fewer samples than ranks, and the gradient is a sum over the ranks") {
  Case c;
  auto const world = world_ranks();
  for (std::int64_t samples : {std::int64_t{1}, static_cast<std::int64_t>(world.size()), std::int64_t{3}}) {
    c.input = Partition(Grid(Counts{.sample = world.size()}), {samples, 1, 1, 1, 7});
    c.outputs = 4;
    c.samples = samples;
    check<double>(c, world);
    check<float>(c, world);
  }
}
