// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/host_tensor.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "tessera/comm/rank_grid.hpp"

/// Layers that are linear in their input, in a weight and in a bias: forward pass and all gradients on several ranks
/// against an oracle and, bit for bit where the order of summation is the same, against one rank.
namespace tessera::test {

/// What a layer gives: weights in PyTorch's order.
struct LinearResult {
  HostTensor y, dx;
  std::vector<double> dw, db;
};

/// Numbers of channel blocks for which weights can be stationary.
inline bool is_product(std::int64_t n) { return n == 4 || n == 6 || n == 8; }

struct LinearCase {
  Partition input;
  std::int64_t weights = 0;
  std::int64_t out_channels = 1;
  bool bias = true;
  bool adds = false;         ///< dx is added to what is there
  bool without_dx = false;   ///< as the first layer of a network
  std::int64_t samples = 1;  ///< of an incomplete batch after the whole one
  std::uint64_t seed = 0;

  std::function<Shape(Shape const&)> output;
  /// With `magnitude`, every product and summand by its absolute value: the sums that bound the rounding error.
  std::function<LinearResult(HostTensor const& x, std::vector<double> const& w, std::vector<double> const& b,
                             HostTensor const& dy, bool magnitude)>
      oracle;
  std::int64_t terms_y = 1, terms_dx = 1;  ///< of one sum, at most
  bool same_order_forward = false;         ///< whether outputs sum their terms as on one rank
  bool same_order_backward = false;        ///< whether input gradients do

  std::string text() const {
    return tessera::detail::text(test::text(input), bias ? ", bias" : "", adds ? ", adds" : "",
                                 without_dx ? ", no dx" : "", ", then ", samples, " samples, seed ", seed);
  }

  /// Draws all that does not depend on the layer.
  void draw_rest(Shape const& x, Counts const& counts) {
    bias = draw(0, 2, "bias") > 0;
    input = draw_partition(x, counts);
    adds = draw(0, 1, "adds") == 1;
    without_dx = draw_one_in(8, "no data gradient");
    samples = draw(1, x.sample, "samples of an incomplete batch");
    seed = static_cast<std::uint64_t>(draw(0, 1'000'000, "seed"));
  }
};

template <class T>
void check_linear_batch(LinearCase const& c, Partition const& input, Driver<T>& driver, Driver<T>& alone,
                        std::uint64_t seed) {
  Shape const in = input.shape(), out = c.output(in);
  HostTensor const x = random_tensor(in, seed), dy = random_tensor(out, seed + 1), start = random_tensor(in, seed + 2);
  auto const w = random_values(c.weights, seed + 3);
  auto const b = c.bias ? random_values(c.out_channels, seed + 4) : std::vector<double>{};
  for (Driver<T>* each : {&driver, &alone}) {
    Partition const part = each == &alone ? Partition(Grid(Counts{}), in) : input;
    each->set_shard(".weight", w);
    if (c.bias) each->set_shard(".bias", b);
    each->forward(part, x);
    each->backward(dy, {}, c.adds ? &start : nullptr, c.without_dx);
  }

  together([&] {
    driver.expect_clean();
    alone.expect_clean();
    std::int64_t const ranks = input.grid().size(),  // partial sums, one for each at most
        terms = out.sample * out.depth * out.height * out.width + ranks;
    LinearResult exact = c.oracle(x, w, b, dy, false), size = c.oracle(x, w, b, dy, true);
    expect_owned("y", driver.y(), exact.y,
                 [&](std::size_t i) { return gamma_n<T>(c.terms_y + ranks + 1) * size.y.values[i]; });
    if (c.same_order_forward) expect_same_bits("y", driver.y(), alone.y());
    if (!c.without_dx) {
      if (c.adds)
        for (std::size_t i = 0; i < start.values.size(); ++i) {
          exact.dx.values[i] += start.values[i];
          size.dx.values[i] += std::abs(start.values[i]);
        }
      expect_owned("dx", driver.dx(), exact.dx,
                   [&](std::size_t i) { return gamma_n<T>(c.terms_dx + ranks + 1) * size.dx.values[i]; });
      if (c.same_order_backward) expect_same_bits("dx", driver.dx(), alone.dx());
    }
    for (double& bound : size.dw) bound *= gamma_n<T>(terms + 1);
    for (double& bound : size.db) bound *= gamma_n<T>(terms);
    driver.expect_gradient("dw", ".weight", exact.dw, size.dw);
    if (c.bias) driver.expect_gradient("db", ".bias", exact.db, size.db);
  });
}

/// `name` is what a failure is said to be in. Collective.
template <class T, class Spec>
void check_linear_layer(LinearCase const& c, RankGrid<AnySplit> const& world, RankGrid<AnySplit> const& self,
                        Spec const& spec, std::string const& name) {
  RankGrid<AnySplit> const ranks(world, c.input.grid().counts());
  Shape const x = c.input.shape();
  try {
    Driver<T> driver(ranks, c.input, spec), alone(self, Partition(self.grid(), x), spec);
    check_linear_batch(c, c.input, driver, alone, c.seed);
    // An incomplete batch, then the large one again, where samples lie in balanced blocks as they do in a model.
    if (c.input.blocks(AxisId::sample).balanced() && c.samples < x.sample) {
      check_linear_batch(c, c.input.with_samples(c.samples), driver, alone, c.seed + 10);
      check_linear_batch(c, c.input, driver, alone, c.seed + 20);
    }
  } catch (Error const& error) {
    throw Error(error.what() + std::string("\n  in ") + name + " of " + c.text());
  }
}

}  // namespace tessera::test
