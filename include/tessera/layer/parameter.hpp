// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/ranks.hpp"
#include "tessera/op/random.hpp"
#include "tessera/partition/interval.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/storage.hpp"

namespace tessera {

/// How a parameter starts: a constant, or uniform in [-bound, bound).
struct Initial {
  double constant = 0.0;
  double bound = 0.0;

  static Initial value(double constant) { return {constant, 0.0}; }
  static Initial uniform(double bound) { return {0.0, bound}; }

  /// Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010.
  static Initial glorot(std::int64_t fan_in, std::int64_t fan_out) {
    return uniform(std::sqrt(6.0 / static_cast<double>(fan_in + fan_out)));
  }
};

/// What a layer asks for: a whole parameter, with its shape in PyTorch's order of axes, and the order in which kernels
/// want those axes stored (slowest first).
struct ParameterSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<int> stored_order;
  Initial initial;
  std::vector<std::int64_t> file_shape = {};  ///< where PyTorch sees several axes as one; empty: as `shape`
};

/// A parameter: this rank's shard of it (by default all of it), and the shard's gradient. The shard is a box of the
/// whole parameter; ranks of `replicas` hold the same shard, each with a gradient from its own data.
template <class T, class Space>
class Parameter {
 public:
  Parameter(std::string name, ParameterSpec spec, std::vector<Interval> shard, Communicator<Mpi> const& replicas)
      : name_(std::move(name)), spec_(std::move(spec)), shard_(std::move(shard)), replicas_(replicas) {
    for (std::int64_t const extent : spec_.shape) whole_count_ *= extent;
    for (Interval const& part : shard_) count_ *= part.size();
  }

  /// A parameter that every rank holds whole.
  static Parameter replicated(std::string name, ParameterSpec spec, Ranks const& ranks) {
    std::vector<Interval> shard;
    for (std::int64_t const extent : spec.shape) shard.push_back({0, extent});
    return Parameter(std::move(name), std::move(spec), std::move(shard), ranks.world());
  }

  std::string const& name() const { return name_; }
  /// The whole parameter's shape, in PyTorch's order of axes.
  std::vector<std::int64_t> const& shape() const { return spec_.shape; }
  /// The same as files have it.
  std::vector<std::int64_t> const& file_shape() const { return spec_.file_shape.empty() ? shape() : spec_.file_shape; }
  std::vector<Interval> const& shard() const { return shard_; }
  std::int64_t count() const { return count_; }              ///< elements of this rank's shard
  std::int64_t whole_count() const { return whole_count_; }  ///< elements of the whole parameter
  /// Whether this rank lacks a part of it. Ranks may differ: one may hold all of a parameter, and another nothing.
  bool sharded() const { return count_ != whole_count_; }

  T* value() const { return value_.data(); }
  Storage<T, Space> const& storage() const { return value_; }
  T* gradient() const { return gradient_.data(); }
  bool allocated() const { return value_.capacity() > 0 || count_ == 0; }

  /// A frozen parameter keeps its values: it has no gradient, and optimizers pass it over. Before allocate().
  void freeze() { trainable_ = false; }
  bool trainable() const { return trainable_; }

  /// The ranks that hold this shard. Its first rank counts the shard in norms and sums over the whole model.
  Communicator<Mpi> const& replicas() const { return replicas_; }
  bool counted_here() const { return replicas_.rank() == 0; }

  /// Memory, and initial values that depend on the seed, the name and the position within the whole parameter alone.
  void allocate(std::uint64_t seed) {
    value_.grow(count_);
    if (trainable_) gradient_.grow(count_);
    RandomStream const random = random_stream(seed, name_);
    std::vector<T> start(static_cast<std::size_t>(count_));
    for_each([&](std::int64_t logical, std::int64_t stored) {
      double const drawn =
          spec_.initial.bound > 0.0 ? random.uniform(logical, spec_.initial.bound) : spec_.initial.constant;
      start[static_cast<std::size_t>(stored)] = static_cast<T>(drawn);
    });
    upload(start, value_);
    zero_gradient(Space());
  }

