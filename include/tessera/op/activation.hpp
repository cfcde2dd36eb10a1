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

/// A function has value(x) and error(y, dy) = dy f'(x), computed from the output y. Both select between numbers that
/// are there, without a product or conversion behind a branch: compilers then make vector code of loops over them.

/// max(x, 0); NaN stays NaN. The derivative is 0 at 0 and 1 at NaN, as PyTorch.
struct ReluFunction {
  template <class T>
  TESSERA_HD T value(T x) const {
    return x <= T(0) ? T(0) : x;
  }
  template <class T>
  TESSERA_HD T error(T y, T dy) const {
    return y <= T(0) ? T(0) : dy;
  }
};

/// x if positive, else slope * x, slope >= 0.
struct LeakyReluFunction {
  double negative_slope = 0.01;

  template <class T>
  struct In {
    T negative_slope;
    TESSERA_HD T value(T x) const {
      T const positive = x <= T(0) ? T(0) : x, negative = x <= T(0) ? x : T(0);
      return positive + negative_slope * negative;
    }
    TESSERA_HD T error(T y, T dy) const {
      T const positive = y > T(0) ? dy : T(0), negative = y > T(0) ? T(0) : dy;  // at NaN as PyTorch: slope * dy
      return positive + negative_slope * negative;
    }
  };
  template <class T>
  TESSERA_HD In<T> in() const {
    return {static_cast<T>(negative_slope)};
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
  TESSERA_HD T error(T y, T dy) const {
    T const t = y / static_cast<T>(scale);
    return dy * (static_cast<T>(scale) * (T(1) - t * t));
  }
};

/// A function as loops over T call it.
template <class T, class Function>
TESSERA_HD auto in(Function const& function) {
  if constexpr (requires { function.template in<T>(); })
    return function.template in<T>();
  else
    return function;
}

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
    auto const f = in<T>(function);
    TESSERA_INDEPENDENT
    for (std::int64_t c = channels.begin; c < channels.end; ++c) to[c] = f.value(from[c]);
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
    auto const f = in<T>(function);
    if (accumulate == Accumulate::write) {
      TESSERA_INDEPENDENT
      for (std::int64_t c = channels.begin; c < channels.end; ++c) to[c] = f.error(out[c], error[c]);
    } else {
      TESSERA_INDEPENDENT
      for (std::int64_t c = channels.begin; c < channels.end; ++c) to[c] += f.error(out[c], error[c]);
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
