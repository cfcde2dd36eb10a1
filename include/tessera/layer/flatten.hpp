// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/rank_grid.hpp"
#include "tessera/layer/layer.hpp"
#include "tessera/op/flatten.hpp"

namespace tessera {

/// All cells of a sample as the channels of one position, in PyTorch's order (c, d, h, w). Moves: nothing.
template <class T, class Space>
class FlattenLayer : public Layer<T, Space> {
 public:
  Partition output(Partition const& input) const override {
    Shape const in = input.shape();
    return input.scaled_to({in.sample, 1, 1, 1, in.channel * in.depth * in.height * in.width});
  }
  void allocate(Partition const&) override {}
  void forward(Pass const&, Shard<T, Space> const& x, Shard<T, Space> const& y) override {
    for_each_position("tessera::flatten", space_, x.owned(), op::Flatten<T>{order(x), x.tile(), y.tile()});
  }
  void backward(Pass const&, Shard<T, Space> const& x, Shard<T, Space> const&, Shard<T, Space> const& dy,
                Shard<T, Space> const* dx, Accumulate accumulate) override {
    if (dx == nullptr) return;
    for_each_position("tessera::flatten", space_, dx->owned(),
                      op::Unflatten<T>{order(x), dy.tile(), dx->tile(), accumulate});
  }
  void describe(Partition const& input, bool needs_dx, std::vector<LayerInfo>& out) const override {
    out.push_back({"", "flatten", output(input), 0, 0, 0, 0.0, needs_dx});
  }

 private:
  static op::FlatOrder order(Shard<T, Space> const& x) {
    Shape const shape = x.shape();
    return {shape.depth, shape.height, shape.width};
  }
  Space space_;
};

struct FlattenSpec {
  static constexpr char const* kind = "flatten";

  template <class T, class Space, PartitionPolicy Policy>
  std::unique_ptr<Layer<T, Space>> bind(RankGrid<Policy> const&, Shape const&, std::string) const {
    static_assert(
        !Policy::splits_space && !Policy::splits_channel,
        "tessera::flatten: the input must be whole in space and channels; redistribute to a Distribution that "
        "splits samples only, e.g. redistribute<Distribution<Sample>>(), before flatten, or leave flatten out and "
        "write "
        "dense(outputs, flattened)");
    return std::make_unique<FlattenLayer<T, Space>>();
  }
};

/// Shape: (N, D, H, W, C) -> (N, 1, 1, 1, C D H W). Moves: nothing. Does not compile on an input that is split in
/// space or channels: dense(outputs, flattened) takes such an input.
inline FlattenSpec flatten() { return {}; }

}  // namespace tessera
