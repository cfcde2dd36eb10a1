// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "tessera/model/chain.hpp"

namespace tessera {

/// A part of a network whose parameters keep their values.
template <class Part>
struct FrozenSpec {
  Part part;

  template <PartitionPolicy Policy>
  auto next(RankGrid<Policy> const& ranks) const {
    return part.next(ranks);
  }

  template <class T, class Space, PartitionPolicy Policy>
  std::unique_ptr<Layer<T, Space>> bind_parts(RankGrid<Policy> const& ranks, Partition const& input,
                                              LayerNames& names) const {
    auto layers = part.template bind_parts<T, Space>(ranks, input, names);
    layers->for_each_parameter([](Parameter<T, Space>& p) { p.freeze(); });
    return layers;
  }
};

/// The layers, with parameters that training leaves as they are: they get no gradient, and no error is sent to layers
/// behind which nothing learns. Running statistics of batch norms move all the same in training mode. Load weights into
/// them with load_weights, or Parameter::set.
template <class... Specs>
FrozenSpec<SequenceSpec<Specs...>> frozen(Specs const&... specs) {
  return {sequence(specs...)};
}

}  // namespace tessera
