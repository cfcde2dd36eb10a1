// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/op/geometry.hpp"
#include "tessera/op/readers.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// Pooling windows and the global extents that clip them (geometry.md, pooling).
struct PoolGeometry {
  Windows windows;
  std::int64_t extent[3] = {1, 1, 1};   ///< inputs along depth, height, width
  std::int64_t outputs[3] = {1, 1, 1};  ///< outputs along depth, height, width
  bool count_padding = true;            ///< whether an average counts padding cells in its divisor
  std::int64_t fixed_divisor = 0;       ///< what an average divides by instead, unless 0

  /// Where the window of output o begins along spatial axis i, perhaps before the border.
  TESSERA_HD constexpr std::int64_t begin(int i, std::int64_t o) const {
    return o * windows.axis[i].stride - windows.axis[i].low;
  }

  /// The taps of output o that lie on cells of the input.
  TESSERA_HD constexpr Interval taps(int i, std::int64_t o) const {
    Window const& w = windows.axis[i];
    std::int64_t const first = begin(i, o);
    return {first < 0 ? ceil_div(-first, w.dilation) : 0,
            first + w.span() <= extent[i] ? w.kernel : ceil_div(extent[i] - first, w.dilation)};
  }

  /// The cells that output o of an average, whose windows are not dilated, reads.
  TESSERA_HD constexpr Interval cells(int i, std::int64_t o) const {
    std::int64_t const first = begin(i, o);
    return intersect(Interval{first, first + windows.axis[i].kernel}, Interval{0, extent[i]});
  }

  /// The factor of this axis in what an average divides by. What overhangs the padding never counts.
  TESSERA_HD constexpr std::int64_t divisor(int i, std::int64_t o) const {
    if (fixed_divisor != 0) return i == 0 ? fixed_divisor : 1;
    if (!count_padding) return cells(i, o).size();
    std::int64_t const first = begin(i, o);
    return smaller(first + windows.axis[i].kernel, extent[i] + windows.axis[i].high) - first;
  }

  /// The outputs that may read input cell `at` along one axis; all of them do if the window is not dilated.
  TESSERA_HD constexpr Interval readers(int i, std::int64_t at) const {
    return intersect(windows.axis[i].touch({at, at + 1}), Interval{0, outputs[i]});
  }
};

/// y = sum over a box of cells / divisor, cells in row-major order. A geometry has cells, divisor and readers per axis.
/// Of windows with many cells the sum is taken in double, so that its error does not grow with them.
template <class T, class Geometry>
struct AveragePool {
  static constexpr std::int64_t many = 128;

  Geometry geometry;
  Tile<T const> x;
  Tile<T> y;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    Interval cells[3];
    std::int64_t count = 1;
    for (int i = 0; i < 3; ++i) {
      cells[i] = geometry.cells(i, at[i + 1]);
      count *= geometry.divisor(i, at[i + 1]);
    }
    T* sum = y.position(at[0], at[1], at[2], at[3]);
    if (sizeof(T) < sizeof(double) && cells[0].size() * cells[1].size() * cells[2].size() > many)
      return sum_in_double(at[0], cells, count, channels, sum);
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

 private:
  /// A few channels at a time.
  TESSERA_HD void sum_in_double(std::int64_t sample, Interval const (&cells)[3], std::int64_t count, Interval channels,
                                T* mean) const {
    constexpr std::int64_t width = 16;
    for (std::int64_t first = channels.begin; first < channels.end; first += width) {
      std::int64_t const some = smaller(width, channels.end - first);
      double sum[width] = {};
      for (std::int64_t d = cells[0].begin; d < cells[0].end; ++d)
        for (std::int64_t h = cells[1].begin; h < cells[1].end; ++h)
          for (std::int64_t w = cells[2].begin; w < cells[2].end; ++w) {
            T const* in = x.position(sample, d, h, w) + first;
            TESSERA_INDEPENDENT
            for (std::int64_t c = 0; c < some; ++c) sum[c] += static_cast<double>(in[c]);
          }
      for (std::int64_t c = 0; c < some; ++c) mean[first + c] = static_cast<T>(sum[c] / static_cast<double>(count));
    }
  }
};

