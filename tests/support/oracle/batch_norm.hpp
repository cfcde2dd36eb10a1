// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/host_tensor.hpp"

/// Batch normalisation and its gradients as plain loops over whole tensors, with statistics per group of positions, and
/// how far rounding may move each number.
namespace tessera::test::oracle {

struct BatchNorm {
  std::vector<double> gamma, beta;  ///< per channel
  double epsilon = 1e-5;
  std::vector<std::size_t> group;  ///< of every position (sample, depth, height, width), in row-major order
  std::size_t groups = 1;
  double roundoff = 0;      ///< of the type that the layer computes in
  double sum_roundoff = 0;  ///< of the type that it sums in
};

/// Mean and biased variance of every group and channel, with their counts and errors.
struct Moments {
  std::vector<std::int64_t> count;                  ///< per group
  std::vector<long double> mean, variance;          ///< per group and channel
  std::vector<double> mean_error, deviation_error;  ///< deviation_error is relative, of 1 / sqrt(variance + epsilon)
};

inline Moments moments(BatchNorm const& norm, HostTensor const& x) {
  std::size_t const channels = norm.gamma.size(), cells = norm.groups * channels;
  Moments m;
  m.count.assign(norm.groups, 0);
  for (auto* list : {&m.mean, &m.variance}) list->assign(cells, 0.0L);
  for (auto* list : {&m.mean_error, &m.deviation_error}) list->assign(cells, 0.0);
  std::vector<long double> sum(cells, 0), size(cells, 0), squares(cells, 0), distance(cells, 0);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    std::size_t const at = norm.group[i / channels] * channels + i % channels;
    if (i % channels == 0) ++m.count[norm.group[i / channels]];
    sum[at] += static_cast<long double>(x.values[i]);
    size[at] += static_cast<long double>(std::abs(x.values[i]));
  }
  for (std::size_t at = 0; at < cells; ++at)
    if (m.count[at / channels] > 0) sum[at] /= static_cast<long double>(m.count[at / channels]);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    std::size_t const at = norm.group[i / channels] * channels + i % channels;
    long double const deviation = static_cast<long double>(x.values[i]) - sum[at];
    squares[at] += deviation * deviation;
    distance[at] += std::abs(deviation);
  }
  for (std::size_t at = 0; at < cells; ++at) {
    auto const n = static_cast<double>(m.count[at / channels]);
    if (n == 0) continue;
    m.mean[at] = sum[at];
    m.variance[at] = squares[at] / static_cast<long double>(n);
    double const u = norm.sum_roundoff, mean = static_cast<double>(m.mean[at]),
                 variance = static_cast<double>(m.variance[at]);
    m.mean_error[at] = (n + 1) * u * static_cast<double>(size[at]) / n + u * std::abs(mean);
    double const variance_error = (n + 4) * u * variance + m.mean_error[at] * m.mean_error[at] +
                                  2 * m.mean_error[at] * static_cast<double>(distance[at]) / n;
    m.deviation_error[at] = variance_error / (variance + norm.epsilon) + 4 * u;
  }
  return m;
}

/// The statistics that a layer holds, for inference.
inline Moments given(BatchNorm const& norm, std::vector<double> const& mean, std::vector<double> const& variance) {
  Moments m;
  m.count.assign(1, 0);
  m.mean.assign(mean.begin(), mean.end());
  m.variance.assign(variance.begin(), variance.end());
  m.mean_error.assign(mean.size(), 0.0);
  m.deviation_error.assign(mean.size(), 4 * norm.sum_roundoff);
  return m;
}

struct Normalised {
  HostTensor y, dx;
  std::vector<double> dgamma, dbeta;
  HostTensor y_error, dx_error;
  std::vector<double> dgamma_error, dbeta_error;
};

