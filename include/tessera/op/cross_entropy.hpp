// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdint>

#include "tessera/tensor/run.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// The largest z of a position's classes, -infinity without any. NaN is passed over: it returns in the sum.
template <class T>
TESSERA_HD double largest_of(T const* z, Interval classes) {
  double most = -HUGE_VAL;
  for (std::int64_t c = classes.begin; c < classes.end; ++c) {
    double const value = static_cast<double>(z[c]);
    if (value > most) most = value;
  }
  return most;
}

/// The sum of exp(z - peak) over a position's classes, 0 without any.
template <class T>
TESSERA_HD double sum_of_exp(T const* z, Interval classes, double peak) {
  double sum = 0.0;
  for (std::int64_t c = classes.begin; c < classes.end; ++c) sum += Kokkos::exp(static_cast<double>(z[c]) - peak);
  return sum;
}

/// peak = the largest z of the classes that this rank holds, per position.
template <class T>
struct ClassPeak {
  Tile<T const> z;
  Interval classes;
  Tile<double> peak;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval) const {
    *peak.position(at[0], at[1], at[2], at[3]) = largest_of(z.position(at[0], at[1], at[2], at[3]), classes);
  }
};

/// sum = the sum of exp(z - peak) over the classes that this rank holds, per position.
template <class T>
struct ClassSum {
  Tile<T const> z;
  Interval classes;
  Tile<double const> peak;
  Tile<double> sum;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval) const {
    *sum.position(at[0], at[1], at[2], at[3]) =
        sum_of_exp(z.position(at[0], at[1], at[2], at[3]), classes, *peak.position(at[0], at[1], at[2], at[3]));
  }
};

/// sums[sample] += the weight of each label that counts; samples as this rank numbers its own.
template <class T>
struct LabelWeights {
  Tile<T const> target;
  double ignored;
  double const* weights;
  std::int64_t first_sample;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval, double* sums) const {
    double const label = static_cast<double>(*target.position(at[0], at[1], at[2], at[3]));
    if (label != ignored) sums[at[0] - first_sample] += weights[static_cast<std::int64_t>(label)];
  }
};

/// sums[0] += this rank's classes' part of the loss, sums[1] += the weight of the labels among its classes, and the
/// error. With smoothing a and weights w, class c of a position labelled t has the part
/// ((1 - a) w_t [c = t] + a / C w_c) (lse - z_c): each class can be computed where it is held.
template <class T>
struct CrossEntropyPart {
  Tile<T const> z;
  Tile<T const> target;
  Tile<T> error;              ///< without data: not asked for
  Tile<double const> peak;    ///< without data: this rank holds all classes
  Tile<double const> sum;     ///< of exp(z - peak) over all classes
  double const* weights;      ///< of all classes
  double const* per_sample;   ///< a factor for each of this rank's samples, or null
  std::int64_t first_sample;  ///< of this rank
  Interval classes;           ///< of this rank
  double ignored;
  double smoothing;   ///< a
  double even;        ///< a / C
  double weight_sum;  ///< of all classes
  double inverse;     ///< 1 / divisor

  TESSERA_HD void operator()(std::int64_t const at[4], Interval, double* sums) const {
    double const label = static_cast<double>(*target.position(at[0], at[1], at[2], at[3]));
    T* const e = error.data != nullptr ? error.position(at[0], at[1], at[2], at[3]) : nullptr;
    if (label == ignored) {
      if (e != nullptr)
        for (std::int64_t c = classes.begin; c < classes.end; ++c) e[c] = T(0);
      return;
    }
    T const* const x = z.position(at[0], at[1], at[2], at[3]);
    bool const whole = peak.data == nullptr;
    double const m = whole ? largest_of(x, classes) : *peak.position(at[0], at[1], at[2], at[3]);
    double const s = whole ? sum_of_exp(x, classes, m) : *sum.position(at[0], at[1], at[2], at[3]);
    double const log_sum = Kokkos::log(s);
    auto const t = static_cast<std::int64_t>(label);
    double const scale = per_sample != nullptr ? per_sample[at[0] - first_sample] : 1.0;
    double const labelled = (1.0 - smoothing) * weights[t];
    double part = 0.0;
    for (std::int64_t c = classes.begin; c < classes.end; ++c) {
      double const shifted = static_cast<double>(x[c]) - m;
      double const share = (c == t ? labelled : 0.0) + even * weights[c];
      if (share != 0.0) part += share * (log_sum - shifted);  // a class of no weight may be at -infinity
      if (e != nullptr) {
        double const p = Kokkos::exp(shifted) / s;
        double const slope = labelled * (c == t ? p - 1.0 : p) + even * (weight_sum * p - weights[c]);
        e[c] = static_cast<T>(slope * scale * inverse);
      }
    }
    sums[0] += scale * part;
    if (classes.contains(t)) sums[1] += weights[t];
  }
};

}  // namespace tessera::op
