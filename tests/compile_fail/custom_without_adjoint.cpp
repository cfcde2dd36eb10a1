// expect: tessera: a layer needs its adjoint: `void backward(BackwardPass<T, Space> const&)`, which computes dx
// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "tessera/model/model.hpp"

using Ranks = tessera::RankGrid<tessera::Distribution<tessera::axes::Depth>>;

struct Custom {
  tessera::Windows windows(tessera::Shape const&) const { return {}; }
  template <class T, class Space>
  void forward(tessera::ForwardPass<T, Space> const&) const {}
#ifdef TESSERA_CONTROL
  template <class T, class Space>
  void backward(tessera::BackwardPass<T, Space> const&) const {}
#endif
};

tessera::Model<float> network(Ranks const& ranks) {
  return tessera::sequential<float>(ranks, tessera::SampleShape<3>{}, Custom{});
}