  void zero_gradient(Space const& space) const {
    if (!trainable_) return;
    fill_flat(space, gradient(), count_, T(0));
    space.fence("tessera::Parameter");
  }

  /// Begins to sum the gradient over the ranks that hold this shard; does nothing if that is under way. Every one of
  /// them must begin its parameters in the same order.
  void start_reduction() {
    if (reducing_ || !trainable_) return;
    reducing_ = true;
    T* cells = gradient();
    if constexpr (!host_can_access<Space>) {
      on_host_.resize(static_cast<std::size_t>(count_));
      copy_flat<Host, Space, T>(on_host_.data(), gradient(), count_);
      cells = on_host_.data();
    }
    replicas_.start_all_reduce(cells, count_, request_);
  }

  /// Waits for the sum.
  void finish_reduction() {
    if (!reducing_) return;
    request_.wait();
    if constexpr (!host_can_access<Space>) copy_flat<Space, Host, T>(gradient(), on_host_.data(), count_);
    reducing_ = false;
  }

  Request<Mpi>& request() { return request_; }

  /// A hash of the shard's bits.
  std::uint64_t checksum() const {
    std::vector<T> stored(static_cast<std::size_t>(count_));
    copy_flat<Host, Space, T>(stored.data(), value(), count_);
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (T const element : stored) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, &element, sizeof element);
      hash = (hash ^ bits) * 0x100000001b3u;
    }
    return hash;
  }

  /// The shard's values in PyTorch's order of axes.
  std::vector<T> download() const { return in_logical_order(value_); }
  /// The same of other numbers, one per element and stored as the values are: what an optimizer keeps.
  std::vector<T> download(Storage<T, Space> const& alike) const { return in_logical_order(alike); }
  std::vector<T> download_gradient() const {
    require(trainable_, "Parameter::download_gradient", name_, " is frozen, and has no gradient");
    return in_logical_order(gradient_);
  }

  /// The whole parameter in PyTorch's order, on every rank. Collective over `ranks`, all ranks of the model.
  std::vector<T> download_whole(Communicator<Mpi> const& ranks) const {
    if (replicas_.size() == ranks.size()) return download();
    std::vector<T> whole(static_cast<std::size_t>(whole_count_), T(0));
    if (counted_here()) {
      std::vector<T> const part = download();
      std::size_t next = 0;
      for_each([&](std::int64_t logical, std::int64_t) { whole[static_cast<std::size_t>(logical)] = part[next++]; });
    }
    ranks.all_reduce(whole.data(), whole_count_);
    return whole;
  }

  /// Sets the shard to its part of a whole parameter.
  void set_from_whole(std::vector<T> const& whole) const {
    require(static_cast<std::int64_t>(whole.size()) == whole_count_, "Parameter::set_from_whole", name_, " has ",
            whole_count_, " elements, but ", whole.size(), " were given");
    std::vector<T> part;
    for_each([&](std::int64_t logical, std::int64_t) { part.push_back(whole[static_cast<std::size_t>(logical)]); });
    set(part);
  }

  /// Sets the shard's values, given in PyTorch's order of axes.
  void set(std::vector<T> const& values) const { set(values, value_); }
  /// The same for other numbers that are stored as the values are.
  void set(std::vector<T> const& values, Storage<T, Space> const& alike) const {
    require(static_cast<std::int64_t>(values.size()) == count_, "Parameter::set", name_, " has ", count_,
            " elements here, but ", values.size(), " were given");
    std::vector<T> stored(values.size());
    for_each_place([&](std::int64_t logical, std::int64_t at) {
      stored[static_cast<std::size_t>(at)] = values[static_cast<std::size_t>(logical)];
    });
    upload(stored, alike);
  }

 private:
  using Host = Kokkos::DefaultHostExecutionSpace;

  /// visit(index within the whole parameter, place in this rank's memory) for the shard, in PyTorch's order.
  template <class Visit>
  void for_each(Visit visit) const {
    std::size_t const axes = shard_.size();
    std::vector<std::int64_t> stride(axes, 1);
    std::int64_t step = 1;
    for (std::size_t i = axes; i-- > 0;) {
      auto const axis = static_cast<std::size_t>(spec_.stored_order[i]);
      stride[axis] = step;
      step *= shard_[axis].size();
    }
    std::vector<std::int64_t> at(axes, 0);
    for (std::int64_t i = 0; i < count_; ++i) {
      std::int64_t logical = 0, stored = 0;
      for (std::size_t axis = 0; axis < axes; ++axis) {
        logical = logical * spec_.shape[axis] + shard_[axis].begin + at[axis];
        stored += at[axis] * stride[axis];
      }
      visit(logical, stored);
      for (std::size_t axis = axes; axis-- > 0;) {
        if (++at[axis] < shard_[axis].size()) break;
        at[axis] = 0;
      }
    }
  }

  /// visit(place in the shard in PyTorch's order, place in this rank's memory), in an order that is kind to caches: a
  /// few neighbours in memory at a time.
  template <class Visit>
  void for_each_place(Visit visit) const {
    if (count_ == 0) return;
    std::size_t const axes = shard_.size();
    std::vector<std::int64_t> logical_step(axes, 1), stored_step(axes, 1), at(axes, 0);
    for (std::size_t i = axes, logical = 1, stored = 1; i-- > 0;) {
      auto const axis = static_cast<std::size_t>(spec_.stored_order[i]);
      logical_step[i] = static_cast<std::int64_t>(logical);
      stored_step[axis] = static_cast<std::int64_t>(stored);
      logical *= static_cast<std::size_t>(shard_[i].size());
      stored *= static_cast<std::size_t>(shard_[axis].size());
    }
    auto const unit = static_cast<std::size_t>(spec_.stored_order.back());
    std::int64_t const all = shard_[unit].size(), width = unit + 1 == axes ? all : 16;
    for (std::int64_t begin = 0; begin < all; begin += width) {
      std::int64_t const end = smaller(begin + width, all);
      std::int64_t logical = 0, stored = 0;
      for (bool more = true; more;) {
        for (std::int64_t i = begin; i < end; ++i) visit(logical + i * logical_step[unit], stored + i);
        more = false;
        for (std::size_t axis = axes; axis-- > 0 && !more;) {
          if (axis == unit) continue;
          more = ++at[axis] < shard_[axis].size();
          logical += more ? logical_step[axis] : (1 - at[axis]) * logical_step[axis];
          stored += more ? stored_step[axis] : (1 - at[axis]) * stored_step[axis];
          if (!more) at[axis] = 0;
        }
      }
    }
  }

  void upload(std::vector<T> const& stored, Storage<T, Space> const& to) const {
    copy_flat<Space, Host>(to.data(), stored.data(), count_);
  }

  std::vector<T> in_logical_order(Storage<T, Space> const& storage) const {
    std::vector<T> stored(static_cast<std::size_t>(count_)), logical(stored.size());
    copy_flat<Host, Space, T>(stored.data(), storage.data(), count_);
    for_each_place([&](std::int64_t to, std::int64_t at) {
      logical[static_cast<std::size_t>(to)] = stored[static_cast<std::size_t>(at)];
    });
    return logical;
  }

  std::string name_;
  ParameterSpec spec_;
  std::vector<Interval> shard_;
  Communicator<Mpi> replicas_;
  std::int64_t count_ = 1;
  std::int64_t whole_count_ = 1;
  Storage<T, Space> value_;
  Storage<T, Space> gradient_;
  std::vector<T> on_host_;  ///< of the gradient, where MPI cannot reach it
  Request<Mpi> request_;
  bool reducing_ = false;
  bool trainable_ = true;
};

}  // namespace tessera
