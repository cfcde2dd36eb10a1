// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/op/geometry.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// Where the numbers of a sample begin in a table of numbers per sample and channel. A stride of 0: the table has
/// numbers per channel alone, the same for all samples.
struct SampleRows {
  std::int64_t first = 0;  ///< the table's first sample
  std::int64_t stride = 0;
  TESSERA_HD std::int64_t operator()(std::int64_t sample) const { return (sample - first) * stride; }
};

/// What normalisation needs of each channel, or of each channel of each sample, as three tables that begin at the box's
/// first channel. The mean is kept in two parts, because rounding it to T loses what is left of x - mean when the mean
/// is large.
template <class T>
struct ChannelScale {
  T const* mean_high;
  T const* mean_low;
  T const* inverse_deviation;
  SampleRows rows;

  TESSERA_HD ChannelScale of(std::int64_t sample) const {
    std::int64_t const row = rows(sample);
    return {mean_high + row, mean_low + row, inverse_deviation + row, {}};
  }
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
  double const* means;
  SampleRows rows;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels, double* sums) const {
    T const* in = x.position(at[0], at[1], at[2], at[3]) + channels.begin;
    double const* const mean = means + rows(at[0]);
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
  ChannelScale<T> scales;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels, double* sums) const {
    ChannelScale<T> const scale = scales.of(at[0]);
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
  ChannelScale<T> scales;
  T const* gamma;
  T const* beta;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    ChannelScale<T> const scale = scales.of(at[0]);
    T const* in = x.position(at[0], at[1], at[2], at[3]) + channels.begin;
    T* out = y.position(at[0], at[1], at[2], at[3]) + channels.begin;
    std::int64_t const count = channels.size();
    TESSERA_INDEPENDENT
    for (std::int64_t c = 0; c < count; ++c) out[c] = gamma[c] * scale.normalised(c, in[c]) + beta[c];
  }
};

/// dx = r (gamma dy - share - normalised x * share_x): the shares, in tables like the scale's, are the means of gamma
/// dy and of gamma dy times normalised x over the values that were measured together; 0 if statistics were given.
template <class T>
struct NormaliseBackward {
  Tile<T const> x;
  Tile<T const> dy;
  Tile<T> dx;
  ChannelScale<T> scales;
  T const* gamma;
  T const* shares;
  T const* shares_x;
  Accumulate accumulate;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    ChannelScale<T> const scale = scales.of(at[0]);
    T const* const share = shares + scales.rows(at[0]);
    T const* const share_x = shares_x + scales.rows(at[0]);
    T const* in = x.position(at[0], at[1], at[2], at[3]) + channels.begin;
    T const* error = dy.position(at[0], at[1], at[2], at[3]) + channels.begin;
    T* out = dx.position(at[0], at[1], at[2], at[3]) + channels.begin;
    std::int64_t const count = channels.size();
    TESSERA_INDEPENDENT
    for (std::int64_t c = 0; c < count; ++c) {
      T const value =
          scale.inverse_deviation[c] * (gamma[c] * error[c] - share[c] - scale.normalised(c, in[c]) * share_x[c]);
      out[c] = accumulate == Accumulate::add ? out[c] + value : value;
    }
  }
};

}  // namespace tessera::op
