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
#include "support/layer_harness.hpp"
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

namespace {

using All = AnySplit;

/// PyTorch's (N, C, D, H, W), of which the leading spatial axes may be absent.
Shape shape_of(Array const& array) {
  Shape shape{array.shape.at(0), 1, 1, 1, array.shape.at(1)};
  std::size_t const space = array.shape.size() - 2;
  if (space >= 1) shape.width = array.shape[1 + space];
  if (space >= 2) shape.height = array.shape[space];
  if (space >= 3) shape.depth = array.shape[space - 1];
  return shape;
}

/// visit(cell, its place in PyTorch's order) for the cells of a box of a tensor.
template <class Visit>
void for_each_place(Shape const& s, Box const& box, Visit visit) {
  for_each_cell(box, [&](auto n, auto d, auto h, auto w, auto c) {
    visit(n, d, h, w, c, static_cast<std::size_t>((((n * s.channel + c) * s.depth + d) * s.height + h) * s.width + w));
  });
}

/// Rounded to T, as a tensor of T can hold it.
template <class T>
HostTensor channels_last(Array const& array) {
  HostTensor tensor(shape_of(array));
  for_each_place(tensor.shape, tensor.shape.box(), [&](auto n, auto d, auto h, auto w, auto c, std::size_t place) {
    tensor.at(n, d, h, w, c) = static_cast<double>(static_cast<T>(array.values.at(place)));
  });
  return tensor;
}

/// The whole tensor in PyTorch's order, on every rank.
template <class T>
std::vector<double> whole(Shard<T, Host> const& shard, Communicator<Mpi> const& world) {
  std::vector<double> all(static_cast<std::size_t>(shard.shape().volume()), 0.0);
  for_each_place(shard.shape(), shard.owned(), [&](auto n, auto d, auto h, auto w, auto c, std::size_t place) {
    all[place] = static_cast<double>(shard(n, d, h, w, c));
  });
  world.all_reduce(all.data(), static_cast<std::int64_t>(all.size()));
  return all;
}

/// One layer, fed with and read as PyTorch's arrays.
template <class T>
class Driven {
 public:
  template <class Spec>
  Driven(RankGrid<All> const& ranks, Array const& x, Spec const& spec, std::vector<Array> const& parameters = {})
      : ranks_(ranks), input_(ranks.grid(), shape_of(x)), driver_(ranks, input_, spec) {
    for (std::size_t i = 0; i < parameters.size(); ++i) driver_.set(endings[i], parameters[i].values);
  }

  Driven& forward(Array const& x, Mode mode = Mode::training) {
    driver_.forward(input_, channels_last<T>(x), Pass{.mode = mode});
    return *this;
  }
  Driven& backward(Array const& dy, Mode mode = Mode::training) {
    driver_.backward(channels_last<T>(dy), Pass{.mode = mode});
    return *this;
  }

  std::vector<double> y() const { return whole(driver_.y(), ranks_.world()); }
  std::vector<double> dx() const { return whole(driver_.dx(), ranks_.world()); }
  std::vector<double> gradient(std::size_t i) { return driver_.gradient(endings[i]); }
  std::vector<double> buffer(std::string const& ending) {
    std::vector<double> found;
    driver_.layer().for_each_buffer([&](std::string const& name, std::vector<double>& values) {
      if (name.ends_with(ending)) found = values;
    });
    return found;
  }

 private:
  static constexpr char const* endings[] = {".weight", ".bias"};

