// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/host_tensor.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/oracle/branch.hpp"
#include "support/oracle/conv.hpp"
#include "support/oracle/pointwise.hpp"
#include "support/oracle/pool.hpp"
#include "tessera/comm/rank_grid.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/pool.hpp"
#include "tessera/layer/redistribute.hpp"
#include "tessera/model/concat.hpp"
#include "tessera/model/multiply.hpp"
#include "tessera/model/sum.hpp"
#include "tessera/model/when.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// The layers of a branch, each of which may be absent, in this order.
struct Layers {
  bool moves = false;  ///< to another decomposition and back: to balanced blocks
  bool pools = false, convolves = false, ends_in_relu = false;
  std::array<Window, 3> pool, conv;
  std::int64_t channels = 1;  ///< of the convolution

  bool none() const { return !moves && !pools && !convolves && !ends_in_relu; }
  std::string text() const {
    auto const windows = [](std::array<Window, 3> const& w) {
      return " " + test::text(w[0]) + " | " + test::text(w[1]) + " | " + test::text(w[2]);
    };
    return std::string("branch(") + (moves ? " moves" : "") + (pools ? " pool" + windows(pool) : "") +
           (convolves ? " conv to " + std::to_string(channels) + windows(conv) : "") + (ends_in_relu ? " relu" : "") +
           " )";
  }
  oracle::Conv oracle_conv(std::int64_t in) const { return {{conv[0], conv[1], conv[2]}, in, channels}; }
};

struct Case {
  Join join = Join::concat;
  std::vector<Layers> branches;
  Partition input;
  Counts elsewhere;  ///< where branches move to in between
  bool adds = false, without_dx = false, in_float = false;
  std::int64_t samples = 1;
  std::uint64_t seed = 0;

  std::string text() const {
    std::string all = join == Join::concat ? "concat of " : join == Join::sum ? "sum of " : "product of ";
    for (Layers const& branch : branches) all += branch.text() + " ";
    return tessera::detail::text(all, "on ", test::text(input), adds ? ", adds" : "", without_dx ? ", no dx" : "",
                                 in_float ? ", in float" : "", ", then ", samples, " samples, seed ", seed);
  }
  bool repeats() const {
    for (Layers const& branch : branches)
      for (Window const& w : branch.pool)
        if (join == Join::product && branch.pools && w.stride > 1) return true;
    return false;
  }
};

Case draw_case(std::int64_t ranks, Join join) {
  Case c;
  c.join = join;
  std::int64_t const space = draw(1, 3, "spatial axes");
  Counts const counts = draw_counts(ranks, space, ChannelCuts::yes);
  Shape shape = draw_shape(counts, space);
  shape.channel = larger(draw(1, 4, "channels"), draw_one_in(2, "a channel for each rank") ? counts.channel : 1);
  shape.sample = smaller(shape.sample, larger(counts.sample, 3));
  while (shape.volume() > 2000 && shape.sample > 1) --shape.sample;
  std::int64_t const step = join != Join::product && draw_one_in(4, "halves extents") ? 2 : 1;  // ranks may run empty
  for (int i = 0; i < (join == Join::product ? 2 : 3); ++i) {
    Layers& b = c.branches.emplace_back();
    b.moves = draw_one_in(4, "moves");
    b.pools = draw(0, 1, "pools") == 1 || step > 1;
    b.convolves = draw(0, 1, "convolves") == 1;
    b.ends_in_relu = draw(0, 1, "ends in relu") == 1;
    b.channels = join == Join::concat ? draw(1, 4, "channels of the convolution") : shape.channel;
    for (std::int64_t a = 3 - space; a < 3; ++a) {
      auto const at = static_cast<std::size_t>(a);
      std::int64_t const n = shape[space_in_order[at]];
      bool const whole = join == Join::product && draw(0, 1, "pools the whole extent") == 1;
      b.pool[at] = whole ? Window{.kernel = n, .stride = n} : same_window(n, draw(1, 3, "pool"), step, 1);
      b.conv[at] = same_window(b.pools && whole ? 1 : ceil_div(n, step), draw(1, 3, "conv"), 1, 1);
    }
  }
  c.input = draw_partition(shape, counts);
  c.elsewhere[draw(0, 1, "elsewhere along width") == 1 ? AxisId::width : AxisId::sample] = ranks;
  c.adds = draw(0, 1, "adds") == 1;
  c.without_dx = draw_one_in(8, "no dx");
  c.in_float = draw(0, 1, "in float") == 1;
  c.samples = draw(1, shape.sample, "samples of an incomplete batch");
  c.seed = static_cast<std::uint64_t>(draw(0, 1'000'000, "seed"));
  return c;
}