/// Its adjoint: an output hands dy / divisor to each of its cells.
template <class T, class Geometry>
struct AveragePoolAdjoint {
  struct Link {
    std::int64_t divisor;
    bool reads;
  };

  Geometry geometry;
  Tile<T const> dy;

  TESSERA_HD Interval readers(int i, std::int64_t at) const { return geometry.readers(i, at); }
  TESSERA_HD Link link(int i, std::int64_t, std::int64_t o) const { return {geometry.divisor(i, o), true}; }
  TESSERA_HD void add(std::int64_t sample, std::int64_t const o[3], Link const by[3], T* sum, Interval channels) const {
    T const scale = T(1) / static_cast<T>(by[0].divisor * by[1].divisor * by[2].divisor);
    T const* error = dy.position(sample, o[0], o[1], o[2]);
    TESSERA_INDEPENDENT
    for (std::int64_t c = channels.begin; c < channels.end; ++c) sum[c] += scale * error[c];
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
    Window const* win = geometry.windows.axis;
    Interval taps[3];
    std::int64_t begin[3];
    for (int i = 0; i < 3; ++i) {
      taps[i] = geometry.taps(i, at[i + 1]);
      begin[i] = geometry.begin(i, at[i + 1]);
    }
    T* best = y.position(at[0], at[1], at[2], at[3]);
    std::int32_t* which = winner.position(at[0], at[1], at[2], at[3]);
    bool first = true;
    for (std::int64_t d = taps[0].begin; d < taps[0].end; ++d)
      for (std::int64_t h = taps[1].begin; h < taps[1].end; ++h)
        for (std::int64_t w = taps[2].begin; w < taps[2].end; ++w) {
          T const* in = x.position(at[0], begin[0] + d * win[0].dilation, begin[1] + h * win[1].dilation,
                                   begin[2] + w * win[2].dilation);
          auto const tap = static_cast<std::int32_t>((d * win[1].kernel + h) * win[2].kernel + w);
          if (first) {
            TESSERA_INDEPENDENT
            for (std::int64_t c = channels.begin; c < channels.end; ++c) {
              best[c] = in[c];
              which[c] = tap;
            }
          } else {  // without branches, so that channels go side by side
            TESSERA_INDEPENDENT
            for (std::int64_t c = channels.begin; c < channels.end; ++c) {
              bool const wins = (in[c] > best[c]) | (in[c] != in[c]);
              best[c] = wins ? in[c] : best[c];
              which[c] = wins ? tap : which[c];
            }
          }
          first = false;
        }
  }
};

/// Its adjoint: an output hands dy to its winner.
template <class T>
struct MaxPoolAdjoint {
  struct Link {
    std::int64_t tap;
    bool reads;
  };

  PoolGeometry geometry;
  Tile<T const> dy;
  Tile<std::int32_t const> winner;

  TESSERA_HD Interval readers(int i, std::int64_t at) const { return geometry.readers(i, at); }
  TESSERA_HD Link link(int i, std::int64_t at, std::int64_t o) const {
    std::int64_t const offset = at - geometry.begin(i, o), dilation = geometry.windows.axis[i].dilation;
    if (dilation == 1) return {offset, true};
    return {offset / dilation, offset % dilation == 0};
  }
  TESSERA_HD void add(std::int64_t sample, std::int64_t const o[3], Link const by[3], T* sum, Interval channels) const {
    Window const* win = geometry.windows.axis;
    auto const tap = static_cast<std::int32_t>((by[0].tap * win[1].kernel + by[1].tap) * win[2].kernel + by[2].tap);
    T const* error = dy.position(sample, o[0], o[1], o[2]);
    std::int32_t const* which = winner.position(sample, o[0], o[1], o[2]);
    TESSERA_INDEPENDENT
    for (std::int64_t c = channels.begin; c < channels.end; ++c) {
      T const all = error[c];  // read whether it is handed on or not: a branch would keep channels apart
      sum[c] += which[c] == tap ? all : T(0);
    }
  }
};

}  // namespace tessera::op