  RankGrid<All> ranks_;
  Partition input_;
  Driver<T> driver_;
};

/// check(case, ranks, T()) for all cases of a file, in double and float, on each decomposition for this number of
/// ranks.
template <class Check>
void for_each_case(std::string const& file, Check check) {
  auto const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  std::vector<Counts> splits{{}};
  if (world.size() == 4) splits = {{.depth = 2, .width = 2}, {.sample = 2, .height = 2}};
  REQUIRE((world.size() == 1 || world.size() == 4));
  auto const cases = read_fixture(file);
  RankGrid<All> const first(world, splits.front());
  for (Counts const& counts : splits) {
    RankGrid<All> const ranks(first, counts);
    for (FixtureCase const& c : cases) {
      INFO(c.name << ", split sample=" << counts.sample << " depth=" << counts.depth << " height=" << counts.height
                  << " width=" << counts.width);
      check(c, ranks, double());
      check(c, ranks, float());
    }
  }
}

template <class T>
inline constexpr bool in_double = std::is_same_v<T, double>;

/// A layer whose output is linear in the input and in the parameters: the error of each cell follows from the same
/// layer on magnitudes, in double. `terms` are those of one sum of y, dx and of a parameter's gradient.
template <class T, class Spec>
void check_linear(FixtureCase const& c, RankGrid<All> const& ranks, Spec const& spec, double terms_y, double terms_dx,
                  double terms_gradient) {
  std::vector<std::string> keys;
  std::vector<Array> parameters, magnitudes;
  for (std::string const key : {"w", "b"})
    if (c.has(key)) {
      keys.push_back("d" + key);
      parameters.push_back(c[key]);
      magnitudes.push_back(c[key].magnitude());
    }
  Driven<T> layer(ranks, c["x"], spec, parameters);
  layer.forward(c["x"]).backward(c["dy"]);
  if constexpr (in_double<T>) {
    check_norm_wise("y", layer.y(), c["y"]);
    check_norm_wise("dx", layer.dx(), c["dx"]);
    for (std::size_t i = 0; i < keys.size(); ++i) check_norm_wise(keys[i], layer.gradient(i), c[keys[i]]);
  } else {
    // Besides the additions: each factor is rounded to float, and so are the product and, for an average, the scale.
    Driven<double> most(ranks, c["x"], spec, magnitudes);
    most.forward(c["x"].magnitude()).backward(c["dy"].magnitude());
    check_roundings("y in float", layer.y(), c["y"], most.y(), terms_y + 4);
    check_roundings("dx in float", layer.dx(), c["dx"], most.dx(), terms_dx + 4);
    for (std::size_t i = 0; i < keys.size(); ++i)
      check_roundings(keys[i] + " in float", layer.gradient(i), c[keys[i]], most.gradient(i), terms_gradient + 4);
  }
}

/// Sets an option with one number per spatial axis; `word` makes the option from them.
template <class Spec, class Word>
void set_each(Spec& spec, Word word, Array const& numbers) {
  auto const n = numbers.whole();
  if (n.size() == 1)
    spec.set(word(n[0]));
  else if (n.size() == 2)
    spec.set(word(n[0], n[1]));
  else
    spec.set(word(n[0], n[1], n[2]));
}
template <class Spec>
void set_window(Spec& spec, FixtureCase const& c) {
  set_each(
      spec, [](auto... n) { return kernel(n...); }, c["kernel"]);
  set_each(
      spec, [](auto... n) { return stride(n...); }, c["stride"]);
}

double product(std::vector<std::int64_t> const& numbers, std::size_t from = 0) {
  double all = 1.0;
  for (std::size_t i = from; i < numbers.size(); ++i) all *= static_cast<double>(numbers[i]);
  return all;
}

}  // namespace

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
    op::Sums<Host> sums;
    bool const squared = c.kind == "mse";
    double const here = squared ? MeanSquaredError()(Host(), sums, prediction, target.tile(), &error, count)
                                : MeanAbsoluteError()(Host(), sums, prediction, target.tile(), &error, count);
    double const value = ranks.world().all_reduce(here) / count;
    double most = 0.0;  // of |prediction| + |target|: rounding both to float moves their difference by u times this
    for (std::size_t i = 0; i < p.values.size(); ++i)
      most = std::max(most, std::abs(p.values[i]) + std::abs(c["target"].values[i]));
    check_within<T>("loss", {value}, c["value"], squared ? most * most : most, 3);
    check_within<T>("error", whole(error, ranks.world()), c["error"], squared ? 2 * most / count : 1 / count, 2);
  });
}
