// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/op/geometry.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// What normalisation needs of each channel, as three arrays. The mean is kept in two parts, because rounding it to T
/// loses what is left of x - mean when the mean is large.
template <class T>
struct ChannelScale {
  T const* mean_high;
  T const* mean_low;
  T const* inverse_deviation;

  TESSERA_HD T normalised(std::int64_t c, T x) const {
    return ((x - mean_high[c]) - mean_low[c]) * inverse_deviation[c];
  }
};

/// sums[c] += x.
template <class T>
struct ChannelSum {
  Tile<T const> x;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels, double* sums) const {
    T const* in = x.position(at[0], at[1], at[2], at[3]) + channels.begin;
    std::int64_t const count = channels.size();
    TESSERA_INDEPENDENT
    for (std::int64_t c = 0; c < count; ++c) sums[c] += static_cast<double>(in[c]);
  }
};

/// sums[c] += (x - mean[c])^2.
template <class T>
struct ChannelSquares {
  Tile<T const> x;
  double const* mean;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels, double* sums) const {
    T const* in = x.position(at[0], at[1], at[2], at[3]) + channels.begin;
    std::int64_t const count = channels.size();
    TESSERA_INDEPENDENT
    for (std::int64_t c = 0; c < count; ++c) {
      double const deviation = static_cast<double>(in[c]) - mean[c];
      sums[c] += deviation * deviation;
    }
  }
};

/// sums[c] += dy and sums[C + c] += dy * normalised x.
template <class T>
struct NormErrorSums {
  Tile<T const> x;
  Tile<T const> dy;
  ChannelScale<T> scale;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels, double* sums) const {
    T const* in = x.position(at[0], at[1], at[2], at[3]) + channels.begin;
    T const* error = dy.position(at[0], at[1], at[2], at[3]) + channels.begin;
    std::int64_t const count = channels.size();
    TESSERA_INDEPENDENT
    for (std::int64_t c = 0; c < count; ++c) {
      sums[c] += static_cast<double>(error[c]);
      sums[count + c] += static_cast<double>(error[c]) * static_cast<double>(scale.normalised(c, in[c]));
    }
  }
};

/// y = gamma * normalised x + beta. Pointers are to the box's first channel.
template <class T>
struct Normalise {
  Tile<T const> x;
  Tile<T> y;
  ChannelScale<T> scale;
  T const* gamma;
  T const* beta;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* in = x.position(at[0], at[1], at[2], at[3]) + channels.begin;
    T* out = y.position(at[0], at[1], at[2], at[3]) + channels.begin;
    std::int64_t const count = channels.size();
    TESSERA_INDEPENDENT
    for (std::int64_t c = 0; c < count; ++c) out[c] = gamma[c] * scale.normalised(c, in[c]) + beta[c];
  }
};

/// dx = gamma r (dy - mean_dy[c] - normalised x * mean_dyx[c]); both means are 0 in inference.
template <class T>
struct NormaliseBackward {
  Tile<T const> x;
  Tile<T const> dy;
  Tile<T> dx;
  ChannelScale<T> scale;
  T const* gamma;
  T const* mean_dy;
  T const* mean_dyx;
  Accumulate accumulate;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* in = x.position(at[0], at[1], at[2], at[3]) + channels.begin;
    T const* error = dy.position(at[0], at[1], at[2], at[3]) + channels.begin;
    T* out = dx.position(at[0], at[1], at[2], at[3]) + channels.begin;
    std::int64_t const count = channels.size();
    TESSERA_INDEPENDENT
    for (std::int64_t c = 0; c < count; ++c) {
      T const value =
          gamma[c] * scale.inverse_deviation[c] * (error[c] - mean_dy[c] - scale.normalised(c, in[c]) * mean_dyx[c]);
      out[c] = accumulate == Accumulate::add ? out[c] + value : value;
    }
  }
};

}  // namespace tessera::op
