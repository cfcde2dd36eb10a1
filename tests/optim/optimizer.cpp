// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Optimizers against PyTorch (tests/fixtures/make.py); norms, sums and clipping with parameters that are sharded.

#include "tessera/optim/optimizer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "support/fixture.hpp"
#include "tessera/comm/rank_grid.hpp"

using namespace tessera;
using namespace tessera::axes;
using namespace tessera::test;

namespace {

using Host = Kokkos::DefaultHostExecutionSpace;
using All = Distribution<Sample, Depth, Height, Width>;

/// 1 rank, or 4 as depth 2 x width 2.
RankGrid<All> world_ranks() {
  auto const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  return {world, world.size() == 4 ? Counts{.depth = 2, .width = 2} : Counts{}};
}

/// Values in PyTorch's order become the gradient of this rank's data.
template <class T>
void set_gradient(Parameter<T, Host> const& p, std::vector<T> const& gradient) {
  std::vector<T> const values = p.download();
  p.set(gradient);
  std::copy(p.value(), p.value() + p.count(), p.gradient());
  p.set(values);
}

template <class T>
Parameter<T, Host> vector_parameter(RankGrid<All> const& ranks, std::string const& name,
                                    std::vector<double> const& start) {
  auto p = Parameter<T, Host>::replicated(
      name, {name, {static_cast<std::int64_t>(start.size())}, {0}, Initial::value(0.0)}, ranks);
  p.allocate(0);
  p.set({start.begin(), start.end()});
  return p;
}

/// The rounding error of one element's steps in float, followed beside the steps in double: after each operation the
/// errors of its operands, and one rounding u of its result.
struct RunningError {
  static constexpr double u = 0x1p-24;
  double p = 0.0, first = 0.0, second = 0.0;           ///< the element, velocity or mean, mean square
  double of_p = 0.0, of_first = 0.0, of_second = 0.0;  ///< their errors
  double g = 0.0, of_g = 0.0;

  void gradient(double given, double decay) {
    g = given + decay * p;
    of_g = u * std::abs(given) + decay * of_p + 2 * u * decay * std::abs(p) + u * std::abs(g);
  }
  void move(double by, double of_by) {
    p -= by;
    of_p += of_by + u * std::abs(p);
  }

  void step(Sgd const& m, double given, bool begins) {
    gradient(given, m.weight_decay);
    double v = g, of_v = of_g;
    if (m.momentum > 0.0) {
      if (!begins) {
        v = m.momentum * first + g;
        of_v = m.momentum * of_first + of_g + u * (2 * m.momentum * std::abs(first) + std::abs(v));
      }
      first = v;
      of_first = of_v;
      if (m.nesterov) {
        v = g + m.momentum * first;
        of_v = of_g + m.momentum * of_first + u * (2 * m.momentum * std::abs(first) + std::abs(v));
      }
    }
    move(m.rate * v, m.rate * of_v + 2 * u * m.rate * std::abs(v));
  }

