// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/core/config.hpp"
#include "tessera/partition/box.hpp"

namespace tessera {

/// What a kernel sees of a tensor: a pointer that is addressed by global indices. The channels of a position are
/// contiguous; the other strides are free, so that a channel slice is a Tile too.
template <class T>
struct Tile {
  T* data = nullptr;            ///< the cell at `origin`
  std::int64_t origin[5] = {};  ///< global index of that cell: sample, depth, height, width, channel
  std::int64_t stride[4] = {};  ///< elements between neighbours: sample, depth, height, width

  TESSERA_HD T* position(std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t w) const {
    return data + ((n - origin[0]) * stride[0] + (d - origin[1]) * stride[1] + (h - origin[2]) * stride[2] +
                   (w - origin[3]) * stride[3] - origin[4]);
  }

  TESSERA_HD T& operator()(std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t c) const {
    return position(n, d, h, w)[c];
  }

  /// The same to read only. A template, because nvcc warns of a conversion to the type itself where T is const already.
  template <class U>
  requires(std::is_same_v<U, T const> && !std::is_const_v<T>) TESSERA_HD operator Tile<U>() const {
    return {
        data, {origin[0], origin[1], origin[2], origin[3], origin[4]}, {stride[0], stride[1], stride[2], stride[3]}};
  }
};

/// The Tile over cells that lie densely, in row-major order, over `box`.
template <class T>
TESSERA_HD Tile<T> dense_tile(T* data, Box const& box) {
  Tile<T> tile;
  tile.data = data;
  std::int64_t step = box.axis[4].size();
  for (int a = 3; a >= 0; --a) {
    tile.stride[a] = step;
    step *= box.axis[a].size();
  }
  for (int a = 0; a < 5; ++a) tile.origin[a] = box.axis[a].begin;
  return tile;
}

/// The same cells, where channel 0 is the given one's channel `first`.
template <class T>
TESSERA_HD Tile<T> from_channel(Tile<T> tile, std::int64_t first) {
  tile.origin[4] -= first;
  return tile;
}

}  // namespace tessera
