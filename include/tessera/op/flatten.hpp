// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/op/geometry.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// The place, in PyTorch's order (c, d, h, w), of channel 0 of a position, and the distance between channels.
struct FlatOrder {
  std::int64_t depth, height, width;
  TESSERA_HD std::int64_t first(std::int64_t const at[4]) const { return (at[1] * height + at[2]) * width + at[3]; }
  TESSERA_HD std::int64_t step() const { return depth * height * width; }
};

/// flat(n, place of (c, d, h, w)) = x(n, d, h, w, c).
template <class T>
struct Flatten {
  FlatOrder order;
  Tile<T const> x;
  Tile<T> flat;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* in = x.position(at[0], at[1], at[2], at[3]);
    T* out = flat.position(at[0], 0, 0, 0) + order.first(at);
    for (std::int64_t c = channels.begin; c < channels.end; ++c) out[c * order.step()] = in[c];
  }
};

/// The adjoint of Flatten: back to positions and channels.
template <class T>
struct Unflatten {
  FlatOrder order;
  Tile<T const> flat;
  Tile<T> x;
  Accumulate accumulate;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* in = flat.position(at[0], 0, 0, 0) + order.first(at);
    T* out = x.position(at[0], at[1], at[2], at[3]);
    for (std::int64_t c = channels.begin; c < channels.end; ++c)
      out[c] = accumulate == Accumulate::add ? out[c] + in[c * order.step()] : in[c * order.step()];
  }
};

}  // namespace tessera::op
