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

/// A function has value(x) and error(y, dy) = dy f'(x), computed from the output y, or, where it says reads_input,
/// error(x, dy) from the input. Both select between numbers that are there, without a product or conversion behind a
/// branch: compilers then make vector code of loops over them. NaN stays NaN.

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

/// x within [-bound, bound]; NaN stays NaN. Before a product of x and what is 0 for large x, so that it is 0 for
/// infinity too.
template <class T>
TESSERA_HD T bounded(T x, T bound) {
  T const low = x < -bound ? -bound : x;
  return low > bound ? bound : low;
}

/// 1 / (1 + exp(-x)), and 1 minus that, both to a few roundings of their own size.
template <class T>
struct Logistic {
  T value;
  T rest;
};
template <class T>
TESSERA_HD Logistic<T> logistic(T x) {
  T const small = Kokkos::exp(-Kokkos::abs(x)), large_part = T(1) / (T(1) + small), small_part = small * large_part;
  return {x < T(0) ? small_part : large_part, x < T(0) ? large_part : small_part};
}

/// 1 / (1 + exp(-x)).
struct SigmoidFunction {
  template <class T>
  TESSERA_HD T value(T x) const {
    return logistic(x).value;
  }
  template <class T>
  TESSERA_HD T error(T y, T dy) const {
    return dy * (y * (T(1) - y));
  }
};

/// x / (1 + exp(-x)).
struct SiluFunction {
  static constexpr bool reads_input = true;
  template <class T>
  TESSERA_HD T value(T x) const {
    T const bound = T(1024), low = x < -bound ? -bound : x;
    return low * logistic(low).value;
  }
  template <class T>
  TESSERA_HD T error(T x, T dy) const {
    T const at = bounded(x, T(1024));
    Logistic<T> const s = logistic(at);
    return dy * (s.value + at * s.value * s.rest);
  }
};

/// x if positive, else alpha (exp(x) - 1). The derivative at 0 is alpha, as PyTorch.
struct EluFunction {
  static constexpr bool reads_input = true;
  double alpha = 1.0;

  template <class T>
  struct In {
    T alpha;
    TESSERA_HD T value(T x) const {
      T const positive = x <= T(0) ? T(0) : x, negative = x <= T(0) ? x : T(0);
      return positive + alpha * Kokkos::expm1(negative);
    }
    TESSERA_HD T error(T x, T dy) const {
      T const curved = alpha * Kokkos::exp(x > T(0) ? T(0) : x);
      return dy * (x > T(0) ? T(1) : curved);
    }
  };
  template <class T>
  TESSERA_HD In<T> in() const {
    return {static_cast<T>(alpha)};
  }
};

/// x Phi(x), Phi the distribution function of the normal distribution; exact in the tail too.
struct GeluFunction {
  static constexpr bool reads_input = true;
  template <class T>
  TESSERA_HD T value(T x) const {
    T const low = x < T(-64) ? T(-64) : x;
    return T(0.5) * low * Kokkos::erfc(-low * T(0.70710678118654752440));
  }
  template <class T>
  TESSERA_HD T error(T x, T dy) const {
    T const at = bounded(x, T(64));
    T const phi = T(0.39894228040143267794) * Kokkos::exp(T(-0.5) * at * at);
    return dy * (T(0.5) * Kokkos::erfc(-at * T(0.70710678118654752440)) + at * phi);
  }
};

/// x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x / (1 + exp(-2 u)).
struct GeluTanhFunction {
  static constexpr bool reads_input = true;
  static constexpr double twice_root = 1.5957691216057307117, cubic = 0.044715;
  template <class T>
  TESSERA_HD T value(T x) const {
    T const low = x < T(-64) ? T(-64) : x;
    return low * logistic(T(twice_root) * low * (T(1) + T(cubic) * low * low)).value;
  }
  template <class T>
  TESSERA_HD T error(T x, T dy) const {
    T const at = bounded(x, T(64)), square = at * at;
    Logistic<T> const s = logistic(T(twice_root) * at * (T(1) + T(cubic) * square));
    T const inner = T(twice_root) * (T(1) + T(3 * cubic) * square);
    return dy * (s.value + at * s.value * s.rest * inner);
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

/// Whether a function's derivative follows from its output.
template <class Function>
constexpr bool reads_output() {
  if constexpr (requires { Function::reads_input; })
    return !Function::reads_input;
  else
    return true;
}

/// dx = dy f'(x), with f' computed from y, or from x for functions that read their input.
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

/// Learnt slopes for negative x: one for each channel of the box, or one for all of them.
template <class T>
struct Slopes {
  T const* first;
  bool shared;
};

/// y = x if positive, else slope * x.
template <class T>
struct Prelu {
  Slopes<T> slopes;
  Tile<T const> x;
  Tile<T> y;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* in = x.position(at[0], at[1], at[2], at[3]) + channels.begin;
    T* out = y.position(at[0], at[1], at[2], at[3]) + channels.begin;
    std::int64_t const count = channels.size(), step = slopes.shared ? 0 : 1;
    TESSERA_INDEPENDENT
    for (std::int64_t c = 0; c < count; ++c) {
      T const positive = in[c] <= T(0) ? T(0) : in[c], negative = in[c] <= T(0) ? in[c] : T(0);
      out[c] = positive + slopes.first[c * step] * negative;
    }
  }
};

/// dx = dy where x is positive, else slope * dy.
template <class T>
struct PreluBackward {
  Slopes<T> slopes;
  Tile<T const> x;
  Tile<T const> dy;
  Tile<T> dx;
  Accumulate accumulate;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* in = x.position(at[0], at[1], at[2], at[3]) + channels.begin;
    T const* error = dy.position(at[0], at[1], at[2], at[3]) + channels.begin;
    T* out = dx.position(at[0], at[1], at[2], at[3]) + channels.begin;
    std::int64_t const count = channels.size(), step = slopes.shared ? 0 : 1;
    TESSERA_INDEPENDENT
    for (std::int64_t c = 0; c < count; ++c) {
      T const positive = in[c] > T(0) ? error[c] : T(0), negative = in[c] > T(0) ? T(0) : error[c];
      T const value = positive + slopes.first[c * step] * negative;
      out[c] = accumulate == Accumulate::add ? out[c] + value : value;
    }
  }
};

/// sums[c] += dy * x where x is not positive: the gradient of the channel's slope.
template <class T>
struct PreluSlopeSums {
  Tile<T const> x;
  Tile<T const> dy;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels, double* sums) const {
    T const* in = x.position(at[0], at[1], at[2], at[3]) + channels.begin;
    T const* error = dy.position(at[0], at[1], at[2], at[3]) + channels.begin;
    std::int64_t const count = channels.size();
    TESSERA_INDEPENDENT
    for (std::int64_t c = 0; c < count; ++c) {
      T const negative = in[c] > T(0) ? T(0) : in[c];
      sums[c] += static_cast<double>(error[c]) * static_cast<double>(negative);
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
