// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/rank_grid.hpp"
#include "tessera/core/error.hpp"
#include "tessera/layer/channel_affine.hpp"
#include "tessera/layer/layer.hpp"
#include "tessera/op/norm.hpp"
#include "tessera/op/reduce.hpp"

namespace tessera {

/// Over which ranks the statistics of a batch are taken.
enum class Statistics {
  global,  ///< all ranks: the same numbers as on one rank
  space,   ///< the ranks that share samples
  local    ///< this rank's cells alone
};

/// Options of batch_norm. Running statistics move as in PyTorch: (1 - momentum) old + momentum new, with the unbiased
/// variance.
struct BatchNormOptions {
  Statistics statistics = Statistics::global;
  double epsilon = 1e-5;
  double momentum = 0.1;
};

/// Batch normalisation bound to its ranks.
///
/// Moves: per channel, two doubles in training forward and two backward; nothing in inference.
/// Source: Ioffe and Szegedy, "Batch Normalization", 2015; two-pass statistics in double.
template <class T, class Space>
class BatchNorm : public Layer<T, Space> {
 public:
  BatchNorm(Ranks const& ranks, Shape const& input, BatchNormOptions const& options, std::string name)
      : ranks_(ranks),
        options_(options),
        name_(std::move(name)),
        channels_(input.channel),
        affine_(ranks, name_, channels_, true),
        running_mean_(static_cast<std::size_t>(channels_), 0.0),
        running_variance_(static_cast<std::size_t>(channels_), 1.0) {
    require(options_.epsilon > 0.0, name_, "epsilon must be positive, it is ", options_.epsilon);
    require(0.0 <= options_.momentum && options_.momentum <= 1.0, name_, "momentum must be within [0, 1], it is ",
            options_.momentum);
    if (options_.statistics == Statistics::space) ranks.group(within_sample);  // made here, in the order of binding
  }

  Partition output(Partition const& input) const override { return input; }

  void allocate(Partition const& input) override {
    auto const c = static_cast<std::size_t>(channels_);
    std::int64_t const own = input.owned(ranks_.rank())[AxisId::channel].size();
    for (auto* list : {&mean_, &variance_}) list->assign(c, 0.0);
    sums_by_channel_.resize(2 * c);
    device_mean_.grow(own);
    tables_.grow(5 * own);
    staging_.resize(static_cast<std::size_t>(5 * own));
    affine_.allocate();
  }

