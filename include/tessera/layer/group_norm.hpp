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

/// Options of group_norm and layer_norm; affine: whether a scale and a shift per channel are learnt.
struct GroupNormOptions {
  double epsilon = 1e-5;
  bool affine = true;
};

/// Options of instance_norm, with PyTorch's defaults. With running statistics, inference uses these: per channel
/// (1 - momentum) old + momentum new, where new is the mean over the samples of mean and unbiased variance.
struct InstanceNormOptions {
  double epsilon = 1e-5;
  double momentum = 0.1;
  bool affine = false;
  bool track_running = false;
};

namespace detail {

/// What tells group, instance and layer norm apart.
struct GroupNormSettings {
  std::string what;  ///< for summaries
  std::int64_t groups;
  double epsilon;
  bool affine;
  bool per_channel = false;  ///< one group for each channel: a group of one value is an error, as in PyTorch
  bool track_running = false;
  double momentum = 0.0;
};

}  // namespace detail

/// Normalisation over groups of channels of each sample, bound to its ranks. Statistics are reduced over the ranks that
/// share their samples; these may cut a group anywhere, and may own nothing of it.
///
/// Moves: per own sample and group, two doubles forward and two backward; with running statistics, two more per channel
/// in training.
template <class T, class Space>
class GroupNorm : public Layer<T, Space> {
 public:
  GroupNorm(Ranks const& ranks, Shape const& input, detail::GroupNormSettings const& settings, std::string name)
      : ranks_(ranks),
        settings_(settings),
        name_(std::move(name)),
        channels_(input.channel),
        groups_(settings.groups),
        affine_(ranks, name_, channels_, settings.affine) {
    require(groups_ >= 1, name_, "the number of groups must be at least 1, it is ", groups_);
    require(channels_ % groups_ == 0, name_, "the number of groups must divide the number of channels, but there are ",
            groups_, " groups and ", channels_, " channels; choose a divisor of ", channels_);
    require(settings.epsilon > 0.0, name_, "epsilon must be positive, it is ", settings.epsilon);
    require(0.0 <= settings.momentum && settings.momentum <= 1.0, name_, "momentum must be within [0, 1], it is ",
            settings.momentum);
    if (settings.track_running) {
      running_mean_.assign(static_cast<std::size_t>(channels_), 0.0);
      running_variance_.assign(static_cast<std::size_t>(channels_), 1.0);
    }
    ranks.group(within_sample);  // made here, in the order of binding
  }

  Partition output(Partition const& input) const override { return input; }

  void allocate(Partition const& input) override {
    affine_.allocate();
    grow(input.owned(ranks_.rank()));
  }