  void step(Adam const& m, double given, double correction1, double correction2) {
    gradient(given, m.weight_decay);
    double const a = 1.0 - m.beta1, b = 1.0 - m.beta2;
    double const mean = first + a * (g - first), square = second + b * (g * g - second);
    of_first = m.beta1 * of_first + a * of_g + u * (3 * a * std::abs(g - first) + std::abs(mean));
    of_second =
        m.beta2 * of_second + b * 2 * std::abs(g) * of_g + u * (b * g * g + 3 * b * std::abs(g * g - second) + square);
    first = mean;
    second = square;
    double const root = std::sqrt(square), of_root = (root > 0.0 ? of_second / root : std::sqrt(of_second)) + u * root;
    double const below = root / correction2 + m.epsilon;
    double const of_below = of_root / correction2 + u * (2 * root / correction2 + m.epsilon + below);
    double const by = m.rate / correction1 * mean / below;
    double const relative = of_below < below ? of_below / (below - of_below) : 1e9;
    move(by, m.rate / correction1 * of_first / below * (1 + relative) + std::abs(by) * (relative + 5 * u));
  }
};

/// In double the steps follow their own path, to 1e-12. In float each step is given the gradient at PyTorch's point, so
/// that the error is that of the steps alone.
template <class T, class Method>
void check_path(FixtureCase const& c, RankGrid<All> const& ranks, Method const& method) {
  auto const& start = c["start"].values;
  auto const &h = c["h"].values, &b = c["b"].values, &path = c["path"].values;
  std::size_t const n = start.size();
  auto p = vector_parameter<T>(ranks, c.kind, start);
  std::vector<Parameter<T, Host>*> const list{&p};
  std::vector<RunningError> errors(n);
  for (std::size_t i = 0; i < n; ++i) {
    errors[i].p = start[i];
    errors[i].of_p = RunningError::u * std::abs(start[i]);
  }
  Method halved = method;
  halved.rate /= 2;  // the schedule's factor makes up for it
  Optimizer<T, Host, Method> optimizer(halved);
  for (std::size_t step = 0; step < path.size() / n; ++step) {
    std::vector<T> const now = p.download();
    std::vector<T> gradient(n);
    for (std::size_t i = 0; i < n; ++i) {
      double const theirs = step == 0 ? start[i] : path[(step - 1) * n + i];
      double const at = std::is_same_v<T, double> ? static_cast<double>(now[i]) : theirs;
      gradient[i] = static_cast<T>((h[i] * at - b[i]) / ranks.size());
      double const given = h[i] * theirs - b[i];
      if constexpr (std::is_same_v<Method, Sgd>) {
        errors[i].step(method, given, step == 0);
      } else {
        double const t = static_cast<double>(step + 1);
        errors[i].step(method, given, 1.0 - std::pow(method.beta1, t), std::sqrt(1.0 - std::pow(method.beta2, t)));
      }
    }
    set_gradient(p, gradient);
    p.start_reduction();
    optimizer.step(list, ranks.world(), 2.0);
    std::vector<T> const moved = p.download();
    Array const expected{{static_cast<std::int64_t>(n)},
                         {path.begin() + static_cast<std::ptrdiff_t>(step * n),
                          path.begin() + static_cast<std::ptrdiff_t>((step + 1) * n)}};
    std::vector<double> const got(moved.begin(), moved.end());
    std::string const what = c.name + ", step " + std::to_string(step + 1);
    if constexpr (std::is_same_v<T, double>) {
      check_norm_wise(what, got, expected);
    } else {
      std::vector<double> bounds;
      for (RunningError const& error : errors) bounds.push_back(error.of_p / RunningError::u);
      check_roundings(what + " in float", got, expected, bounds, 1.05);  // 5 % for products of errors
    }
  }
}

template <class Method>
void check_path(FixtureCase const& c, RankGrid<All> const& ranks, Method const& method) {
  check_path<double>(c, ranks, method);
  check_path<float>(c, ranks, method);
}

/// Clips as a step of 1 shows: the parameters start at 0 and become minus the clipped gradients.
template <class T>
void check_clip(FixtureCase const& c, RankGrid<All> const& ranks) {
  std::vector<Parameter<T, Host>> parameters;
  std::vector<Parameter<T, Host>*> list;
  for (std::string const key : {"g0", "g1", "g2"})
    parameters.push_back(vector_parameter<T>(ranks, key, std::vector<double>(c[key].values.size(), 0.0)));
  for (auto& p : parameters) {
    std::vector<T> gradient;
    for (double const value : c[p.name()].values) gradient.push_back(static_cast<T>(value / ranks.size()));
    set_gradient(p, gradient);
    p.start_reduction();
    list.push_back(&p);
  }
  double const most = c.number("clip_norm"), norm = c.number("norm");
  Optimizer<T, Host, Sgd> optimizer(Sgd{.rate = 1.0});
  double const measured = optimizer.step(list, ranks.world(), 1.0, most);
  // Rounding its terms to float moves the norm by no more than the norm of the changes.
  CHECK(std::abs(measured - norm) <= (std::is_same_v<T, double> ? 1e-12 : 0x1p-24 * 1.01) * norm);
  for (std::size_t k = 0; k < 3; ++k) {
    // PyTorch multiplies by most / (norm + 1e-6), a guard against a norm of 0, and so by min(1, that), where the
    // definition (Pascanu et al., "On the difficulty of training recurrent neural networks", 2013) has most / norm.
    Array expected = c["clipped" + std::to_string(k)];
    double const theirs = std::min(1.0, most / (norm + 1e-6)), ours = std::min(1.0, most / norm);
    for (double& value : expected.values) value *= -ours / theirs;
    std::vector<T> const moved = parameters[k].download();
    std::vector<double> const got(moved.begin(), moved.end());
    if constexpr (std::is_same_v<T, double>)
      check_norm_wise(c.name, got, expected);
    else
      check_roundings(c.name + " in float", got, expected, expected.magnitude().values, 4);  // g, norm, scale, product
  }
}

}  // namespace