  void forward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y) override {
    if (pass.mode == Mode::training) {
      measure(x, pass.running_momentum >= 0.0 ? pass.running_momentum : options_.momentum);
    } else {
      mean_ = running_mean_;
      variance_ = running_variance_;
    }
    Interval const own = channels_of(x);
    auto const count = static_cast<std::size_t>(own.size());
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t const c = i + static_cast<std::size_t>(own.begin);
      T const high = static_cast<T>(mean_[c]);
      staging_[i] = high;
      staging_[count + i] = static_cast<T>(mean_[c] - static_cast<double>(high));
      staging_[2 * count + i] = static_cast<T>(1.0 / std::sqrt(variance_[c] + options_.epsilon));
    }
    upload(staging_.data(), tables_.data(), 3 * own.size());
    for_each_position(
        "tessera::batch_norm", space_, y.owned(),
        op::Normalise<T>{x.tile(), y.tile(), scale(own), affine_.scale() + own.begin, affine_.shift() + own.begin});
  }

  void backward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const&, Shard<T, Space> const& dy,
                Shard<T, Space> const* dx, Accumulate accumulate) override {
    Interval const own = channels_of(x);
    auto const count = static_cast<std::size_t>(own.size()), all = static_cast<std::size_t>(channels_);
    double const* const sums =
        sums_.over(space_, dy.owned(), 2 * own.size(), op::NormErrorSums<T>{x.tile(), dy.tile(), scale(own)});
    affine_.add_to_gradients(own, sums + count, sums);
    if (dx == nullptr) return;
    auto const begin = static_cast<std::size_t>(own.begin);
    bool const training = pass.mode == Mode::training;
    double const values = static_cast<double>(cells(x));
    sums_by_channel_.assign(2 * all, 0.0);
    for (std::size_t half = 0; half < 2; ++half)
      std::copy_n(sums + half * count, count, sums_by_channel_.data() + half * all + begin);
    if (training) reduce(sums_by_channel_.data(), 2 * channels_);
    T const* const gamma = affine_.scale_of(own);
    for (std::size_t half = 0; half < 2; ++half)
      for (std::size_t i = 0; i < count; ++i)
        staging_[half * count + i] =
            training && values > 0
                ? static_cast<T>(static_cast<double>(gamma[i]) * sums_by_channel_[half * all + begin + i] / values)
                : T(0);
    T* const shares = tables_.data() + 3 * own.size();
    upload(staging_.data(), shares, 2 * own.size());
    for_each_position("tessera::batch_norm", space_, dx->owned(),
                      op::NormaliseBackward<T>{x.tile(), dy.tile(), dx->tile(), scale(own), affine_.scale() + own.begin,
                                               shares, shares + own.size(), accumulate});
  }

  void for_each_parameter(std::function<void(Parameter<T, Space>&)> const& visit) override {
    affine_.for_each_parameter(visit);
  }
  void for_each_buffer(std::function<void(std::string const&, std::vector<double>&)> const& visit) override {
    visit(name_ + ".running_mean", running_mean_);
    visit(name_ + ".running_var", running_variance_);
  }

  void describe(Partition const& input, bool needs_dx, std::vector<LayerInfo>& out) const override {
    out.push_back({name_, "batch_norm", input, affine_.count(), 0, 0, 0.0, needs_dx});
  }

 private:
  static Interval channels_of(Shard<T, Space> const& x) { return x.owned()[AxisId::channel]; }

  template <class U>
  void upload(U const* from, U* to, std::int64_t count) const {
    copy_flat<Space, Kokkos::DefaultHostExecutionSpace>(to, from, count);
  }

  op::ChannelScale<T> scale(Interval own) const {
    T const* const first = tables_.data();
    return {first, first + own.size(), first + 2 * own.size(), {}};
  }

  Communicator<Mpi> const& group() const {
    return options_.statistics == Statistics::global ? ranks_.world() : ranks_.group(within_sample);
  }

  void reduce(double* values, std::int64_t count) const {
    if (options_.statistics != Statistics::local) group().all_reduce(values, count);
  }

  /// The cells per channel that the statistics are taken over.
  std::int64_t cells(Shard<T, Space> const& x) const {
    Shape const shape = x.shape();
    Box const& own = x.owned();
    std::int64_t const space = shape.depth * shape.height * shape.width;
    switch (options_.statistics) {
      case Statistics::global: return shape.sample * space;
      case Statistics::space: return own.axis[0].size() * space;
      case Statistics::local: break;
    }
    return own.axis[0].size() * own.axis[1].size() * own.axis[2].size() * own.axis[3].size();
  }

  /// Whether some ranks that measure together have one value per channel. Follows from the blocks: all ranks agree.
  bool measures_single_value(Partition const& partition) const {
    for (AxisId axis : {AxisId::sample, AxisId::depth, AxisId::height, AxisId::width}) {
      Blocks const& blocks = partition.blocks(axis);
      bool const together = options_.statistics == Statistics::global ||
                            (options_.statistics == Statistics::space && axis != AxisId::sample);
      bool single = together && blocks.extent() == 1;
      for (std::int64_t i = 0; !together && i < blocks.parts(); ++i) single = single || blocks[i].size() == 1;
      if (!single) return false;
    }
    return true;
  }

  /// Sums per channel over the ranks that measure together, divided by n. Each rank fills in its own channels, so that
  /// one reduction serves all.
  void mean_over(double const* sums, Interval own, double n, std::vector<double>& mean) const {
    std::fill(mean.begin(), mean.end(), 0.0);
    std::copy_n(sums, own.size(), mean.begin() + own.begin);
    reduce(mean.data(), channels_);
    for (double& value : mean) value = n > 0 ? value / n : 0.0;
  }

  /// Mean and variance by two passes in double, and the running statistics.
  void measure(Shard<T, Space> const& x, double momentum) {
    require(!measures_single_value(x.partition()), name_,
            "in training the variance needs more than one value per channel, but ",
            options_.statistics == Statistics::global ? "the batch has one" : "some ranks that measure apart have one",
            "; use a larger batch, or inference mode");
    Interval const own = channels_of(x);
    std::int64_t const count = cells(x);
    double const n = static_cast<double>(count);
    mean_over(sums_.over(space_, x.owned(), own.size(), op::ChannelSum<T>{x.tile()}), own, n, mean_);
    upload(mean_.data() + own.begin, device_mean_.data(), own.size());
    mean_over(sums_.over(space_, x.owned(), own.size(), op::ChannelSquares<T>{x.tile(), device_mean_.data(), {}}), own,
              n, variance_);
    update_running(own, count, momentum);
  }

  /// Running statistics are equal on all ranks: where groups measure apart, they take the mean over the groups.
  void update_running(Interval own, std::int64_t count, double momentum) {
    double const unbiased = count > 1 ? static_cast<double>(count) / static_cast<double>(count - 1) : 1.0;
    auto const all = mean_.size();
    std::vector<double>& measured = measured_;  // sums of means, of variances, and how many groups measured
    measured.assign(3 * all, 0.0);
    bool const counts_here = count > 0 && (options_.statistics != Statistics::space || group().rank() == 0);
    Interval const known = options_.statistics == Statistics::local ? own : Interval{0, channels_};
    for (std::int64_t i = known.begin; counts_here && i < known.end; ++i) {
      auto const c = static_cast<std::size_t>(i);
      measured[c] = mean_[c];
      measured[all + c] = variance_[c] * unbiased;
      measured[2 * all + c] = 1.0;
    }
    if (options_.statistics != Statistics::global) ranks_.world().all_reduce(measured.data(), 3 * channels_);
    for (std::size_t c = 0; c < all; ++c) {
      double const groups = measured[2 * all + c];
      if (groups == 0.0) continue;
      running_mean_[c] += momentum * (measured[c] / groups - running_mean_[c]);
      running_variance_[c] += momentum * (measured[all + c] / groups - running_variance_[c]);
    }
  }

  Ranks ranks_;
  BatchNormOptions options_;
  std::string name_;
  std::int64_t channels_;
  Space space_;
  ChannelAffine<T, Space> affine_;
  std::vector<double> running_mean_, running_variance_;
  std::vector<double> mean_, variance_;  ///< of all channels; where ranks measure alone, of their own
  std::vector<double> measured_, sums_by_channel_;
  std::vector<T> staging_;
  Storage<double, Space> device_mean_;
  Storage<T, Space> tables_;  ///< of own channels: mean, its low part, 1 / deviation, and the shares of the error
  op::Sums<Space> sums_;
};

/// Batch normalisation as a value; see batch_norm.
struct BatchNormSpec {
  static constexpr char const* kind = "batch_norm";
  BatchNormOptions options;

  template <class T, class Space, PartitionPolicy Policy>
  std::unique_ptr<Layer<T, Space>> bind(RankGrid<Policy> const& ranks, Shape const& input, std::string name) const {
    return std::make_unique<BatchNorm<T, Space>>(ranks, input, options, std::move(name));
  }
};

/// y = weight * (x - mean) / sqrt(variance + epsilon) + bias per channel, over samples and space.
/// Shape: unchanged. Moves: statistics of the chosen ranks. Fails: one value per channel in training, as in PyTorch.
inline BatchNormSpec batch_norm(BatchNormOptions const& options = {}) { return {options}; }

}  // namespace tessera
