// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <memory>

#include "tessera/model/chain.hpp"

namespace tessera {

/// A part of a network that is there only if a run-time condition holds: the same code then describes networks of
/// several depths.
template <class Part>
struct WhenSpec {
  bool holds;
  Part part;

  template <class T, class Space, PartitionPolicy Policy>
  std::unique_ptr<Layer<T, Space>> bind_parts(RankGrid<Policy> const& ranks, Partition const& input,
                                              LayerNames& names) const {
    static_assert(std::same_as<decltype(part.next(ranks)), RankGrid<Policy>>,
                  "tessera::when: an optional part must end in the Distribution that it starts in");
    return holds ? part.template bind_parts<T, Space>(ranks, input, names) : nullptr;
  }
};

/// The layers, if `holds`; else nothing.
template <class... Specs>
WhenSpec<SequenceSpec<Specs...>> when(bool holds, Specs const&... specs) {
  return {holds, sequence(specs...)};
}

}  // namespace tessera
