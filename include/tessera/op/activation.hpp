// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>

#include "tessera/op/geometry.hpp"
#include "tessera/op/random.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// max(x, 0); NaN stays NaN. The derivative is taken from the output; 0 at 0, 1 at NaN, as PyTorch.
struct ReluFunction {
  template <class T>
  TESSERA_HD T value(T x) const {
    return x <= T(0) ? T(0) : x;
  }
  template <class T>
  TESSERA_HD T slope(T y) const {
    return y <= T(0) ? T(0) : T(1);
  }
};

/// x if positive, else slope * x, slope >= 0.
struct LeakyReluFunction {
  double negative_slope = 0.01;
  template <class T>
  TESSERA_HD T value(T x) const {
    return x * slope(x);  // no branch around the product: loops over it become vector code
  }
  template <class T>
  TESSERA_HD T slope(T y) const {
    return y > T(0) ? T(1) : static_cast<T>(negative_slope);
  }
};

/// scale * tanh(x).
struct TanhFunction {
  double scale = 1.0;
  template <class T>
  TESSERA_HD T value(T x) const {
    return static_cast<T>(scale) * Kokkos::tanh(x);
  }
  template <class T>
  TESSERA_HD T slope(T y) const {
    T const t = y / static_cast<T>(scale);
    return static_cast<T>(scale) * (T(1) - t * t);
  }
};

/// y = f(x), cell by cell.
template <class T, class Function>
struct Apply {
  Function function;
  Tile<T const> x;
  Tile<T> y;
  TESSERA_HD bool merges(Box const& box) const { return row_is_dense(x, box) && row_is_dense(y, box); }
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* from = x.position(at[0], at[1], at[2], at[3]);
    T* to = y.position(at[0], at[1], at[2], at[3]);
    TESSERA_INDEPENDENT
    for (std::int64_t c = channels.begin; c < channels.end; ++c) to[c] = function.value(from[c]);
  }
};

/// dx = dy f'(x), with f' computed from y.
template <class T, class Function>
struct ApplySlope {
  Function function;
  Tile<T const> y;
  Tile<T const> dy;
  Tile<T> dx;
  Accumulate accumulate;
  TESSERA_HD bool merges(Box const& box) const {
    return row_is_dense(y, box) && row_is_dense(dy, box) && row_is_dense(dx, box);
  }
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* out = y.position(at[0], at[1], at[2], at[3]);
    T const* error = dy.position(at[0], at[1], at[2], at[3]);
    T* to = dx.position(at[0], at[1], at[2], at[3]);
    if (accumulate == Accumulate::write) {
      TESSERA_INDEPENDENT
      for (std::int64_t c = channels.begin; c < channels.end; ++c) to[c] = error[c] * function.slope(out[c]);
    } else {
      TESSERA_INDEPENDENT
      for (std::int64_t c = channels.begin; c < channels.end; ++c) to[c] += error[c] * function.slope(out[c]);
    }
  }
};

/// Keeps each cell with probability 1 - rate and scales it by 1 / (1 - rate). The mask is a function of the global
/// index alone; the backward pass computes it again.
template <class T>
struct Dropout {
  RandomStream random;
  std::uint64_t threshold;  ///< cells whose word is below are dropped
  T scale;
  std::int64_t extent[4];  ///< global depth, height, width, channels
  Tile<T const> from;
  Tile<T> to;
  Accumulate accumulate;
  std::int64_t first_sample = 0;  ///< global index of sample 0
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* in = from.position(at[0], at[1], at[2], at[3]);
    T* out = to.position(at[0], at[1], at[2], at[3]);
    std::int64_t const first =
        ((((at[0] + first_sample) * extent[0] + at[1]) * extent[1] + at[2]) * extent[2] + at[3]) * extent[3];
    std::int64_t c = channels.begin;
    while (c < channels.end) {
      auto const at_word = static_cast<std::uint64_t>(first + c);
      PhiloxBlock const block = philox(at_word / 4, random.step, random.key);
      for (std::uint64_t word = at_word % 4; word < 4 && c < channels.end; ++word, ++c) {
        T const value = block.word[word] >= threshold ? scale * in[c] : T(0);
        out[c] = accumulate == Accumulate::add ? out[c] + value : value;
      }
    }
  }
};

}  // namespace tessera::op