double positive(double v) { return v > 0 ? v : 0.0; }
double masked(double out, double error) { return out > 0 ? error : 0.0; }

/// One branch on whole tensors.
struct Whole {
  Layers layers;
  HostTensor x, pooled, convolved, y;
  std::vector<double> weights, gradient;
  decltype(oracle::max_pool(oracle::Pool{}, HostTensor())) pool_pass;

  void forward(HostTensor const& input, std::uint64_t seed, int most) {
    x = pooled = input;
    if (layers.pools) {
      pool_pass = oracle::max_pool({layers.pool}, x);
      pooled = pool_pass.y;
    }
    convolved = pooled;
    if (layers.convolves) {
      auto const conv = layers.oracle_conv(x.shape.channel);
      weights = whole_numbers({1, 1, 1, 1, static_cast<std::int64_t>(conv.weights())}, seed, most).values;
      convolved = oracle::conv_forward(conv, pooled, weights, {});
    }
    y = layers.ends_in_relu ? oracle::cell_by_cell(convolved, positive) : convolved;
  }
  HostTensor backward(HostTensor const& dy) {
    HostTensor error = layers.ends_in_relu ? oracle::cell_by_cell(y, dy, masked) : dy;
    if (layers.convolves) {
      auto const conv = layers.oracle_conv(x.shape.channel);
      gradient = oracle::conv_backward_filter(conv, pooled, error);
      error = oracle::conv_backward_data(conv, pooled.shape, weights, error);
    }
    return layers.pools ? oracle::max_pool_backward(pool_pass, x.shape, error) : error;
  }
};

/// The oracle's weights (d, h, w, in, out) in PyTorch's order.
std::vector<double> in_torch_order(oracle::Conv const& conv, std::vector<double> const& w) {
  std::vector<double> torch;
  std::int64_t const taps = static_cast<std::int64_t>(w.size()) / conv.in_channels / conv.out_channels;
  for (std::int64_t co = 0; co < conv.out_channels; ++co)
    for (std::int64_t ci = 0; ci < conv.in_channels; ++ci)
      for (std::int64_t tap = 0; tap < taps; ++tap)
        torch.push_back(w[static_cast<std::size_t>((tap * conv.in_channels + ci) * conv.out_channels + co)]);
  return torch;
}

HostTensor joined(Join join, std::vector<Whole> const& branches) {
  std::vector<HostTensor> outputs;
  for (Whole const& b : branches) outputs.push_back(b.y);
  if (join == Join::concat) return oracle::concat(outputs);
  if (join == Join::product) return oracle::multiply(outputs[0], outputs[1]);
  HostTensor y = outputs[0];
  for (std::size_t i = 1; i < outputs.size(); ++i)
    y = oracle::cell_by_cell(y, outputs[i], [](double a, double b) { return a + b; });
  return y;
}