  void forward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y) override {
    Box const& own = x.owned();
    grow(own);
    if (measures(pass)) {
      measure(x);
      if (settings_.track_running)
        update_running(x, pass.running_momentum >= 0.0 ? pass.running_momentum : settings_.momentum);
    } else {
      for (std::size_t at = 0; at < mean_.size(); ++at) {
        mean_[at] = running_mean_[at % running_mean_.size()];
        variance_[at] = running_variance_[at % running_variance_.size()];
      }
    }
    std::size_t const cells = tables(own);
    for_each_entry(own, [&](std::size_t at, std::size_t group, std::int64_t) {
      T const high = static_cast<T>(mean_[group]);
      staging_[at] = high;
      staging_[cells + at] = static_cast<T>(mean_[group] - static_cast<double>(high));
      staging_[2 * cells + at] = static_cast<T>(1.0 / std::sqrt(variance_[group] + settings_.epsilon));
    });
    upload(staging_.data(), tables_.data(), 3 * cells);
    std::int64_t const first = own[AxisId::channel].begin;
    for_each_position(
        "tessera::group_norm", space_, y.owned(),
        op::Normalise<T>{x.tile(), y.tile(), scale(own), affine_.scale() + first, affine_.shift() + first});
  }

  void backward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const&, Shard<T, Space> const& dy,
                Shard<T, Space> const* dx, Accumulate accumulate) override {
    Box const& own = x.owned();
    Interval const channels = own[AxisId::channel];
    double const* const sums =
        sums_.by_sample(space_, own, 2 * channels.size(), op::NormErrorSums<T>{x.tile(), dy.tile(), scale(own)});
    add_to_gradients(own, sums);
    if (dx == nullptr) return;
    std::size_t const cells = tables(own);
    auto const width = static_cast<std::size_t>(channels.size());
    std::fill_n(staging_.begin(), 2 * cells, T(0));
    if (measures(pass)) {
      T const* const gamma = affine_.scale_of(channels);
      std::size_t const half = mean_.size();
      error_.assign(2 * half, 0.0);
      for_each_entry(own, [&](std::size_t at, std::size_t group, std::int64_t c) {
        double const* const of_sample = sums + at / width * 2 * width;
        double const scale = static_cast<double>(gamma[c - channels.begin]);
        error_[group] += scale * of_sample[at % width];
        error_[half + group] += scale * of_sample[width + at % width];
      });
      reduce(error_);
      double const n = values(x.shape());
      for_each_entry(own, [&](std::size_t at, std::size_t group, std::int64_t) {
        staging_[at] = static_cast<T>(error_[group] / n);
        staging_[cells + at] = static_cast<T>(error_[half + group] / n);
      });
    }
    T* const shares = tables_.data() + 3 * cells;
    upload(staging_.data(), shares, 2 * cells);
    for_each_position("tessera::group_norm", space_, dx->owned(),
                      op::NormaliseBackward<T>{x.tile(), dy.tile(), dx->tile(), scale(own),
                                               affine_.scale() + channels.begin, shares, shares + cells, accumulate});
  }

  void for_each_parameter(std::function<void(Parameter<T, Space>&)> const& visit) override {
    affine_.for_each_parameter(visit);
  }
  void for_each_buffer(std::function<void(std::string const&, std::vector<double>&)> const& visit) override {
    if (!settings_.track_running) return;
    visit(name_ + ".running_mean", running_mean_);
    visit(name_ + ".running_var", running_variance_);
  }

  void describe(Partition const& input, bool needs_dx, std::vector<LayerInfo>& out) const override {
    out.push_back({name_, settings_.what, input, affine_.count(), 0, 0, 0.0, needs_dx});
  }

 private:
  /// Tables have an entry per own sample and channel; statistics have one per own sample and group of the whole input.
  static std::size_t tables(Box const& own) {
    return static_cast<std::size_t>(own[AxisId::sample].size() * own[AxisId::channel].size());
  }

  /// visit(place in a table, place among the statistics, channel) for own samples and channels.
  template <class Visit>
  void for_each_entry(Box const& own, Visit visit) const {
    std::int64_t const each = channels_ / groups_;
    std::size_t at = 0;
    for (std::int64_t n = 0; n < own[AxisId::sample].size(); ++n)
      for (std::int64_t c = own[AxisId::channel].begin; c < own[AxisId::channel].end; ++c)
        visit(at++, static_cast<std::size_t>(n * groups_ + c / each), c);
  }

  void grow(Box const& own) {
    std::size_t const cells = tables(own);
    for (auto* list : {&mean_, &variance_})
      list->resize(static_cast<std::size_t>(own[AxisId::sample].size() * groups_));
    tables_.grow(static_cast<std::int64_t>(5 * cells));
    device_mean_.grow(static_cast<std::int64_t>(cells));
    if (staging_.size() < 3 * cells) staging_.resize(3 * cells);
  }

  bool measures(Pass const& pass) const { return !settings_.track_running || pass.mode == Mode::training; }

  template <class U>
  void upload(U const* from, U* to, std::size_t count) const {
    copy_flat<Space, Kokkos::DefaultHostExecutionSpace>(to, from, static_cast<std::int64_t>(count));
  }

  op::SampleRows rows(Box const& own) const { return {own[AxisId::sample].begin, own[AxisId::channel].size()}; }
  op::ChannelScale<T> scale(Box const& own) const {
    T const* const first = tables_.data();
    std::size_t const cells = tables(own);
    return {first, first + cells, first + 2 * cells, rows(own)};
  }

  /// Sums of all ranks that share the samples: each has filled in the groups that its channels meet.
  void reduce(std::vector<double>& sums) const {
    ranks_.group(within_sample).all_reduce(sums.data(), static_cast<std::int64_t>(sums.size()));
  }

  /// How many values a group has in one sample.
  double values(Shape const& shape) const {
    return static_cast<double>(channels_ / groups_ * shape.depth * shape.height * shape.width);
  }

  void mean_over(Box const& own, double const* sums, double n, std::vector<double>& mean) const {
    std::fill(mean.begin(), mean.end(), 0.0);
    for_each_entry(own, [&](std::size_t at, std::size_t group, std::int64_t) { mean[group] += sums[at]; });
    reduce(mean);
    for (double& value : mean) value /= n;
  }

  /// Mean and variance by two passes in double.
  void measure(Shard<T, Space> const& x) {
    double const n = values(x.shape());
    require(!settings_.per_channel || n > 1, name_,
            "the variance needs more than one value per channel of a sample, but each has one; use batch_norm, or "
            "normalise before the extents in space shrink to 1");
    Box const& own = x.owned();
    std::int64_t const width = own[AxisId::channel].size();
    mean_over(own, sums_.by_sample(space_, own, width, op::ChannelSum<T>{x.tile()}), n, mean_);
    staged_mean_.resize(tables(own));
    for_each_entry(own, [&](std::size_t at, std::size_t group, std::int64_t) { staged_mean_[at] = mean_[group]; });
    upload(staged_mean_.data(), device_mean_.data(), staged_mean_.size());
    mean_over(own, sums_.by_sample(space_, own, width, op::ChannelSquares<T>{x.tile(), device_mean_.data(), rows(own)}),
              n, variance_);
  }

  /// One of the ranks that share samples speaks for all of them.
  void update_running(Shard<T, Space> const& x, double momentum) {
    double const n = values(x.shape()), samples = static_cast<double>(x.shape().sample);
    auto const all = static_cast<std::size_t>(channels_);
    measured_.assign(2 * all, 0.0);
    if (ranks_.group(within_sample).rank() == 0)
      for (std::size_t at = 0; at < mean_.size(); ++at) {
        measured_[at % all] += mean_[at];
        measured_[all + at % all] += variance_[at] * (n / (n - 1));
      }
    ranks_.world().all_reduce(measured_.data(), 2 * channels_);
    for (std::size_t c = 0; c < all && samples > 0; ++c) {
      running_mean_[c] += momentum * (measured_[c] / samples - running_mean_[c]);
      running_variance_[c] += momentum * (measured_[all + c] / samples - running_variance_[c]);
    }
  }

  void add_to_gradients(Box const& own, double const* sums) {
    if (!affine_.learns()) return;
    auto const width = static_cast<std::size_t>(own[AxisId::channel].size());
    auto const samples = static_cast<std::size_t>(own[AxisId::sample].size());
    gradients_.assign(2 * width, 0.0);
    for (std::size_t n = 0; n < samples; ++n)
      for (std::size_t i = 0; i < 2 * width; ++i) gradients_[i] += sums[n * 2 * width + i];
    affine_.add_to_gradients(own[AxisId::channel], gradients_.data() + width, gradients_.data());
  }

  Ranks ranks_;
  detail::GroupNormSettings settings_;
  std::string name_;
  std::int64_t channels_, groups_;
  Space space_;
  ChannelAffine<T, Space> affine_;
  std::vector<double> running_mean_, running_variance_;
  std::vector<double> mean_, variance_, error_;  ///< per own sample and group
  std::vector<double> staged_mean_, measured_, gradients_;
  std::vector<T> staging_;
  Storage<double, Space> device_mean_;
  Storage<T, Space> tables_;  ///< mean, its low part, 1 / deviation, and the shares of the error
  op::Sums<Space> sums_;
};

