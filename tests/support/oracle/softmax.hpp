// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "support/host_tensor.hpp"

/// Softmax over the channels of each position, its logarithm and the gradients of both as plain loops, and how far
/// rounding may move each number.
namespace tessera::test::oracle {

struct SoftmaxResult {
  HostTensor y, dx, y_error, dx_error;
};

/// u is the unit roundoff of the layer's type, v that of its sums, `tiny` the smallest number that it keeps all bits
/// of.
inline SoftmaxResult softmax(HostTensor const& x, HostTensor const& dy, bool logarithm, double u, double v,
                             double tiny) {
  auto const channels = static_cast<std::size_t>(x.shape.channel);
  double const terms = static_cast<double>(channels + 2);
  SoftmaxResult r{x, x, x, x};
  for (std::size_t at = 0; at < x.values.size(); at += channels) {
    long double largest = -std::numeric_limits<long double>::infinity(), sum = 0, share = 0;
    for (std::size_t c = at; c < at + channels; ++c) largest = std::max(largest, static_cast<long double>(x.values[c]));
    for (std::size_t c = at; c < at + channels; ++c) sum += std::exp(static_cast<long double>(x.values[c]) - largest);
    // exp is within 5 units in the last place, 10 roundings, and its argument is a rounded difference.
    std::vector<double> y, p, p_error, y_error;
    double sum_error = terms * v;  // relative
    for (std::size_t c = at; c < at + channels; ++c) {
      long double const far = static_cast<long double>(x.values[c]) - largest;
      double const term = std::isinf(far) ? 0.0 : u * (11 + std::abs(static_cast<double>(far)));
      p.push_back(static_cast<double>(std::exp(far) / sum));
      p_error.push_back(term * p.back());
      sum_error += p_error.back();
      y.push_back(logarithm ? static_cast<double>(far - std::log(sum)) : p.back());
      double const parts =
          std::isinf(far) ? 0.0 : std::abs(static_cast<double>(far)) + static_cast<double>(std::log(sum));
      y_error.push_back(logarithm ? u * (2 * parts + std::abs(y.back())) + 12 * v * parts : 0.0);
    }
    double share_error = 0, share_size = 0;
    for (std::size_t i = 0; i < channels; ++i) {
      y_error[i] += logarithm ? sum_error : p_error[i] + p[i] * (sum_error + 4 * u) + tiny;
      double const factor = logarithm ? 1.0 : y[i], error = dy.values[at + i];
      share += static_cast<long double>(factor) * static_cast<long double>(error);
      share_size += std::abs(factor * error);
      if (!logarithm) share_error += y_error[i] * std::abs(error);
    }
    double const taken = static_cast<double>(share);
    share_error += terms * v * share_size + u * std::abs(taken);
    for (std::size_t i = 0; i < channels; ++i) {
      double const error = dy.values[at + i], far = error - taken;
      double const dx = logarithm ? error - p[i] * taken : y[i] * far;
      double const off =
          logarithm ? p[i] * ((y_error[i] + 12 * u) * std::abs(taken) + share_error)
                    : y_error[i] * std::abs(far) + y[i] * (share_error + 2 * u * (std::abs(error) + std::abs(taken)));
      r.y.values[at + i] = y[i];
      r.dx.values[at + i] = dx;
      r.y_error.values[at + i] = y_error[i];
      r.dx_error.values[at + i] = off + 2 * u * std::abs(dx) + tiny;
    }
  }
  return r;
}

}  // namespace tessera::test::oracle
