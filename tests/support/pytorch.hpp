// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "support/fixture.hpp"
#include "support/layer_harness.hpp"
#include "tessera/layer/window_spec.hpp"

/// Layers fed with, and compared with, what PyTorch computed (tests/fixtures/make.py).
namespace tessera::test {

using All = AnySplit;

/// PyTorch's (N, C, D, H, W), of which the leading spatial axes may be absent.
inline Shape shape_of(Array const& array) {
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
    for (std::size_t i = 0; i < parameters.size(); ++i) driver_.set_shard(endings[i], parameters[i].values);
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
  std::vector<double> gradient(std::size_t i) {
    auto const whole = driver_.whole_gradient(endings[i], ranks_.world());
    driver_.expect_clean();
    return whole;
  }
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
void for_each_case(std::string const& file, Check check,
                   std::vector<Counts> const& on_four = {{.depth = 2, .width = 2}, {.sample = 2, .height = 2}}) {
  auto const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  std::vector<Counts> splits{{}};
  if (world.size() == 4) splits = on_four;
  REQUIRE((world.size() == 1 || world.size() == 4));
  auto const cases = read_fixture(file);
  RankGrid<All> const first(world, splits.front());
  for (Counts const& counts : splits) {
    RankGrid<All> const ranks(first, counts);
    for (FixtureCase const& c : cases) {
      INFO(c.name << ", split sample=" << counts.sample << " channel=" << counts.channel << " depth=" << counts.depth
                  << " height=" << counts.height << " width=" << counts.width);
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

inline double product(std::vector<std::int64_t> const& numbers, std::size_t from = 0) {
  double all = 1.0;
  for (std::size_t i = from; i < numbers.size(); ++i) all *= static_cast<double>(numbers[i]);
  return all;
}

}  // namespace tessera::test