/// y and every gradient. `training`: the statistics depend on x; `ranks` is how many partial sums a gradient has.
inline Normalised batch_norm(BatchNorm const& norm, Moments const& m, HostTensor const& x, HostTensor const& dy,
                             bool training, std::int64_t ranks) {
  std::size_t const channels = norm.gamma.size(), cells = m.mean.size();
  double const u = norm.roundoff, v = norm.sum_roundoff;
  Normalised r{x, x, {}, {}, x, x, {}, {}};
  for (auto* list : {&r.dgamma, &r.dbeta, &r.dgamma_error, &r.dbeta_error}) list->assign(channels, 0.0);
  std::vector<long double> hat(x.values.size()), scale(cells), s1(cells), s2(cells), dgamma(channels), dbeta(channels);
  std::vector<double> hat_error(x.values.size()), s1_size(cells), s2_size(cells), s2_error(cells);
  std::vector<double> dgamma_size(channels), dbeta_size(channels);
  for (std::size_t at = 0; at < cells; ++at)
    scale[at] = 1 / std::sqrt(m.variance[at] + static_cast<long double>(norm.epsilon));
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    std::size_t const c = i % channels, at = (training ? norm.group[i / channels] : 0) * channels + c;
    long double const deviation = static_cast<long double>(x.values[i]) - m.mean[at], error = dy.values[i];
    hat[i] = deviation * scale[at];
    r.y.values[i] =
        static_cast<double>(static_cast<long double>(norm.gamma[c]) * hat[i] + static_cast<long double>(norm.beta[c]));
    s1[at] += error;
    s2[at] += error * hat[i];
    dbeta[c] += error;
    dgamma[c] += error * hat[i];
    // The mean is kept in two parts of the layer's type, and their differences and product round.
    double const large = std::abs(static_cast<double>(m.mean[at])), far = std::abs(static_cast<double>(deviation)),
                 h = std::abs(static_cast<double>(hat[i])), e = std::abs(dy.values[i]), g = std::abs(norm.gamma[c]);
    hat_error[i] = static_cast<double>(scale[at]) * (2 * u * (far + u * large) + 2 * u * u * large + m.mean_error[at]) +
                   h * (3 * u + m.deviation_error[at]);
    r.y_error.values[i] = g * hat_error[i] + 4 * u * (g * h + std::abs(norm.beta[c]));
    s1_size[at] += e;
    s2_size[at] += e * h;
    s2_error[at] += e * hat_error[i];
    dbeta_size[c] += e;
    dgamma_size[c] += e * h;
    r.dgamma_error[c] += e * hat_error[i];
  }
  double const positions = static_cast<double>(x.values.size()) / static_cast<double>(channels);
  double const summed = static_cast<double>(ranks + 2) * u + (positions + 2) * v;
  for (std::size_t c = 0; c < channels; ++c) {
    r.dgamma[c] = static_cast<double>(dgamma[c]);
    r.dbeta[c] = static_cast<double>(dbeta[c]);
    r.dgamma_error[c] += summed * dgamma_size[c];
    r.dbeta_error[c] = summed * dbeta_size[c];
  }
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    std::size_t const c = i % channels, at = (training ? norm.group[i / channels] : 0) * channels + c;
    double const n = training ? static_cast<double>(m.count[at / channels]) : 1, part = training ? 1 / n : 0;
    long double const g = static_cast<long double>(norm.gamma[c]) * scale[at], share = static_cast<long double>(part);
    r.dx.values[i] =
        static_cast<double>(g * (static_cast<long double>(dy.values[i]) - share * s1[at] - hat[i] * share * s2[at]));
    double const h = std::abs(static_cast<double>(hat[i]));
    double const size = std::abs(dy.values[i]) + part * s1_size[at] + h * part * s2_size[at];
    r.dx_error.values[i] = std::abs(static_cast<double>(g)) * ((8 * u + m.deviation_error[at] + (n + 3) * v) * size +
                                                               part * (hat_error[i] * s2_size[at] + h * s2_error[at]));
  }
  return r;
}

}  // namespace tessera::test::oracle
