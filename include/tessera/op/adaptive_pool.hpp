// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/op/geometry.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// Windows that share n cells among m outputs along each axis, as evenly as they can: output o reads the cells that
/// [o n / m, (o + 1) n / m) meets (geometry.md, resampling). A geometry of AveragePool.
struct AdaptiveGeometry {
  std::int64_t extent[3] = {1, 1, 1};   ///< n along depth, height, width
  std::int64_t outputs[3] = {1, 1, 1};  ///< m

  TESSERA_HD constexpr Interval required(int i, Interval out) const {
    if (out.empty()) return {};
    return {floor_div(out.begin * extent[i], outputs[i]), ceil_div(out.end * extent[i], outputs[i])};
  }
  TESSERA_HD constexpr Interval touch(int i, Interval in) const {
    if (in.empty()) return {};
    return {floor_div(in.begin * outputs[i], extent[i]), ceil_div(in.end * outputs[i], extent[i])};
  }

  TESSERA_HD constexpr Interval cells(int i, std::int64_t o) const { return required(i, {o, o + 1}); }
  TESSERA_HD constexpr std::int64_t divisor(int i, std::int64_t o) const { return cells(i, o).size(); }
  TESSERA_HD constexpr Interval readers(int i, std::int64_t at) const { return touch(i, {at, at + 1}); }
};

/// dx = scale * error at every position of a sample; `error` has one position, (sample, 0, 0, 0).
template <class T>
struct SpreadError {
  Tile<T const> error;
  Tile<T> dx;
  T scale;
  Accumulate accumulate;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* from = error.position(at[0], 0, 0, 0);
    T* to = dx.position(at[0], at[1], at[2], at[3]);
    if (accumulate == Accumulate::add) {
      TESSERA_INDEPENDENT
      for (std::int64_t c = channels.begin; c < channels.end; ++c) to[c] += scale * from[c];
    } else {
      TESSERA_INDEPENDENT
      for (std::int64_t c = channels.begin; c < channels.end; ++c) to[c] = scale * from[c];
    }
  }
};

}  // namespace tessera::op