TEST_CASE("optimizers step as PyTorch's do, and clip as it does") {
  RankGrid<All> const ranks = world_ranks();
  for (FixtureCase const& c : read_fixture("optimizer")) {
    INFO(c.name);
    if (c.kind == "sgd") {
      check_path(c, ranks,
                 Sgd{.rate = c.number("rate"),
                     .momentum = c.number("momentum"),
                     .weight_decay = c.number("weight_decay"),
                     .nesterov = c.number("nesterov") != 0.0});
    } else if (c.kind == "adam") {
      check_path(c, ranks,
                 Adam{.rate = c.number("rate"),
                      .beta1 = c.number("beta1"),
                      .beta2 = c.number("beta2"),
                      .epsilon = c.number("epsilon"),
                      .weight_decay = c.number("weight_decay")});
    } else {
      check_clip<double>(c, ranks);
      check_clip<float>(c, ranks);
    }
  }
}

namespace {

/// A parameter of which the ranks hold shards: along `axis`, by their coordinate on the grid's axis `by`. Ranks that
/// differ along other axes hold the same.
struct Sharding {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<int> stored_order;
  std::size_t axis;
  std::vector<AxisId> by;  ///< none: replicated on all ranks
};

struct Sharded {
  Sharding how;
  Parameter<double, Host> parameter;
  std::vector<double> gradient;  ///< of this rank's shard, after the sum over its replicas; PyTorch's order
};

/// A whole number that tells rank, parameter and element apart, so that sums are exact.
double contribution(std::int64_t rank, std::size_t which, std::int64_t element) {
  return static_cast<double>((1 + rank) * 100 + 10 * static_cast<std::int64_t>(which) - 7 * element);
}

std::vector<std::int64_t> elements_of(std::vector<Interval> const& shard, std::vector<std::int64_t> const& shape) {
  std::vector<std::int64_t> list;
  for (std::int64_t i = shard[0].begin; i < shard[0].end; ++i)
    for (std::int64_t j = shard[1].begin; j < shard[1].end; ++j) list.push_back(i * shape[1] + j);
  return list;
}

/// Shards as this grid gives them to a rank, and the rank's block number among them.
std::vector<Interval> shard_of(Sharding const& how, Grid const& grid, std::int64_t rank) {
  std::vector<Interval> shard{{0, how.shape[0]}, {0, how.shape[1]}};
  std::int64_t parts = 1, part = 0;
  for (AxisId axis : how.by) {
    parts *= grid.counts()[axis];
    part = part * grid.counts()[axis] + grid.coordinates(rank)[axis];
  }
  shard[how.axis] = block_range(how.shape[how.axis], parts, part);
  return shard;
}

AxisSet others(std::vector<AxisId> const& by) {
  bool const depth = std::find(by.begin(), by.end(), AxisId::depth) != by.end(),
             width = std::find(by.begin(), by.end(), AxisId::width) != by.end();
  if (depth && width) return {};
  if (depth) return {AxisId::width};
  if (width) return {AxisId::depth};
  return all_axes;
}

/// All kinds of shards at once, each rank's gradient given, none summed yet; and the norm of the sums.
std::vector<Sharded> shards(RankGrid<All> const& ranks, double& norm) {
  std::vector<Sharding> const kinds{
      {"whole", {3, 2}, {0, 1}, 0, {}},
      {"by depth, uneven", {5, 3}, {0, 1}, 0, {AxisId::depth}},
      {"by width, along the second axis, stored in the other order", {4, 3}, {1, 0}, 1, {AxisId::width}},
      {"by depth, all of it on one half of the ranks", {1, 4}, {0, 1}, 0, {AxisId::depth}},
      {"by depth and width", {6, 2}, {0, 1}, 0, {AxisId::depth, AxisId::width}},
      {"by depth and width, empty on some", {3, 1}, {0, 1}, 0, {AxisId::depth, AxisId::width}}};
  std::vector<Sharded> all;
  double squares = 0.0;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    Sharding const& how = kinds[k];
    auto const mine = shard_of(how, ranks.grid(), ranks.rank());
    all.push_back(
        {how,
         {how.name, {how.name, how.shape, how.stored_order, Initial::value(1.0)}, mine, ranks.group(others(how.by))},
         {}});
    all.back().parameter.allocate(0);
    std::vector<double> here;
    for (std::int64_t const element : elements_of(mine, how.shape))
      here.push_back(contribution(ranks.rank(), k, element));
    set_gradient(all.back().parameter, here);

    std::vector<double> whole(static_cast<std::size_t>(how.shape[0] * how.shape[1]), 0.0);
    for (std::int64_t rank = 0; rank < ranks.size(); ++rank)
      for (std::int64_t const element : elements_of(shard_of(how, ranks.grid(), rank), how.shape))
        whole[static_cast<std::size_t>(element)] += contribution(rank, k, element);
    for (double const value : whole) squares += value * value;
    for (std::int64_t const element : elements_of(mine, how.shape))
      all.back().gradient.push_back(whole[static_cast<std::size_t>(element)]);
  }
  norm = std::sqrt(squares);  // of a whole number
  return all;
}

