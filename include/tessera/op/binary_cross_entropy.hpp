// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>

#include "tessera/tensor/run.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// -(q t log s + (1 - t) log(1 - s)) with s = sigmoid(z), and its derivative by z. exp only sees numbers below 0.
struct LogitCrossEntropy {
  TESSERA_HD static double value(double z, double t, double q) {
    double const size = z < 0 ? -z : z;
    double const weight = 1.0 + (q - 1.0) * t;
    return (1.0 - t) * z + weight * (Kokkos::log1p(Kokkos::exp(-size)) + (z < 0 ? -z : 0.0));
  }
  TESSERA_HD static double slope(double z, double t, double q) {
    double const small = Kokkos::exp(z < 0 ? z : -z);
    double const sigmoid = (z < 0 ? small : 1.0) / (1.0 + small);
    return (1.0 + (q - 1.0) * t) * sigmoid - q * t;
  }
};

/// sums[0] += the loss of each cell of a position. `weights` holds q for each channel.
template <class T>
struct LogitLossSum {
  Tile<T const> prediction;
  Tile<T const> target;
  double const* weights;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels, double* sums) const {
    T const* z = prediction.position(at[0], at[1], at[2], at[3]);
    T const* t = target.position(at[0], at[1], at[2], at[3]);
    for (std::int64_t c = channels.begin; c < channels.end; ++c)
      sums[0] += LogitCrossEntropy::value(static_cast<double>(z[c]), static_cast<double>(t[c]), weights[c]);
  }
};

/// error = slope / divisor.
template <class T>
struct LogitLossError {
  Tile<T const> prediction;
  Tile<T const> target;
  Tile<T> error;
  double const* weights;
  double divisor;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* z = prediction.position(at[0], at[1], at[2], at[3]);
    T const* t = target.position(at[0], at[1], at[2], at[3]);
    T* e = error.position(at[0], at[1], at[2], at[3]);
    for (std::int64_t c = channels.begin; c < channels.end; ++c)
      e[c] = static_cast<T>(LogitCrossEntropy::slope(static_cast<double>(z[c]), static_cast<double>(t[c]), weights[c]) /
                            divisor);
  }
};

}  // namespace tessera::op
