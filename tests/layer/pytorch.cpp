// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Layers and losses against PyTorch (tests/fixtures/make.py), in double and float, on 1 rank and on 2 x 2.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "support/fixture.hpp"
#include "support/pytorch.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/batch_norm.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/flatten.hpp"
#include "tessera/layer/pool.hpp"
#include "tessera/layer/redistribute.hpp"
#include "tessera/model/chain.hpp"
#include "tessera/train/loss.hpp"

using namespace tessera;
using namespace tessera::axes;
using namespace tessera::test;

TEST_CASE("convolutions agree with PyTorch") {
  for_each_case("conv", [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
    auto const& w = c["w"].shape;
    std::int64_t const out = w[0];
    ConvSpec spec = w.size() == 3 ? conv1d(out) : w.size() == 4 ? conv2d(out) : conv3d(out);
    set_window(spec, c);
    set_each(
        spec, [](auto... n) { return dilation(n...); }, c["dilation"]);
    if (c.number("same") != 0.0) {
      spec.set(same);
    } else {
      set_each(
          spec, [](auto... n) { return padding_low(n...); }, c["low"]);
      set_each(
          spec, [](auto... n) { return padding_high(n...); }, c["high"]);
    }
    if (!c.has("b")) spec.set(no_bias);
    double const taps = product(w, 2);
    check_linear<decltype(t)>(c, ranks, spec, taps * static_cast<double>(w[1]) + 1, taps * static_cast<double>(out),
                              product(c["y"].shape) / static_cast<double>(out));
  });
}

TEST_CASE("average pools agree with PyTorch") {
  for_each_case("avg_pool", [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
    std::size_t const rank = c["kernel"].values.size();
    AveragePoolSpec spec = rank == 1 ? avg_pool1d() : rank == 2 ? avg_pool2d() : avg_pool3d();
    set_window(spec, c);
    set_each(
        spec, [](auto... n) { return padding(n...); }, c["padding"]);
    if (c.number("count_padding") == 0.0) spec.set(exclude_padding);
    double const taps = product(c["kernel"].whole());
    check_linear<decltype(t)>(c, ranks, spec, taps, taps, 0);
  });
}

TEST_CASE("max pools agree with PyTorch, with ties, NaN and infinities") {
  for_each_case("max_pool", [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
    using T = decltype(t);
    std::size_t const rank = c["kernel"].values.size();
    MaxPoolSpec spec = rank == 1 ? max_pool1d() : rank == 2 ? max_pool2d() : max_pool3d();
    set_window(spec, c);
    set_each(
        spec, [](auto... n) { return padding(n...); }, c["padding"]);
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
  });
}

TEST_CASE("activations agree with PyTorch, with zeros and NaN") {
  for_each_case("activation", [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
    using T = decltype(t);
    double const setting = c.number("setting");
    auto const check = [&](auto const& spec, std::vector<double> most_dx, double roundings_y, double roundings_dx) {
      Driven<T> layer(ranks, c["x"], spec);
      layer.forward(c["x"]).backward(c["dy"]);
      if constexpr (in_double<T>) {
        check_norm_wise("y", layer.y(), c["y"]);
        check_norm_wise("dx", layer.dx(), c["dx"]);
      } else {
        check_roundings("y in float", layer.y(), c["y"], c["y"].magnitude().values, roundings_y);
        check_roundings("dx in float", layer.dx(), c["dx"], most_dx, roundings_dx);
      }
    };
    auto const dx = c["dx"].magnitude().values;
    if (c.kind == "relu") {
      check(relu(), dx, 1, 1);
    } else if (c.kind == "leaky_relu") {
      check(leaky_relu(setting), dx, 3, 3);
    } else {
      // tanhf is good to 2 units in the last place, 4 roundings, and does not magnify the relative error of x; scale
      // and product add 2. In 1 - t^2 an error of t counts twice, absolutely: 2 (7 + 1) + 2, then scale, dy and
      // products.
      std::vector<double> most = c["dy"].magnitude().values;
      for (double& value : most) value *= std::abs(setting);
      check(scaled_tanh(setting), most, 7, 22);
    }
  });
}

TEST_CASE("dense layers agree with PyTorch, alone and behind flatten") {
  for_each_case("dense", [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
    using T = decltype(t);
    auto const& w = c["w"].shape;
    auto const check = [&](auto const& spec) {
      check_linear<T>(c, ranks, spec, static_cast<double>(w[1]) + 1, static_cast<double>(w[0]),
                      static_cast<double>(c["x"].shape[0]));
    };
    DenseSpec spec = dense(w[0]);
    if (!c.has("b")) spec.set(no_bias);
    if (c.kind == "dense")
      check(spec);
    else
      check(sequence(redistribute<Distribution<Sample>>(), flatten(), spec));
  });
}

