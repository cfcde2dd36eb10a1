// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/rank_grid.hpp"
#include "tessera/core/error.hpp"
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
/// Moves: per channel, two doubles and one count to and fro in training; nothing in inference.
/// Source: Ioffe and Szegedy, "Batch Normalization", 2015; two-pass statistics in double.
template <class T, class Space>
class BatchNorm : public Layer<T, Space> {
 public:
  BatchNorm(Ranks const& ranks, Shape const& input, BatchNormOptions const& options, std::string name)
      : ranks_(ranks),
        options_(options),
        name_(std::move(name)),
        channels_(input.channel),
        gamma_(Parameter<T, Space>::replicated(name_ + ".weight", {"weight", {channels_}, {0}, Initial::value(1.0)},
                                               ranks)),
        beta_(Parameter<T, Space>::replicated(name_ + ".bias", {"bias", {channels_}, {0}, Initial::value(0.0)}, ranks)),
        running_mean_(static_cast<std::size_t>(channels_), 0.0),
        running_variance_(static_cast<std::size_t>(channels_), 1.0) {
    require(options_.epsilon > 0.0, name_, "epsilon must be positive, it is ", options_.epsilon);
    require(0.0 <= options_.momentum && options_.momentum <= 1.0, name_, "momentum must be within [0, 1], it is ",
            options_.momentum);
    require(ranks.grid().counts().channel == 1, name_,
            "its input must not be split in channels; redistribute to a Distribution without Channel first");
    if (options_.statistics == Statistics::space) ranks.group(space_axes);  // made here, in the order of binding
  }

  Partition output(Partition const& input) const override { return input; }

  void allocate(Partition const&) override {
    auto const c = static_cast<std::size_t>(channels_);
    mean_.assign(c, 0.0);
    variance_.assign(c, 1.0);
    device_mean_.grow(channels_);
    scale_.grow(3 * channels_);
    mean_dy_.grow(channels_);
    mean_dyx_.grow(channels_);
    staging_.resize(c);
    scale_staging_.resize(3 * c);
  }

