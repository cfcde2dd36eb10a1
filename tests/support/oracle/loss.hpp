// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/host_tensor.hpp"

/// Losses of whole batches in long double, written down from their definitions, with what rounding in double may add.
namespace tessera::test::oracle {

using Real = long double;

struct LossResult {
  double value = 0;
  HostTensor slope;        ///< of the value by each cell of the prediction
  double value_error = 0;  ///< bounds, for sums in double
  HostTensor slope_error;  ///< without the rounding of the slope itself to the type of the tensor
};

inline constexpr Real unit = 0x1p-53L;

/// value(p, t) and slope(p, t) of each cell, both with a bound of what an evaluation in double may be off.
struct Cell {
  Real value, slope, value_error, slope_error;
};
template <class F>
LossResult mean_of_cells(HostTensor const& prediction, HostTensor const& target, F f) {
  Real const n = static_cast<Real>(prediction.values.size());
  LossResult r{0, HostTensor(prediction.shape), 0, HostTensor(prediction.shape)};
  Real sum = 0, error = 0;
  auto const channels = static_cast<std::size_t>(prediction.shape.channel);
  for (std::size_t i = 0; i < prediction.values.size(); ++i) {
    Cell const cell = f(static_cast<Real>(prediction.values[i]), static_cast<Real>(target.values[i]), i % channels);
    sum += cell.value;
    error += cell.value_error + n * unit * std::abs(cell.value);
    r.slope.values[i] = static_cast<double>(cell.slope / n);
    r.slope_error.values[i] = static_cast<double>((cell.slope_error + 4 * unit * std::abs(cell.slope)) / n);
  }
  r.value = static_cast<double>(sum / n);
  r.value_error = static_cast<double>((error + 4 * unit * std::abs(sum)) / n);
  return r;
}

inline Cell huber(Real p, Real t, Real delta) {
  Real const d = p - t, size = std::abs(d);
  if (size <= delta) return {d * d / 2, d, 3 * unit * d * d, 2 * unit * size};
  return {delta * size - delta * delta / 2, d > 0 ? delta : -delta, 6 * unit * delta * (size + delta), 0};
}

inline Cell binary_cross_entropy(Real z, Real t, Real q) {
  Real const minus_log_s = std::log1p(std::exp(-z)), minus_log_rest = std::log1p(std::exp(z));
  Real const s = 1 / (1 + std::exp(-z)), rest = 1 / (1 + std::exp(z));
  // The library has (1 - t) z + l (log1p + max(-z, 0)): its terms are at most (1 + q) (|z| + 1).
  return {q * t * minus_log_s + (1 - t) * minus_log_rest, (1 - t) * s - q * t * rest,
          12 * unit * (1 + q) * (std::abs(z) + 1), 16 * unit * (1 + q)};
}

struct CrossEntropyOptions {
  double ignored = -100;
  std::vector<double> weights = {};
  double smoothing = 0;
  bool per_sample = false;
};

/// Every position has a share q_c of each class, and the part sum_c q_c (-log p_c); what is ignored has no part.
inline LossResult cross_entropy(HostTensor const& z, HostTensor const& labels, CrossEntropyOptions const& o) {
  Shape const s = z.shape;
  auto const classes = static_cast<std::size_t>(s.channel);
  auto const positions = labels.values.size(), in_sample = positions / static_cast<std::size_t>(s.sample);
  std::vector<Real> weights(classes, 1);
  for (std::size_t c = 0; c < o.weights.size(); ++c) weights[c] = o.weights[c];
  std::size_t const groups = o.per_sample ? static_cast<std::size_t>(s.sample) : 1;
  auto const group = [&](std::size_t i) { return o.per_sample ? i / in_sample : 0; };
  std::vector<Real> count(groups, 0);
  Real const n = static_cast<Real>(positions);
  for (std::size_t i = 0; i < positions; ++i)
    if (labels.values[i] != o.ignored) count[group(i)] += weights[static_cast<std::size_t>(labels.values[i])];
  Real averaged = 0;
  for (Real const c : count) averaged += c > 0 ? 1 : 0;

  LossResult r{0, HostTensor(s), 0, HostTensor(s)};
  Real value = 0, value_error = 0;
  for (std::size_t i = 0; i < positions; ++i) {
    if (labels.values[i] == o.ignored || count[group(i)] == 0) continue;
    Real const over = count[group(i)] * averaged;
    auto const label = static_cast<std::size_t>(labels.values[i]);
    double const* const x = &z.values[i * classes];
    Real const peak = *std::max_element(x, x + classes);
    Real all = 0, shares = 0, spread = 0;
    for (std::size_t c = 0; c < classes; ++c) all += std::exp(x[c] - peak);
    std::vector<Real> q(classes);
    for (std::size_t c = 0; c < classes; ++c) {
      q[c] = o.smoothing * weights[c] / static_cast<Real>(classes);
      if (c == label) q[c] += (1 - static_cast<Real>(o.smoothing)) * weights[c];
      shares += q[c];
      Real const minus_log_p = std::log(all) + peak - x[c];
      if (q[c] != 0) value += q[c] * minus_log_p / over;
      spread = std::max(spread, peak - x[c]);
      // x - peak, exp, the sum of exps, its log, the difference, the product; then n additions and the count's n.
      value_error += q[c] * (std::log(all) + peak - x[c] + 1) * (2 * n + 2 * classes + 20) * unit / over;
    }
    for (std::size_t c = 0; c < classes; ++c) {
      std::size_t const at = i * classes + c;
      Real const p = std::exp(x[c] - peak) / all, slope = (p * shares - q[c]) / over;
      r.slope.values[at] = static_cast<double>(slope);
      r.slope_error.values[at] = static_cast<double>(
          ((p * (peak - x[c] + classes + 10) + 6) * (shares + q[c]) + (n + 8) * std::abs(slope) * over) * unit / over);
    }
  }
  r.value = static_cast<double>(value);
  r.value_error = static_cast<double>(value_error);
  return r;
}

struct DiceOptions {
  int exponent = 1;
  double epsilon = 1e-5;
  bool per_sample = true;
  bool generalised = false;
};

/// `shares` has the prediction's shape; a position whose shares are NaN is left out.
inline LossResult dice(HostTensor const& p, HostTensor const& shares, DiceOptions const& o) {
  Shape const s = p.shape;
  auto const classes = static_cast<std::size_t>(s.channel), samples = static_cast<std::size_t>(s.sample);
  std::size_t const groups = o.per_sample ? samples : 1, in_group = p.values.size() / groups;
  struct Sums {
    Real common = 0, predicted = 0, labelled = 0;
  };
  std::vector<Sums> sums(groups * classes);
  auto const counts = [&](std::size_t i) { return !std::isnan(shares.values[i]); };
  for (std::size_t i = 0; i < p.values.size(); ++i) {
    if (!counts(i)) continue;
    Sums& cell = sums[i / in_group * classes + i % classes];
    Real const v = p.values[i], g = shares.values[i];
    cell.common += v * g;
    cell.predicted += std::pow(v, o.exponent);
    cell.labelled += g;
  }
  // A term of the mean is 1 - above / below; both are linear in the sums, with a weight per class.
  std::size_t const in_term = o.generalised ? classes : 1, terms = sums.size() / in_term;
  std::vector<Real> weight(sums.size(), 1), above(terms, o.epsilon), below(terms, o.epsilon);
  Real averaged = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (o.generalised) weight[i] = sums[i].labelled > 0 ? 1 / (sums[i].labelled * sums[i].labelled) : 0;
    above[i / in_term] += 2 * weight[i] * sums[i].common;
    below[i / in_term] += weight[i] * (sums[i].predicted + sums[i].labelled);
  }
  for (Real const b : below) averaged += b > 0 ? 1 : 0;
  LossResult r{0, HostTensor(s), 0, HostTensor(s)};
  if (averaged == 0) return r;
  Real const n = static_cast<Real>(p.values.size());
  // All terms are of one sign: the relative errors of sums add. Weights have twice that of a sum.
  Real const rounding = (8 * n + 60) * unit;
  Real value = 0, value_error = 0;
  for (std::size_t i = 0; i < terms; ++i)
    if (below[i] > 0) {
      value += (1 - above[i] / below[i]) / averaged;
      value_error += (1 + above[i] / below[i]) * rounding / averaged;
    }
  for (std::size_t i = 0; i < p.values.size(); ++i) {
    std::size_t const cell = i / in_group * classes + i % classes, term = cell / in_term;
    if (!counts(i) || below[term] == 0) continue;
    Real const g = shares.values[i], moved = o.exponent == 2 ? 2 * static_cast<Real>(p.values[i]) : 1;
    Real const up = weight[cell] * 2 * g * below[term], down = above[term] * weight[cell] * moved,
               square = below[term] * below[term] * averaged;
    r.slope.values[i] = static_cast<double>(-(up - down) / square);
    r.slope_error.values[i] = static_cast<double>((up + down) * rounding / square);
  }
  r.value = static_cast<double>(value);
  r.value_error = static_cast<double>(value_error);
  return r;
}

}  // namespace tessera::test::oracle