/// Group normalisation as a value; see group_norm, instance_norm and layer_norm.
struct GroupNormSpec {
  static constexpr char const* kind = "group_norm";
  std::int64_t groups;
  GroupNormOptions options;

  template <class T, class Space, PartitionPolicy Policy>
  std::unique_ptr<Layer<T, Space>> bind(RankGrid<Policy> const& ranks, Shape const& input, std::string name) const {
    detail::GroupNormSettings const settings{"group_norm, " + std::to_string(groups) + " groups", groups,
                                             options.epsilon, options.affine};
    return std::make_unique<GroupNorm<T, Space>>(ranks, input, settings, std::move(name));
  }
};

struct InstanceNormSpec {
  static constexpr char const* kind = "instance_norm";
  InstanceNormOptions options;

  template <class T, class Space, PartitionPolicy Policy>
  std::unique_ptr<Layer<T, Space>> bind(RankGrid<Policy> const& ranks, Shape const& input, std::string name) const {
    detail::GroupNormSettings const settings{kind, input.channel,         options.epsilon, options.affine,
                                             true, options.track_running, options.momentum};
    return std::make_unique<GroupNorm<T, Space>>(ranks, input, settings, std::move(name));
  }
};

struct LayerNormSpec {
  static constexpr char const* kind = "layer_norm";
  GroupNormOptions options;

  template <class T, class Space, PartitionPolicy Policy>
  std::unique_ptr<Layer<T, Space>> bind(RankGrid<Policy> const& ranks, Shape const& input, std::string name) const {
    detail::GroupNormSettings const settings{kind, 1, options.epsilon, options.affine};
    return std::make_unique<GroupNorm<T, Space>>(ranks, input, settings, std::move(name));
  }
};

/// y = weight * (x - mean) / sqrt(variance + epsilon) + bias, with the mean and the biased variance of each sample's
/// groups of C / groups neighbouring channels over all of space, in training and in inference.
/// Shape: unchanged. Moves: two doubles per own sample and group, forward and backward, among the ranks that share the
/// samples. Fails: if the groups do not divide the channels, or epsilon is not positive.
/// Source: Wu and He, "Group Normalization", 2018.
inline GroupNormSpec group_norm(std::int64_t groups, GroupNormOptions const& options = {}) { return {groups, options}; }

/// The same with a group for each channel; optionally with running statistics, which inference then uses.
/// Shape: unchanged. Moves: as group_norm; with running statistics, two doubles per channel among all ranks in
/// training. Fails: if a channel has one value in space and is measured, or epsilon is not positive. Source: Ulyanov,
/// Vedaldi and Lempitsky, "Instance Normalization", 2016.
inline InstanceNormSpec instance_norm(InstanceNormOptions const& options = {}) { return {options}; }

/// The same with one group: all channels and all of space of a sample, with a scale and a shift per channel.
/// Shape: unchanged. Moves: as group_norm, with one group. Fails: if epsilon is not positive.
/// Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.
inline LayerNormSpec layer_norm(GroupNormOptions const& options = {}) { return {options}; }

}  // namespace tessera
