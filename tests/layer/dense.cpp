// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/layer/dense.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/host_tensor.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/linear_layer.hpp"
#include "support/oracle/dense.hpp"
#include "tessera/comm/rank_grid.hpp"
#include "tessera/layer/flat_dense.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Case {
  std::int64_t outputs = 1;
  Stationary stationary = Stationary::automatic;
  bool flat = false;  ///< all cells of a sample are inputs
  LinearCase linear;
};

/// All cells of a sample as channels, in PyTorch's order (c, d, h, w), or back.
HostTensor flattened_cells(HostTensor const& x) {
  Shape const s = x.shape;
  HostTensor flat({s.sample, 1, 1, 1, s.channel * s.depth * s.height * s.width});
  for_each_cell(s.box(), [&](auto n, auto d, auto h, auto w, auto c) {
    flat.at(n, 0, 0, 0, ((c * s.depth + d) * s.height + h) * s.width + w) = x.at(n, d, h, w, c);
  });
  return flat;
}
HostTensor unflattened(HostTensor const& flat, Shape const& s) {
  HostTensor x(s);
  for_each_cell(s.box(), [&](auto n, auto d, auto h, auto w, auto c) {
    x.at(n, d, h, w, c) = flat.at(n, 0, 0, 0, ((c * s.depth + d) * s.height + h) * s.width + w);
  });
  return x;
}

template <class T>
void check(Case const& c, RankGrid<AnySplit> const& world, RankGrid<AnySplit> const& self) {
  DenseSpec spec = dense(c.outputs, c.stationary);
  spec.bias = c.linear.bias;
  LinearCase linear = c.linear;
  Shape const shape = linear.input.shape();
  std::int64_t const inputs = c.flat ? shape.volume() / shape.sample : shape.channel;
  linear.weights = c.outputs * inputs;
  linear.out_channels = c.outputs;
  linear.output = [=](Shape const& x) { return x.with_channels(c.outputs); };
  linear.oracle = oracle::dense;
  linear.terms_y = inputs;
  linear.terms_dx = c.outputs;
  if (c.flat) {
    linear.output = [=](Shape const& x) { return Shape{x.sample, 1, 1, 1, c.outputs}; };
    linear.oracle = [](HostTensor const& x, auto const& w, auto const& b, auto const& dy, bool magnitude) {
      LinearResult result = oracle::dense(flattened_cells(x), w, b, dy, magnitude);
      result.dx = unflattened(result.dx, x.shape);
      return result;
    };
    FlatDenseSpec const flat{spec};
    return check_linear_layer<T>(linear, world, self, flat, tessera::detail::text("flattened dense to ", c.outputs));
  }
  linear.same_order_forward = linear.same_order_backward = !cuts_channels(linear.input);
  check_linear_layer<T>(linear, world, self, spec,
                        tessera::detail::text("dense to ", c.outputs, ", stationary ", static_cast<int>(c.stationary)));
}

Case draw_case(std::int64_t ranks) {
  Case c;
  std::int64_t const space = draw(1, 3, "spatial axes");
  Counts const counts = draw_counts(ranks, space, ChannelCuts::yes);
  Shape shape = draw_shape(counts, space);
  // Mostly the one position that flatten leaves, with many channels.
  c.flat = draw(0, 1, "flattened") == 1;
  if (!c.flat && draw(0, 2, "one position (0, 1)") < 2) shape = {shape.sample, 1, 1, 1, draw(1, 60, "channels")};
  c.outputs = draw(1, 20, "outputs");
  while (shape.volume() * c.outputs > 20000 && shape.sample * shape.channel > 1)
    (shape.sample > shape.channel ? shape.sample : shape.channel) -= 1;
  c.stationary = static_cast<Stationary>(draw(0, 3, "stationary (automatic, x, y, w)"));
  if (c.stationary == Stationary::w && !is_product(counts.channel)) c.stationary = Stationary::automatic;
  c.linear.draw_rest(shape, counts);
  return c;
}

template <class T>
void distributed_equals_serial(std::string const& name) {
  poison_fresh_memory();
  auto const world = world_ranks(), self = self_ranks();
  Coverage coverage(name, world.size());
  distributed_property(
      name + ": distributed equals serial",
      [&] {
        Case const c = draw_case(world.size());
        coverage.begin_case();
        coverage.count_decomposition(c.linear.input, c.linear.input);
        coverage.count("flattened", c.flat);
        coverage.count("channels cut", cuts_channels(c.linear.input), world.size() > 1);
        check<T>(c, world, self);
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
  auto const world = world_ranks(), self = self_ranks();
  for (std::int64_t samples : {std::int64_t{1}, static_cast<std::int64_t>(world.size()), std::int64_t{3}}) {
    c.linear.input = Partition(Grid(Counts{.sample = world.size()}), {samples, 1, 1, 1, 7});
    c.outputs = 4;
    c.linear.samples = samples;
    check<double>(c, world, self);
    check<float>(c, world, self);
  }
}