std::vector<Parameter<double, Host>*> pointers(std::vector<Sharded>& all) {
  std::vector<Parameter<double, Host>*> list;
  for (Sharded& one : all) list.push_back(&one.parameter);
  return list;
}

}  // namespace

TEST_CASE("a reduction sums equal shards alone, and a norm counts each shard once") {
  RankGrid<All> const ranks = world_ranks();
  double norm = 0.0;
  auto all = shards(ranks, norm);
  for (Sharded& one : all) one.parameter.start_reduction();
  for (Sharded& one : all) one.parameter.finish_reduction();
  for (Sharded const& one : all) {
    INFO(one.how.name);
    CHECK(one.parameter.download_gradient() == one.gradient);
  }
  CHECK(gradient_norm(pointers(all), ranks.world()) == norm);
}

TEST_CASE("the norm of each shard by itself is found, whichever ranks hold it") {
  RankGrid<All> const ranks = world_ranks();
  double together = 0.0;
  auto all = shards(ranks, together);
  double squares = 0.0;
  for (Sharded& one : all) {
    one.parameter.start_reduction();
    one.parameter.finish_reduction();
    double const norm = gradient_norm<double, Host>({&one.parameter}, ranks.world());
    squares += norm * norm;
  }
  CHECK(std::sqrt(squares) == doctest::Approx(together).epsilon(1e-14));
}

TEST_CASE("a step clips all shards by the norm of all together, before weight decay") {
  RankGrid<All> const ranks = world_ranks();
  struct Limit {
    double of_norm, scale;
  };
  for (Limit const limit : {Limit{0.25, 0.25}, Limit{2.0, 1.0}, Limit{0.0, 1.0}}) {
    INFO("limit " << limit.of_norm << " of the norm");
    double norm = 0.0;
    auto all = shards(ranks, norm);
    for (Sharded& one : all) one.parameter.start_reduction();
    Optimizer<double, Host, Sgd> optimizer(Sgd{.rate = 0.5, .weight_decay = 0.25});
    double const returned = optimizer.step(pointers(all), ranks.world(), 1.0, limit.of_norm * norm);
    CHECK(returned == (limit.of_norm > 0.0 ? norm : 0.0));
    CHECK(optimizer.steps() == 1);
    for (Sharded const& one : all) {
      INFO(one.how.name);
      std::vector<double> expected;
      for (double const g : one.gradient) expected.push_back(1.0 - 0.5 * (limit.scale * g + 0.25));
      CHECK(one.parameter.download() == expected);
      CHECK(one.parameter.download_gradient() == one.gradient);
    }
  }
}