  void forward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y) override {
    if (pass.mode == Mode::training) {
      measure(x, pass.running_momentum >= 0.0 ? pass.running_momentum : options_.momentum);
    } else {
      mean_ = running_mean_;
      variance_ = running_variance_;
    }
    auto const channels = mean_.size();
    for (std::size_t c = 0; c < channels; ++c) {
      T const high = static_cast<T>(mean_[c]);
      scale_staging_[c] = high;
      scale_staging_[channels + c] = static_cast<T>(mean_[c] - static_cast<double>(high));
      scale_staging_[2 * channels + c] = static_cast<T>(1.0 / std::sqrt(variance_[c] + options_.epsilon));
    }
    upload(scale_staging_.data(), scale_, 3 * channels_);
    for_each_position("tessera::batch_norm", space_, y.owned(),
                      op::Normalise<T>{x.tile(), y.tile(), scale(), gamma_.value(), beta_.value()});
  }

  void backward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const&, Shard<T, Space> const& dy,
                Shard<T, Space> const* dx, Accumulate accumulate) override {
    double* const sums =
        sums_.over(space_, dy.owned(), 2 * channels_, op::NormErrorSums<T>{x.tile(), dy.tile(), scale()});
    add_to_gradient(beta_, sums);
    add_to_gradient(gamma_, sums + channels_);
    if (dx == nullptr) return;
    bool const training = pass.mode == Mode::training;
    double const count = static_cast<double>(cells(x));
    if (training) reduce(sums, 2 * channels_);
    for (std::int64_t half = 0; half < 2; ++half) {
      for (std::int64_t c = 0; c < channels_; ++c)
        staging_[static_cast<std::size_t>(c)] =
            training && count > 0 ? static_cast<T>(sums[half * channels_ + c] / count) : T(0);
      upload(staging_.data(), half == 0 ? mean_dy_ : mean_dyx_, channels_);
    }
    for_each_position("tessera::batch_norm", space_, dx->owned(),
                      op::NormaliseBackward<T>{x.tile(), dy.tile(), dx->tile(), scale(), gamma_.value(),
                                               mean_dy_.data(), mean_dyx_.data(), accumulate});
  }

  void for_each_parameter(std::function<void(Parameter<T, Space>&)> const& visit) override {
    visit(gamma_);
    visit(beta_);
  }
  void for_each_buffer(std::function<void(std::string const&, std::vector<double>&)> const& visit) override {
    visit(name_ + ".running_mean", running_mean_);
    visit(name_ + ".running_var", running_variance_);
  }

  void describe(Partition const& input, bool needs_dx, std::vector<LayerInfo>& out) const override {
    out.push_back({name_, "batch_norm", input, 2 * channels_, 0, 0, 0.0, needs_dx});
  }

 private:
  template <class U>
  void upload(U const* from, Storage<U, Space> const& to, std::int64_t count) const {
    copy_flat<Space, Kokkos::DefaultHostExecutionSpace>(to.data(), from, count);
  }

  op::ChannelScale<T> scale() const {
    T const* const first = scale_.data();
    return {first, first + channels_, first + 2 * channels_};
  }

  Communicator<Mpi> const& group() const {
    return options_.statistics == Statistics::global ? ranks_.world() : ranks_.group(space_axes);
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

  /// Mean and variance by two passes in double, and the running statistics.
  void measure(Shard<T, Space> const& x, double momentum) {
    require(!measures_single_value(x.partition()), name_,
            "in training the variance needs more than one value per channel, but ",
            options_.statistics == Statistics::global ? "the batch has one" : "some ranks that measure apart have one",
            "; use a larger batch, or inference mode");
    std::int64_t const count = cells(x);
    double const n = static_cast<double>(count);
    double* sums = sums_.over(space_, x.owned(), channels_, op::ChannelSum<T>{x.tile()});
    reduce(sums, channels_);
    for (std::size_t c = 0; c < mean_.size(); ++c) mean_[c] = count > 0 ? sums[c] / n : 0.0;
    upload(mean_.data(), device_mean_, channels_);
    sums = sums_.over(space_, x.owned(), channels_, op::ChannelSquares<T>{x.tile(), device_mean_.data()});
    reduce(sums, channels_);
    for (std::size_t c = 0; c < mean_.size(); ++c) variance_[c] = count > 0 ? sums[c] / n : 0.0;
    update_running(count, momentum);
  }

  /// Running statistics are equal on all ranks: where groups measure apart, they take the mean over the groups.
  void update_running(std::int64_t count, double momentum) {
    double const unbiased = count > 1 ? static_cast<double>(count) / static_cast<double>(count - 1) : 1.0;
    auto const c = mean_.size();
    std::vector<double>& measured = measured_;
    measured.assign(2 * c + 1, 0.0);
    bool const counts_here = count > 0 && (options_.statistics != Statistics::space || group().rank() == 0);
    if (counts_here) {
      for (std::size_t i = 0; i < c; ++i) {
        measured[i] = mean_[i];
        measured[c + i] = variance_[i] * unbiased;
      }
      measured[2 * c] = 1.0;
    }
    if (options_.statistics != Statistics::global)
      ranks_.world().all_reduce(measured.data(), static_cast<std::int64_t>(measured.size()));
    double const groups = measured[2 * c];
    if (groups == 0.0) return;
    for (std::size_t i = 0; i < c; ++i) {
      running_mean_[i] += momentum * (measured[i] / groups - running_mean_[i]);
      running_variance_[i] += momentum * (measured[c + i] / groups - running_variance_[i]);
    }
  }
  void add_to_gradient(Parameter<T, Space> const& parameter, double const* sums) {
    for (std::size_t c = 0; c < staging_.size(); ++c) staging_[c] = static_cast<T>(sums[c]);
    upload(staging_.data(), mean_dy_, channels_);
    run("tessera::batch_norm", space_, channels_, AddTo{parameter.gradient(), mean_dy_.data()});
    space_.fence("tessera::BatchNorm");
  }

 public:
  struct AddTo {
    T* target;
    T const* source;
    TESSERA_HD void operator()(std::int64_t i) const { target[i] += source[i]; }
  };

 private:
  Ranks ranks_;
  BatchNormOptions options_;
  std::string name_;
  std::int64_t channels_;
  Space space_;
  Parameter<T, Space> gamma_, beta_;
  std::vector<double> running_mean_, running_variance_;
  std::vector<double> mean_, variance_, measured_;
  std::vector<T> staging_, scale_staging_;
  Storage<double, Space> device_mean_;
  Storage<T, Space> scale_;  ///< mean, its low part, 1 / deviation
  Storage<T, Space> mean_dy_, mean_dyx_;
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