/// All values are small whole numbers, so that every sum is exact in float and the results must be equal.
template <class T, class Spec>
void check_spec(Case const& c, RankGrid<AnySplit> const& ranks, Spec const& spec) {
  Driver<T> driver(ranks, c.input, spec);
  auto const exactly = [](std::size_t) { return 0.0; };
  auto const batch = [&](Partition const& part, std::uint64_t seed) {
    Shape const in = part.shape();
    int const most = c.join == Join::product ? 1 : 2;
    HostTensor const x = whole_numbers(in, seed, most), start = whole_numbers(in, seed + 1, 3);
    std::vector<Whole> branches(c.branches.size());
    int convolutions = 0;
    for (std::size_t i = 0; i < branches.size(); ++i) {
      branches[i].layers = c.branches[i];
      branches[i].forward(x, seed + 3 + i, 1);
      if (c.branches[i].convolves)
        driver.set_shard("conv" + std::to_string(++convolutions) + ".weight",
                         in_torch_order(c.branches[i].oracle_conv(in.channel), branches[i].weights));
    }
    HostTensor const y = joined(c.join, branches), dy = whole_numbers(y.shape, seed + 2, most);
    HostTensor dx = c.adds ? start : HostTensor(in);
    std::int64_t first = 0;
    for (std::size_t i = 0; i < branches.size(); ++i) {
      HostTensor error = dy;
      if (c.join == Join::concat) error = oracle::channels(dy, first, branches[i].y.shape.channel);
      if (c.join == Join::product) error = oracle::multiply_backward(branches[i].y.shape, branches[1 - i].y, dy);
      first += branches[i].y.shape.channel;
      dx = oracle::cell_by_cell(dx, branches[i].backward(error), [](double a, double b) { return a + b; });
    }

    driver.forward(part, x);
    driver.backward(dy, {}, c.adds ? &start : nullptr, c.without_dx);
    together([&] {
      driver.expect_clean();
      expect_owned("y", driver.y(), y, exactly);
      if (!c.without_dx) expect_owned("dx", driver.dx(), dx, exactly);
      int number = 0;
      for (Whole const& b : branches) {
        if (!b.layers.convolves) continue;
        std::string const name = "conv" + std::to_string(++number) + ".weight";
        auto const expected = in_torch_order(b.layers.oracle_conv(in.channel), b.gradient);
        driver.expect_gradient(name, name, expected, std::vector<double>(expected.size(), 0.0));
      }
    });
  };
  batch(c.input, c.seed);
  if (c.input.blocks(AxisId::sample).balanced() && c.samples < c.input.shape().sample) {
    batch(c.input.with_samples(c.samples), c.seed + 10);
    if (c.seed % 4 == 0) batch(c.input, c.seed + 20);
  }
}

template <class T>
void check(Case const& c, RankGrid<AnySplit> const& world) {
  RankGrid<AnySplit> const ranks(world, c.input.grid().counts());
  auto const spec = [&](std::size_t i) {
    Layers const& b = c.branches[i];
    auto const& [pd, ph, pw] = b.pool;
    auto const& [cd, ch, cw] = b.conv;
    return branch(
        when(b.moves, redistribute<AnySplit>(c.elsewhere), redistribute<AnySplit>(c.input.grid().counts())),
        when(b.pools, max_pool3d(kernel(pd.kernel, ph.kernel, pw.kernel), stride(pd.stride, ph.stride, pw.stride),
                                 padding_low(pd.low, ph.low, pw.low), padding_high(pd.high, ph.high, pw.high))),
        when(b.convolves,
             conv3d(b.channels, kernel(cd.kernel, ch.kernel, cw.kernel), padding_low(cd.low, ch.low, cw.low),
                    padding_high(cd.high, ch.high, cw.high), no_bias)),
        when(b.ends_in_relu, relu()));
  };
  try {
    switch (c.join) {
      case Join::concat: return check_spec<T>(c, ranks, concat(spec(0), spec(1), spec(2)));
      case Join::sum: return check_spec<T>(c, ranks, add(spec(0), spec(1), spec(2)));
      case Join::product: return check_spec<T>(c, ranks, multiply(spec(0), spec(1)));
    }
  } catch (Error const& error) {
    throw Error(error.what() + std::string("\n  in ") + c.text());
  }
}

void distributed_equals_serial(std::string const& name, Join join) {
  poison_fresh_memory();
  auto const world = world_ranks();
  Coverage coverage(name, world.size());
  distributed_property(
      name + ": distributed equals serial",
      [&] {
        Case const c = draw_case(world.size(), join);
        coverage.begin_case();
        coverage.count_decomposition(c.input, c.input);
        bool any_identity = false, any_move = false;
        for (Layers const& b : c.branches) {
          any_identity |= b.none();
          any_move |= b.moves;
        }
        coverage.count("channels are cut", cuts_channels(c.input), world.size() > 1);
        coverage.count("a branch without layers", any_identity);
        coverage.count("a branch that moves", any_move);
        if (join == Join::product) coverage.count("repeats", c.repeats());
        coverage.count("in float", c.in_float);
        if (c.in_float)
          check<float>(c, world);
        else
          check<double>(c, world);
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}

}  // namespace

TEST_CASE("concat: forward and every gradient equal the serial ones") {
  distributed_equals_serial("concat", Join::concat);
}
TEST_CASE("add: forward and every gradient equal the serial ones") { distributed_equals_serial("add", Join::sum); }
TEST_CASE("multiply: forward and every gradient equal the serial ones") {
  distributed_equals_serial("multiply", Join::product);
}