namespace {

/// The largest 1 / sqrt(variance + epsilon) and the largest normalised x.
struct NormScale {
  double inverse = 0.0;
  double normalised = 0.0;
};

/// With the statistics given, or else those of x.
NormScale scale_of(Array const& x, double epsilon, std::vector<double> mean = {}, std::vector<double> variance = {}) {
  Shape const s = shape_of(x);
  auto const space = static_cast<std::size_t>(s.depth * s.height * s.width);
  auto const channels = static_cast<std::size_t>(s.channel);
  auto const channel = [&](std::size_t i) { return i / space % channels; };
  double const count = static_cast<double>(x.values.size() / channels);
  if (mean.empty()) {
    mean.assign(channels, 0.0);
    variance.assign(channels, 0.0);
    for (std::size_t i = 0; i < x.values.size(); ++i) mean[channel(i)] += x.values[i] / count;
    for (std::size_t i = 0; i < x.values.size(); ++i)
      variance[channel(i)] += std::pow(x.values[i] - mean[channel(i)], 2) / count;
  }
  NormScale scale;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    double const inverse = 1.0 / std::sqrt(variance[channel(i)] + epsilon);
    scale.inverse = std::max(scale.inverse, inverse);
    scale.normalised = std::max(scale.normalised, std::abs(x.values[i] - mean[channel(i)]) * inverse);
  }
  return scale;
}

double largest(Array const& array) {
  double most = 0.0;
  for (double const value : array.values) most = std::max(most, std::abs(value));
  return most;
}

template <class T>
void check_within(std::string const& what, std::vector<double> const& got, Array const& expected, double magnitude,
                  double roundings) {
  if constexpr (in_double<T>)
    check_norm_wise(what, got, expected);
  else
    check_roundings(what + " in float", got, expected, std::vector<double>(got.size(), magnitude), roundings);
}

}  // namespace

TEST_CASE("batch norm agrees with PyTorch in two steps of training and in inference") {
  for_each_case("batch_norm", [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
    using T = decltype(t);
    double const epsilon = c.number("epsilon");
    BatchNormOptions const options{.epsilon = epsilon, .momentum = c.number("momentum")};
    Driven<T> layer(ranks, c["x1"], batch_norm(options), {c["gamma"], c["beta"]});
    double const gamma = largest(c["gamma"]), beta = largest(c["beta"]), dy = largest(c["dy"]);
    double const count = product(c["dy"].shape) / static_cast<double>(c["dy"].shape[1]);
    // x is exact in float and statistics are in double, so that the normalised x has 4 roundings, even where x is far
    // from 0: two differences, the inverse deviation, a product. In y follow gamma, beta, a product and a sum. In dx
    // the three terms, none larger than dy (1 + normalised), have up to 4 + 7 + 1 roundings; differences, gamma, the
    // inverse deviation and products add 7.
    auto const check = [&](std::string const& after, NormScale const& s) {
      double const h = s.normalised;
      check_within<T>("y" + after, layer.y(), c["y" + after], gamma * h + beta, 7);
      check_within<T>("dx" + after, layer.dx(), c["dx" + after], gamma * s.inverse * dy * (1 + h) * 2, 19);
      check_within<T>("dgamma" + after, layer.gradient(0), c["dgamma" + after], count * dy * h, 7);
      check_within<T>("dbeta" + after, layer.gradient(1), c["dbeta" + after], count * dy, 3);
    };
    layer.forward(c["x1"]).forward(c["x2"]).backward(c["dy"]);
    check("", scale_of(c["x2"], epsilon));
    check_norm_wise("running mean", layer.buffer("running_mean"), c["running_mean"]);
    check_norm_wise("running variance", layer.buffer("running_var"), c["running_var"]);
    layer.forward(c["x2"], Mode::inference).backward(c["dy"], Mode::inference);
    check("_eval", scale_of(c["x2"], epsilon, c["running_mean"].values, c["running_var"].values));
  });
}

TEST_CASE("losses and their gradients agree with PyTorch") {
  for_each_case("loss", [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
    using T = decltype(t);
    auto const& p = c["prediction"];
    Partition const partition(ranks.grid(), shape_of(p));
    auto const shard_of = [&](Array const& array) {
      Shard<T, Host> const shard(partition, ranks.rank());
      HostTensor const tensor = channels_last<T>(array);
      for_each_cell(shard.owned(), [&](auto n, auto d, auto h, auto w, auto channel) {
        shard(n, d, h, w, channel) = static_cast<T>(tensor.at(n, d, h, w, channel));
      });
      return shard;
    };
    Shard<T, Host> const prediction = shard_of(p), target = shard_of(c["target"]), error(partition, ranks.rank());
    double const count = product(p.shape);
    LossMemory<Host> memory;
    LossPass<T, Host> const pass{Host(), ranks, prediction, target.tile(), target.owned(),
                                 &error, count, 0,          p.shape[0],    memory};
    bool const squared = c.kind == "mse";
    LossPart const here = squared ? MeanSquaredError()(pass) : MeanAbsoluteError()(pass);
    CHECK(ranks.world().all_reduce(here.count) == count);
    double const value = ranks.world().all_reduce(here.sum) / count;
    double most = 0.0;  // of |prediction| + |target|: rounding both to float moves their difference by u times this
    for (std::size_t i = 0; i < p.values.size(); ++i)
      most = std::max(most, std::abs(p.values[i]) + std::abs(c["target"].values[i]));
    check_within<T>("loss", {value}, c["value"], squared ? most * most : most, 3);
    check_within<T>("error", whole(error, ranks.world()), c["error"], squared ? 2 * most / count : 1 / count, 2);
  });
}
