// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/rank_grid.hpp"
#include "tessera/layer/layer.hpp"
#include "tessera/op/adaptive_pool.hpp"
#include "tessera/op/norm.hpp"
#include "tessera/op/reduce.hpp"

namespace tessera {

/// The mean over space of each sample and channel. Each rank sums its own cells in double; no cell travels.
///
/// Moves: forward a double per sample and channel to and fro among the ranks that share them, and backward the error
/// from the one that owns it to the others.
template <class T, class Space>
class GlobalAveragePool : public Layer<T, Space> {
 public:
  GlobalAveragePool(Ranks const& ranks, std::string name)
      : grid_(ranks.grid()), group_(ranks.group(space_axes)), name_(std::move(name)) {}

  Partition output(Partition const& input) const override {
    Shape const in = input.shape();
    return input.scaled_to({in.sample, 1, 1, 1, in.channel});
  }

  void allocate(Partition const& input) override {
    Blocks const &samples = input.blocks(AxisId::sample), &channels = input.blocks(AxisId::channel);
    std::int64_t most_samples = 0, most_channels = 0;
    for (std::int64_t i = 0; i < samples.parts(); ++i) most_samples = larger(most_samples, samples[i].size());
    for (std::int64_t i = 0; i < channels.parts(); ++i) most_channels = larger(most_channels, channels[i].size());
    host_.resize(static_cast<std::size_t>(most_samples * most_channels));
    values_.grow(most_samples * most_channels);
  }

  void forward(Pass const&, Shard<T, Space> const& x, Shard<T, Space> const& y) override {
    Box const values = one_position(x.owned());
    std::int64_t const count = values.volume();
    double* const sums = sums_.by_sample(space_, x.owned(), values.axis[4].size(), op::ChannelSum<T>{x.tile()});
    group_.all_reduce(sums, count);
    if (y.owned().empty()) return;
    double const n = cells(x);
    for (std::int64_t i = 0; i < count; ++i) host_[static_cast<std::size_t>(i)] = static_cast<T>(sums[i] / n);
    copy_flat<Space, Host>(values_.data(), host_.data(), count);
    copy<T, T>(space_, dense_tile<T const>(values_.data(), values), y.tile(), y.owned());
    space_.fence("tessera::global_avg_pool");
  }

  void backward(Pass const&, Shard<T, Space> const& x, Shard<T, Space> const&, Shard<T, Space> const& dy,
                Shard<T, Space> const* dx, Accumulate accumulate) override {
    if (dx == nullptr) return;
    Box const values = one_position(x.owned());
    std::int64_t const count = values.volume();
    if (group_.size() > 1) {
      if (!dy.owned().empty()) {
        copy<T, T>(space_, dy.tile(), dense_tile(values_.data(), values), values);
        space_.fence("tessera::global_avg_pool");
        copy_flat<Host, Space>(host_.data(), values_.data(), count);
      }
      group_.broadcast(host_.data(), count, owner(dy.partition()));
      copy_flat<Space, Host>(values_.data(), host_.data(), count);
    }
    Tile<T const> const error = group_.size() > 1 ? dense_tile<T const>(values_.data(), values) : dy.tile();
    T const scale = static_cast<T>(1.0 / cells(x));
    for_each_position("tessera::global_avg_pool", space_, dx->owned(),
                      op::SpreadError<T>{error, dx->tile(), scale, accumulate});
  }

  void describe(Partition const& input, bool needs_dx, std::vector<LayerInfo>& out) const override {
    out.push_back({name_, "global_avg_pool", output(input), 0, 0, 0, 0.0, needs_dx});
  }

 private:
  using Host = Kokkos::DefaultHostExecutionSpace;

  /// The samples and channels of a box at the output's only position, also where the box is empty in space.
  static Box one_position(Box box) {
    for (AxisId axis : spatial_axes) box[axis] = {0, 1};
    return box;
  }

  static double cells(Shard<T, Space> const& x) {
    Shape const shape = x.shape();
    return static_cast<double>(shape.depth * shape.height * shape.width);
  }

  /// Who, of the ranks that share samples and channels, owns their output.
  int owner(Partition const& output) const {
    std::int64_t rank = 0;
    for (AxisId axis : spatial_axes) rank = rank * grid_.counts()[axis] + output.blocks(axis).owner(0);
    return static_cast<int>(rank);
  }

  Grid grid_;
  Communicator<Mpi> group_;  ///< the ranks that share samples and channels, in the order of their blocks in space
  std::string name_;
  Space space_;
  op::Sums<Space> sums_;
  std::vector<T> host_;
  Storage<T, Space> values_;
};

struct GlobalAveragePoolSpec {
  static constexpr char const* kind = "global_avg_pool";

  template <class T, class Space, PartitionPolicy Policy>
  std::unique_ptr<Layer<T, Space>> bind(RankGrid<Policy> const& ranks, Shape const&, std::string name) const {
    return std::make_unique<GlobalAveragePool<T, Space>>(ranks, std::move(name));
  }
};

/// The mean over space of each sample and channel.
/// Shape: (N, D, H, W, C) -> (N, 1, 1, 1, C). Moves: one number per sample and channel, forward and backward; no cells.
/// Fails: never.
inline GlobalAveragePoolSpec global_avg_pool() { return {}; }

}  // namespace tessera
