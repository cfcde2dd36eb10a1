// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tessera/comm/rank_grid.hpp"
#include "tessera/layer/layer.hpp"
#include "tessera/layer/mixing_layer.hpp"
#include "tessera/layer/window_layer.hpp"

namespace tessera {

/// Gives layers their names: the kind and a number that counts layers of that kind alone, so that inserting a layer
/// without parameters renames nothing.
class LayerNames {
 public:
  std::string next(std::string const& kind) { return kind + std::to_string(++count_[kind]); }

 private:
  std::map<std::string, int> count_;
};

namespace detail {

/// A spec that makes its own Layer, such as batch_norm or flatten.
template <class Spec, class T, class Space, class Policy>
concept BindsItself = requires(Spec const& spec, RankGrid<Policy> const& ranks, Shape const& input) {
  spec.template bind<T, Space>(ranks, input, std::string());
};

/// The same, where the layer depends on the blocks of its input.
template <class Spec, class T, class Space, class Policy>
concept BindsToBlocks = requires(Spec const& spec, RankGrid<Policy> const& ranks, Partition const& input) {
  spec.template bind<T, Space>(ranks, input, std::string());
};

/// A spec that contains other specs, such as residual.
template <class Spec, class T, class Space, class Policy>
concept BindsParts = requires(Spec const& spec, RankGrid<Policy> const& ranks, Partition const& input,
                              LayerNames& names) {
  spec.template bind_parts<T, Space>(ranks, input, names);
};

/// A spec that makes a WindowOp or a MixingOp, and may want the layer's name for its messages.
template <class Spec, class T, class Space>
concept MakesNamedOp = requires(Spec const& spec, Shape const& input) {
  spec.template op<T, Space>(input, std::string());
};
template <class Spec, class T, class Space>
concept MakesOp = MakesNamedOp<Spec, T, Space> || requires(Spec const& spec, Shape const& input) {
  spec.template op<T, Space>(input);
};

template <class T, class Space, class Spec>
auto make_op(Spec const& spec, Shape const& input, std::string const& name) {
  if constexpr (MakesNamedOp<Spec, T, Space>)
    return spec.template op<T, Space>(input, name);
  else
    return spec.template op<T, Space>(input);
}

template <class Spec>
std::string kind_of(Spec const& spec) {
  if constexpr (requires { spec.kind; })
    return spec.kind;
  else
    return "custom";
}

/// Turns one spec into a layer for these ranks and this input.
template <class T, class Space, PartitionPolicy Policy, class Spec>
std::unique_ptr<Layer<T, Space>> bind_layer(RankGrid<Policy> const& ranks, Partition const& input, Spec const& spec,
                                            LayerNames& names) {
  if constexpr (BindsParts<Spec, T, Space, Policy>) {
    return spec.template bind_parts<T, Space>(ranks, input, names);
  } else if constexpr (MakesOp<Spec, T, Space>) {
    std::string const name = names.next(kind_of(spec));
    auto op = make_op<T, Space>(spec, input.shape(), name);
    using Op = decltype(op);
    if constexpr (MixingOp<Op, T, Space>)
      return std::make_unique<MixingLayer<T, Space, Op>>(ranks, input, std::move(op), name);
    else
      return std::make_unique<WindowLayer<T, Space, Op>>(ranks, input.shape(), std::move(op), name);
  } else if constexpr (BindsToBlocks<Spec, T, Space, Policy>) {
    return spec.template bind<T, Space>(ranks, input, names.next(kind_of(spec)));
  } else if constexpr (BindsItself<Spec, T, Space, Policy>) {
    return spec.template bind<T, Space>(ranks, input.shape(), names.next(kind_of(spec)));
  } else {
    return std::make_unique<WindowLayer<T, Space, Spec>>(ranks, input.shape(), spec, names.next(kind_of(spec)));
  }
}

/// The ranks that work after a spec: only a redistribution changes them.
template <PartitionPolicy Policy, class Spec>
auto ranks_after(RankGrid<Policy> const& ranks, Spec const& spec) {
  if constexpr (requires { spec.next(ranks); })
    return spec.next(ranks);
  else
    return ranks;
}

}  // namespace detail
}  // namespace tessera
