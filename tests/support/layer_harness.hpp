// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "support/distributed_property.hpp"
#include "support/host_tensor.hpp"
#include "tessera/comm/rank_grid.hpp"
#include "tessera/core/error.hpp"
#include "tessera/layer/layer.hpp"
#include "tessera/model/binding.hpp"

/// Drives one layer on its own: binds a spec, fills what this rank owns from whole tensors, runs forward and backward,
/// and compares what the rank owns with whole tensors. All memory that the layer sees is poisoned first.
namespace tessera::test {

using Host = Kokkos::DefaultHostExecutionSpace;
/// Cut along any mix of axes, at run time.
using AnySplit = Distribution<axes::Sample, axes::Channel, axes::Depth, axes::Height, axes::Width>;

inline RankGrid<AnySplit> world_ranks() {
  auto const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  return {world, Counts{.width = world.size()}};
}
inline RankGrid<AnySplit> self_ranks() { return {Communicator<Mpi>::borrow(MPI_COMM_SELF), Counts{}}; }

/// From now on fresh memory is full of large garbage, where the C library can do that.
inline void poison_fresh_memory() {
#if defined(__GLIBC__)
  mallopt(M_PERTURB, 1);
#endif
}

template <class T>
constexpr double unit_roundoff = static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;

/// Higham's gamma_n in T, plus the same of the oracle in double: the relative error of a sum of products of n terms in
/// any order, with `n` of a few more for the operations around the sum.
template <class T>
double gamma_n(std::int64_t n) {
  double const a = static_cast<double>(n) * unit_roundoff<T>, b = static_cast<double>(n) * unit_roundoff<double>;
  return a / (1 - a) + b / (1 - b);
}

/// Whether `got` is within `bound` of `expected`; NaN and infinities must agree.
inline bool near(double got, double expected, double bound) {
  if (std::isnan(expected)) return std::isnan(got);
  if (std::isinf(expected)) return got == expected;
  return std::abs(got - expected) <= bound;
}

inline void expect(bool holds, std::string const& what) {
  if (!holds) throw Error(what);
}

/// Runs checks that may fail on some ranks only. All ranks go on, or all throw what the lowest failing rank says:
/// nobody is left waiting in what comes next. Collective.
template <class F>
void together(F const& checks) {
  auto const all = detail::agreed(detail::opinion_on(checks), MPI_COMM_WORLD);
  if (all.verdict != detail::holds) throw Error(all.reason);
}

template <class Visit>
void for_each_cell(Box const& box, Visit visit) {
  if (box.empty()) return;
  auto const& a = box.axis;
  for (std::int64_t n = a[0].begin; n < a[0].end; ++n)
    for (std::int64_t d = a[1].begin; d < a[1].end; ++d)
      for (std::int64_t h = a[2].begin; h < a[2].end; ++h)
        for (std::int64_t w = a[3].begin; w < a[3].end; ++w)
          for (std::int64_t c = a[4].begin; c < a[4].end; ++c) visit(n, d, h, w, c);
}

/// Compares what the rank owns with the whole tensor; bound(cell number) says how far off a cell may be.
template <class T, class Bound>
void expect_owned(std::string const& what, Shard<T, Host> const& shard, HostTensor const& whole, Bound bound) {
  expect(shard.shape() == whole.shape,
         tessera::detail::text(what, " has shape ", shard.shape(), ", expected ", whole.shape));
  for_each_cell(shard.owned(), [&](auto n, auto d, auto h, auto w, auto c) {
    double const got = static_cast<double>(shard(n, d, h, w, c)), expected = whole.at(n, d, h, w, c),
                 allowed = bound(whole.index(n, d, h, w, c));
    if (!near(got, expected, allowed))
      throw Error(tessera::detail::text(what, " at (", n, ", ", d, ", ", h, ", ", w, ", ", c, ") is ", got,
                                        ", expected ", expected, ", allowed error ", allowed));
  });
}

inline void expect_values(std::string const& what, std::vector<double> const& got, std::vector<double> const& expected,
                          std::vector<double> const& bounds) {
  expect(got.size() == expected.size(),
         tessera::detail::text(what, " has ", got.size(), " values, expected ", expected.size()));
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!near(got[i], expected[i], bounds[i]))
      throw Error(tessera::detail::text(what, "[", i, "] is ", got[i], ", expected ", expected[i], ", allowed error ",
                                        bounds[i]));
}

