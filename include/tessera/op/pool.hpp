// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>

#include "tessera/op/geometry.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// Pooling windows and the global extents that clip them.
struct PoolGeometry {
  Windows windows;
  std::int64_t extent[3] = {1, 1, 1};   ///< inputs along depth, height, width
  std::int64_t outputs[3] = {1, 1, 1};  ///< outputs along depth, height, width
  bool count_padding = true;            ///< whether an average counts padding cells in its divisor

  /// The input cells of output o along spatial axis i, without padding cells.
  TESSERA_HD constexpr Interval window(int i, std::int64_t o) const {
    Window const& w = windows.axis[i];
    std::int64_t const begin = o * w.stride - w.low;
    return intersect(Interval{begin, begin + w.kernel}, Interval{0, extent[i]});
  }

  /// How many cells an average divides by, along one axis (geometry.md, pooling).
  TESSERA_HD constexpr std::int64_t divisor(int i, std::int64_t o) const {
    if (!count_padding) return window(i, o).size();
    Window const& w = windows.axis[i];
    std::int64_t const begin = o * w.stride - w.low;
    return smaller(begin + w.kernel, extent[i] + w.high) - begin;
  }

  /// The outputs whose window holds input cell `at` along one axis.
  TESSERA_HD constexpr Interval readers(int i, std::int64_t at) const {
    return intersect(windows.axis[i].touch({at, at + 1}), Interval{0, outputs[i]});
  }
};

/// y = mean of the window, taps summed in row-major order.
template <class T>
struct AveragePool {
  PoolGeometry geometry;
  Tile<T const> x;
  Tile<T> y;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    Interval cells[3];
    std::int64_t count = 1;
    for (int i = 0; i < 3; ++i) {
      cells[i] = geometry.window(i, at[i + 1]);
      count *= geometry.divisor(i, at[i + 1]);
    }
    T* sum = y.position(at[0], at[1], at[2], at[3]);
    TESSERA_INDEPENDENT
    for (std::int64_t c = channels.begin; c < channels.end; ++c) sum[c] = T(0);
    for (std::int64_t d = cells[0].begin; d < cells[0].end; ++d)
      for (std::int64_t h = cells[1].begin; h < cells[1].end; ++h)
        for (std::int64_t w = cells[2].begin; w < cells[2].end; ++w) {
          T const* in = x.position(at[0], d, h, w);
          TESSERA_INDEPENDENT
          for (std::int64_t c = channels.begin; c < channels.end; ++c) sum[c] += in[c];
        }
    T const scale = T(1) / static_cast<T>(count);
    TESSERA_INDEPENDENT
    for (std::int64_t c = channels.begin; c < channels.end; ++c) sum[c] *= scale;
  }
};

/// dx = sum of dy / divisor over the outputs that read the cell.
template <class T>
struct AveragePoolBackward {
  PoolGeometry geometry;
  Tile<T const> dy;
  Tile<T> dx;
  Accumulate accumulate;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    Interval readers[3];
    for (int i = 0; i < 3; ++i) readers[i] = geometry.readers(i, at[i + 1]);
    T* sum = dx.position(at[0], at[1], at[2], at[3]);
    if (accumulate == Accumulate::write) {
      TESSERA_INDEPENDENT
      for (std::int64_t c = channels.begin; c < channels.end; ++c) sum[c] = T(0);
    }
    for (std::int64_t d = readers[0].begin; d < readers[0].end; ++d)
      for (std::int64_t h = readers[1].begin; h < readers[1].end; ++h)
        for (std::int64_t w = readers[2].begin; w < readers[2].end; ++w) {
          std::int64_t const count = geometry.divisor(0, d) * geometry.divisor(1, h) * geometry.divisor(2, w);
          T const scale = T(1) / static_cast<T>(count);
          T const* error = dy.position(at[0], d, h, w);
          TESSERA_INDEPENDENT
          for (std::int64_t c = channels.begin; c < channels.end; ++c) sum[c] += scale * error[c];
        }
  }
};

/// y = largest cell of the window; `winner` gets its tap number in row-major order. Ties: the first; a NaN wins, the
/// last one of several; all -inf: the first valid tap (as PyTorch).
template <class T>
struct MaxPool {
  PoolGeometry geometry;
  Tile<T const> x;
  Tile<T> y;
  Tile<std::int32_t> winner;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    Interval cells[3];
    std::int64_t begin[3];
    for (int i = 0; i < 3; ++i) {
      cells[i] = geometry.window(i, at[i + 1]);
      begin[i] = at[i + 1] * geometry.windows.axis[i].stride - geometry.windows.axis[i].low;
    }
    T* best = y.position(at[0], at[1], at[2], at[3]);
    std::int32_t* which = winner.position(at[0], at[1], at[2], at[3]);
    bool first = true;
    for (std::int64_t d = cells[0].begin; d < cells[0].end; ++d)
      for (std::int64_t h = cells[1].begin; h < cells[1].end; ++h)
        for (std::int64_t w = cells[2].begin; w < cells[2].end; ++w) {
          T const* in = x.position(at[0], d, h, w);
          auto const tap = static_cast<std::int32_t>(
              ((d - begin[0]) * geometry.windows.axis[1].kernel + (h - begin[1])) * geometry.windows.axis[2].kernel +
              (w - begin[2]));
          TESSERA_INDEPENDENT
          for (std::int64_t c = channels.begin; c < channels.end; ++c)
            if (first || in[c] > best[c] || in[c] != in[c]) {
              best[c] = in[c];
              which[c] = tap;
            }
          first = false;
        }
  }
};

/// dx = sum of dy over the outputs whose winner the cell is.
template <class T>
struct MaxPoolBackward {
  PoolGeometry geometry;
  Tile<T const> dy;
  Tile<std::int32_t const> winner;
  Tile<T> dx;
  Accumulate accumulate;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    Interval readers[3];
    for (int i = 0; i < 3; ++i) readers[i] = geometry.readers(i, at[i + 1]);
    Window const* win = geometry.windows.axis;
    T* sum = dx.position(at[0], at[1], at[2], at[3]);
    if (accumulate == Accumulate::write) {
      TESSERA_INDEPENDENT
      for (std::int64_t c = channels.begin; c < channels.end; ++c) sum[c] = T(0);
    }
    for (std::int64_t d = readers[0].begin; d < readers[0].end; ++d)
      for (std::int64_t h = readers[1].begin; h < readers[1].end; ++h)
        for (std::int64_t w = readers[2].begin; w < readers[2].end; ++w) {
          T const* error = dy.position(at[0], d, h, w);
          std::int32_t const* which = winner.position(at[0], d, h, w);
          auto const tap = static_cast<std::int32_t>(((at[1] - (d * win[0].stride - win[0].low)) * win[1].kernel +
                                                      (at[2] - (h * win[1].stride - win[1].low))) *
                                                         win[2].kernel +
                                                     (at[3] - (w * win[2].stride - win[2].low)));
          TESSERA_INDEPENDENT
          for (std::int64_t c = channels.begin; c < channels.end; ++c)
            if (which[c] == tap) sum[c] += error[c];
        }
  }
};

}  // namespace tessera::op
