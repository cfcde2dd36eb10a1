// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/op/conv_geometry.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// A convolution of each channel with its own filter. Weights are [depth tap][height tap][width tap][channel], those of
/// channel `first` at the pointer; the channels of a position are one vector loop.
template <class T>
struct DepthwiseForward {
  ConvGeometry geometry;
  std::int64_t first;
  Tile<T const> x;
  T const* weights;
  T const* bias;  ///< or null
  Tile<T> y;
  Accumulate accumulate;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    Window const* const win = geometry.windows.axis;
    T* const sum = y.position(at[0], at[1], at[2], at[3]) + channels.begin;
    std::int64_t const count = channels.size(), skip = channels.begin - first;
    if (bias != nullptr) {
      TESSERA_INDEPENDENT
      for (std::int64_t c = 0; c < count; ++c) sum[c] = bias[skip + c];
    } else if (accumulate == Accumulate::write) {
      TESSERA_INDEPENDENT
      for (std::int64_t c = 0; c < count; ++c) sum[c] = T(0);
    }
    T const* weight = weights + skip;
    for (std::int64_t kd = 0; kd < win[0].kernel; ++kd)
      for (std::int64_t kh = 0; kh < win[1].kernel; ++kh)
        for (std::int64_t kw = 0; kw < win[2].kernel; ++kw, weight += geometry.row_step()) {
          T const* const in = x.position(at[0], at[1] * win[0].stride - win[0].low + kd * win[0].dilation,
                                         at[2] * win[1].stride - win[1].low + kh * win[1].dilation,
                                         at[3] * win[2].stride - win[2].low + kw * win[2].dilation) +
                              channels.begin;
          TESSERA_INDEPENDENT
          for (std::int64_t c = 0; c < count; ++c) sum[c] += in[c] * weight[c];
        }
  }
};

/// The adjoint, by gathering.
template <class T>
struct DepthwiseBackwardData {
  ConvGeometry geometry;
  std::int64_t first;
  Tile<T const> dy;
  T const* weights;
  Tile<T> dx;
  Accumulate accumulate;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    Window const* const win = geometry.windows.axis;
    T* const sum = dx.position(at[0], at[1], at[2], at[3]) + channels.begin;
    std::int64_t const count = channels.size();
    if (accumulate == Accumulate::write) {
      TESSERA_INDEPENDENT
      for (std::int64_t c = 0; c < count; ++c) sum[c] = T(0);
    }
    for (std::int64_t kd = 0; kd < win[0].kernel; ++kd) {
      std::int64_t const d = at[1] + win[0].low - kd * win[0].dilation;
      if (floor_mod(d, win[0].stride) != 0) continue;
      for (std::int64_t kh = 0; kh < win[1].kernel; ++kh) {
        std::int64_t const h = at[2] + win[1].low - kh * win[1].dilation;
        if (floor_mod(h, win[1].stride) != 0) continue;
        for (std::int64_t kw = 0; kw < win[2].kernel; ++kw) {
          std::int64_t const w = at[3] + win[2].low - kw * win[2].dilation;
          if (floor_mod(w, win[2].stride) != 0) continue;
          T const* const error = dy.position(at[0], floor_div(d, win[0].stride), floor_div(h, win[1].stride),
                                             floor_div(w, win[2].stride)) +
                                 channels.begin;
          T const* const weight =
              weights + ((kd * win[1].kernel + kh) * win[2].kernel + kw) * geometry.row_step() + channels.begin - first;
          TESSERA_INDEPENDENT
          for (std::int64_t c = 0; c < count; ++c) sum[c] += error[c] * weight[c];
        }
      }
    }
  }
};

/// The filter gradient: one call adds the sums of all channels for one tap, over outputs in row-major order.
template <class T>
struct DepthwiseBackwardFilter {
  ConvGeometry geometry;
  std::int64_t first;
  Tile<T const> x;
  Tile<T const> dy;
  Box out;
  T* dw;
  TESSERA_HD void operator()(std::int64_t tap) const {
    Window const* const win = geometry.windows.axis;
    std::int64_t const kw = tap % win[2].kernel, kh = tap / win[2].kernel % win[1].kernel,
                       kd = tap / win[2].kernel / win[1].kernel;
    std::int64_t const begin = out.axis[4].begin, count = out.axis[4].size();
    T* const sum = dw + tap * geometry.row_step() + begin - first;
    for (std::int64_t n = out.axis[0].begin; n < out.axis[0].end; ++n)
      for (std::int64_t d = out.axis[1].begin; d < out.axis[1].end; ++d)
        for (std::int64_t h = out.axis[2].begin; h < out.axis[2].end; ++h)
          for (std::int64_t w = out.axis[3].begin; w < out.axis[3].end; ++w) {
            T const* const error = dy.position(n, d, h, w) + begin;
            T const* const in = x.position(n, d * win[0].stride - win[0].low + kd * win[0].dilation,
                                           h * win[1].stride - win[1].low + kh * win[1].dilation,
                                           w * win[2].stride - win[2].low + kw * win[2].dilation) +
                                begin;
            TESSERA_INDEPENDENT
            for (std::int64_t c = 0; c < count; ++c) sum[c] += error[c] * in[c];
          }
  }
};

}  // namespace tessera::op