template <class T>
bool same_bits(T const& a, T const& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// What the rank owns must have the bits that another shard, which holds more, has there.
template <class T>
void expect_same_bits(std::string const& what, Shard<T, Host> const& part, Shard<T, Host> const& whole) {
  for_each_cell(part.owned(), [&](auto n, auto d, auto h, auto w, auto c) {
    if (!same_bits(part(n, d, h, w, c), whole(n, d, h, w, c)))
      throw Error(tessera::detail::text(what, " at (", n, ", ", d, ", ", h, ", ", w, ", ", c, ") is ",
                                        part(n, d, h, w, c), " but ", whole(n, d, h, w, c), " on one rank"));
  });
}

/// A layer under test on this rank.
template <class T>
class Driver {
 public:
  using Tensor = Shard<T, Host>;

  /// Binds and allocates for batches of up to the one of `largest`. Every rank must call it.
  template <PartitionPolicy Policy, class Spec>
  Driver(RankGrid<Policy> const& ranks, Partition const& largest, Spec const& spec) : rank_(ranks.rank()) {
    LayerNames names;
    layer_ = tessera::detail::bind_layer<T, Host>(ranks, largest, spec, names);
    layer_->for_each_parameter([](Parameter<T, Host>& p) { p.allocate(0); });
    layer_->allocate(largest);
  }

  Layer<T, Host>& layer() { return *layer_; }
  Tensor const& x() const { return x_; }
  Tensor const& y() const { return y_; }
  Tensor const& dy() const { return dy_; }
  Tensor const& dx() const { return dx_; }

  /// Sets the first parameter whose name ends so, in PyTorch's order.
  void set(std::string const& ending, std::vector<double> const& values) {
    find(ending).set(std::vector<T>(values.begin(), values.end()));
  }
  std::vector<double> gradient(std::string const& ending) {
    auto const values = find(ending).download_gradient();
    return {values.begin(), values.end()};
  }
  /// The same where ranks hold shards of a parameter: each takes its part of the whole.
  void set_shard(std::string const& ending, std::vector<double> const& whole) {
    Parameter<T, Host>& p = find(ending);
    std::vector<double> const part = shard_of(p, whole);
    p.set(std::vector<T>(part.begin(), part.end()));
  }
  /// The whole parameter's gradient, on every rank. Each element must be counted by one rank, and have the same
  /// gradient on all that hold it. Collective over `ranks`, all of the layer's.
  std::vector<double> whole_gradient(std::string const& ending, Communicator<Mpi> const& ranks) {
    Parameter<T, Host>& p = find(ending);
    std::vector<double> const part = gradient(ending);
    std::vector<double> whole(static_cast<std::size_t>(p.whole_count()), 0.0), counted(whole);
    if (p.counted_here()) {
      std::size_t next = 0;
      for_each_in_shard(p, [&](std::size_t i) {
        whole[i] = part.at(next++);
        counted[i] = 1.0;
      });
    }
    ranks.all_reduce(whole.data(), p.whole_count());
    ranks.all_reduce(counted.data(), p.whole_count());
    for (double const ranks_that_count : counted)
      expect(ranks_that_count == 1.0, tessera::detail::text(ranks_that_count, " ranks count an element of ", ending));
    note(
        [&] { expect_values("shard of d" + ending, part, shard_of(p, whole), std::vector<double>(part.size(), 0.0)); });
    return whole;
  }
  /// Compares the gradient of this rank's shard with the whole parameter's.
  void expect_gradient(std::string const& what, std::string const& ending, std::vector<double> const& whole,
                       std::vector<double> const& bounds) {
    Parameter<T, Host>& p = find(ending);
    expect_values(what, gradient(ending), shard_of(p, whole), shard_of(p, bounds));
  }

  void forward(Partition const& input, HostTensor const& x, Pass const& pass = {}) {
    x_ = Tensor(input, rank_, hull(layer_->needs_input(input), widened(input.owned(rank_))));
    Partition const out = layer_->output(input);
    y_ = Tensor(out, rank_, widened(out.owned(rank_)));
    check_cover(out);
    poison(x_);
    poison(y_);
    fill_owned(x_, x);
    layer_->forward(pass, x_, y_);
    note([&] {
      expect_untouched("y", y_);
      expect_owned("x after forward", x_, x, [](std::size_t) { return 0.0; });
    });
  }

  /// dx is written, or added to `start` if there is one; without_dx as for a network's first layer. Gradients are
  /// summed over the ranks.
  void backward(HostTensor const& dy, Pass const& pass = {}, HostTensor const* start = nullptr,
                bool without_dx = false) {
    Partition const& input = x_.partition();
    Partition const out = layer_->output(input);
    dy_ = Tensor(out, rank_, hull(layer_->needs_error(input), widened(out.owned(rank_))));
    dx_ = Tensor(input, rank_, widened(input.owned(rank_)));
    poison(dy_);
    poison(dx_);
    fill_owned(dy_, dy);
    if (start != nullptr) fill_owned(dx_, *start);
    layer_->for_each_parameter([](Parameter<T, Host>& p) { p.zero_gradient(Host()); });
    layer_->backward(pass, x_, y_, dy_, without_dx ? nullptr : &dx_,
                     start != nullptr ? Accumulate::add : Accumulate::write);
    layer_->for_each_parameter([](Parameter<T, Host>& p) { p.start_reduction(); });
    layer_->for_each_parameter([](Parameter<T, Host>& p) { p.finish_reduction(); });
    note([&] {
      expect_untouched("dx", dx_);
      expect_owned("dy after backward", dy_, dy, [](std::size_t) { return 0.0; });
    });
  }

  /// The elements of a whole parameter, in PyTorch's order, that lie in this rank's shard.
  static std::vector<double> shard_of(Parameter<T, Host> const& p, std::vector<double> const& whole) {
    expect(static_cast<std::int64_t>(whole.size()) == p.whole_count(),
           tessera::detail::text(p.name(), " has ", p.whole_count(), " elements, but ", whole.size(), " are given"));
    std::vector<double> part;
    for_each_in_shard(p, [&](std::size_t i) { part.push_back(whole[i]); });
    return part;
  }

  /// Throws what was wrong, on this rank, with cells that the layer had no business to write.
  void expect_clean() const { expect(failure_.empty(), failure_); }

 private:
  static constexpr T nan = std::numeric_limits<T>::quiet_NaN();

  /// Keeps the first failure for later: the other ranks go on.
  template <class F>
  void note(F const& checks) {
    try {
      checks();
    } catch (Error const& error) {
      if (failure_.empty()) failure_ = error.what();
    }
  }

  Parameter<T, Host>& find(std::string const& ending) {
    Parameter<T, Host>* found = nullptr;
    layer_->for_each_parameter([&](Parameter<T, Host>& p) {
      if (found == nullptr && p.name().ends_with(ending)) found = &p;
    });
    require(found != nullptr, "Driver", "the layer has no parameter ", ending);
    return *found;
  }

  /// visit(i) for the elements of the whole parameter, in PyTorch's order, that lie in this rank's shard.
  template <class Visit>
  static void for_each_in_shard(Parameter<T, Host> const& p, Visit visit) {
    auto const& shape = p.shape();
    for (std::int64_t i = 0; i < p.whole_count(); ++i) {
      std::int64_t rest = i;
      bool inside = true;
      for (std::size_t axis = shape.size(); axis-- > 0; rest /= shape[axis])
        inside = inside && p.shard()[axis].contains(rest % shape[axis]);
      if (inside) visit(static_cast<std::size_t>(i));
    }
  }

  /// Tensors in a network hold more than what is owned; here one cell more in each direction.
  static Box widened(Box box) {
    if (box.empty()) return box;
    for (int a = 1; a < 4; ++a) box.axis[a] = {box.axis[a].begin - 1, box.axis[a].end + 1};
    return box;
  }

  static void poison(Tensor const& shard) {
    for_each_cell(shard.held(), [&](auto n, auto d, auto h, auto w, auto c) { shard(n, d, h, w, c) = nan; });
  }

  static void fill_owned(Tensor const& shard, HostTensor const& from) {
    expect(shard.shape() == from.shape,
           tessera::detail::text("the shape is ", shard.shape(), ", expected ", from.shape));
    for_each_cell(shard.owned(), [&](auto n, auto d, auto h, auto w, auto c) {
      shard(n, d, h, w, c) = static_cast<T>(from.at(n, d, h, w, c));
    });
  }

  /// A layer writes what the rank owns and nothing else.
  static void expect_untouched(char const* what, Tensor const& shard) {
    for_each_cell(shard.held(), [&](auto n, auto d, auto h, auto w, auto c) {
      Box const cell{{{n, n + 1}, {d, d + 1}, {h, h + 1}, {w, w + 1}, {c, c + 1}}};
      if (!shard.owned().contains(cell) && !std::isnan(shard(n, d, h, w, c)))
        throw Error(tessera::detail::text(what, " was written outside the owned box, at ", cell));
    });
  }

  /// Owned boxes are disjoint by their blocks; together they must be the whole tensor.
  static void check_cover(Partition const& partition) {
    std::int64_t cells = 0;
    for (std::int64_t rank = 0; rank < partition.grid().size(); ++rank) cells += partition.owned(rank).volume();
    expect(cells == partition.shape().volume(), "the owned boxes do not make up the tensor");
  }

  int rank_;
  std::unique_ptr<Layer<T, Host>> layer_;
  Tensor x_, y_, dy_, dx_;
  std::string failure_;
};

}  // namespace tessera::test
