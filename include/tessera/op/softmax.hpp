// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>

#include "tessera/op/geometry.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// The steps of a softmax over the channels of each position. What passes from one to the next is one number per
/// position, so that ranks that share positions can merge theirs in between: the largest x, then the sum of exp(x -
/// largest). A rank without channels contributes -infinity and 0.

/// largest = max x. NaN is passed over: the sum will be NaN.
template <class T>
struct SoftmaxLargest {
  Tile<T const> x;
  Tile<T> largest;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* in = x.position(at[0], at[1], at[2], at[3]);
    T most = -Kokkos::Experimental::infinity_v<T>;
    for (std::int64_t c = channels.begin; c < channels.end; ++c) most = in[c] > most ? in[c] : most;
    largest(at[0], at[1], at[2], at[3], 0) = most;
  }
};

/// sum = sum of exp(x - largest), in double; y is the terms.
template <class T>
struct SoftmaxTerms {
  Tile<T const> x;
  Tile<T> y;
  Tile<T const> largest;
  Tile<double> sum;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* in = x.position(at[0], at[1], at[2], at[3]);
    T* out = y.position(at[0], at[1], at[2], at[3]);
    T const most = largest(at[0], at[1], at[2], at[3], 0);
    double all = 0.0;
    for (std::int64_t c = channels.begin; c < channels.end; ++c) {
      out[c] = Kokkos::exp(in[c] - most);
      all += static_cast<double>(out[c]);
    }
    sum(at[0], at[1], at[2], at[3], 0) = all;
  }
};

/// y = term / sum, or its logarithm x - largest - log(sum).
template <class T>
struct SoftmaxResult {
  Tile<T const> x;
  Tile<T> y;
  Tile<T const> largest;
  Tile<double const> sum;
  bool logarithm;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* in = x.position(at[0], at[1], at[2], at[3]);
    T* out = y.position(at[0], at[1], at[2], at[3]);
    T const most = largest(at[0], at[1], at[2], at[3], 0);
    double const all = sum(at[0], at[1], at[2], at[3], 0);
    if (logarithm) {
      T const rest = static_cast<T>(Kokkos::log(all));
      TESSERA_INDEPENDENT
      for (std::int64_t c = channels.begin; c < channels.end; ++c) out[c] = (in[c] - most) - rest;
    } else {
      T const scale = static_cast<T>(1.0 / all);
      TESSERA_INDEPENDENT
      for (std::int64_t c = channels.begin; c < channels.end; ++c) out[c] *= scale;
    }
  }
};

/// share = sum of y dy, or of dy where y is a logarithm, in double.
template <class T>
struct SoftmaxShare {
  Tile<T const> y;
  Tile<T const> dy;
  Tile<double> share;
  bool logarithm;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* out = y.position(at[0], at[1], at[2], at[3]);
    T const* error = dy.position(at[0], at[1], at[2], at[3]);
    double all = 0.0;
    for (std::int64_t c = channels.begin; c < channels.end; ++c)
      all += static_cast<double>(error[c]) * (logarithm ? 1.0 : static_cast<double>(out[c]));
    share(at[0], at[1], at[2], at[3], 0) = all;
  }
};

/// dx = y (dy - share), or dy - exp(y) share where y is a logarithm.
template <class T>
struct SoftmaxBackward {
  Tile<T const> y;
  Tile<T const> dy;
  Tile<T> dx;
  Tile<double const> share;
  bool logarithm;
  Accumulate accumulate;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* out = y.position(at[0], at[1], at[2], at[3]);
    T const* error = dy.position(at[0], at[1], at[2], at[3]);
    T* to = dx.position(at[0], at[1], at[2], at[3]);
    T const taken = static_cast<T>(share(at[0], at[1], at[2], at[3], 0));
    for (std::int64_t c = channels.begin; c < channels.end; ++c) {
      T const value = logarithm ? error[c] - Kokkos::exp(out[c]) * taken : out[c] * (error[c] - taken);
      to[c] = accumulate == Accumulate::add ? to[c] + value : value;
    }
  }
};

/// Steps one after the other at each position, where nothing is merged in between.
template <class First, class... Rest>
struct InTurn {
  First first;
  InTurn<Rest...> rest;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    first(at, channels);
    rest(at, channels);
  }
};
template <class Last>
struct InTurn<Last> {
  Last last;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const { last(at, channels); }
};

}  // namespace tessera::op
