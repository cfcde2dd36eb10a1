// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/host_tensor.hpp"

/// Normalisation over groups of channels of each sample and its gradients as plain loops over whole tensors, and how
/// far rounding may move each number.
namespace tessera::test::oracle {

struct GroupNorm {
  std::vector<double> gamma, beta;  ///< per channel
  std::int64_t groups = 1;
  double epsilon = 1e-5;
  double roundoff = 0;      ///< of the type that the layer computes in
  double sum_roundoff = 0;  ///< of the type that it sums in

  /// The group of cell number i of a whole tensor, counted over samples.
  std::size_t group(Shape const& shape, std::size_t i) const {
    auto const channels = static_cast<std::size_t>(shape.channel), all = static_cast<std::size_t>(groups);
    std::size_t const sample = i / static_cast<std::size_t>(shape.volume() / shape.sample);
    return sample * all + i % channels / (channels / all);
  }
};

/// Mean and biased variance of each group of each sample.
struct GroupMoments {
  double count = 0;
  std::vector<long double> mean, variance;
  std::vector<double> mean_error, variance_error;
};

inline GroupMoments group_moments(GroupNorm const& norm, HostTensor const& x) {
  Shape const& s = x.shape;
  auto const groups = static_cast<std::size_t>(s.sample * norm.groups);
  GroupMoments m;
  m.count = static_cast<double>(s.volume()) / static_cast<double>(groups);
  std::vector<double> size(groups, 0.0), distance(groups, 0.0);
  m.mean.assign(groups, 0.0L);
  m.variance.assign(groups, 0.0L);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    m.mean[norm.group(s, i)] += static_cast<long double>(x.values[i]) / static_cast<long double>(m.count);
    size[norm.group(s, i)] += std::abs(x.values[i]) / m.count;
  }
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    long double const far = static_cast<long double>(x.values[i]) - m.mean[norm.group(s, i)];
    m.variance[norm.group(s, i)] += far * far / static_cast<long double>(m.count);
    distance[norm.group(s, i)] += std::abs(static_cast<double>(far)) / m.count;
  }
  double const v = norm.sum_roundoff;
  for (std::size_t g = 0; g < groups; ++g) {
    double const e = (m.count + 1) * v * size[g] + v * std::abs(static_cast<double>(m.mean[g]));
    m.mean_error.push_back(e);
    m.variance_error.push_back((m.count + 4) * v * static_cast<double>(m.variance[g]) + e * e + 2 * e * distance[g]);
  }
  return m;
}

/// The statistics that a layer holds per channel, for all samples, for inference.
inline GroupMoments given_moments(std::int64_t samples, std::vector<double> const& mean,
                                  std::vector<double> const& variance) {
  GroupMoments m;
  for (std::int64_t n = 0; n < samples; ++n) {
    m.mean.insert(m.mean.end(), mean.begin(), mean.end());
    m.variance.insert(m.variance.end(), variance.begin(), variance.end());
  }
  m.mean_error.assign(m.mean.size(), 0.0);
  m.variance_error.assign(m.mean.size(), 0.0);
  return m;
}

struct GroupNormalised {
  HostTensor y, dx, y_error, dx_error;
  std::vector<double> dgamma, dbeta, dgamma_error, dbeta_error;
};

/// y and every gradient. `measured`: the statistics depend on x; `ranks` is how many partial sums a gradient has.
inline GroupNormalised group_norm(GroupNorm const& norm, GroupMoments const& m, HostTensor const& x,
                                  HostTensor const& dy, bool measured, std::int64_t ranks) {
  Shape const& s = x.shape;
  std::size_t const cells = x.values.size(), channels = norm.gamma.size(), groups = m.mean.size();
  double const u = norm.roundoff, v = norm.sum_roundoff, n = measured ? m.count : 1, share = measured ? 1 / n : 0;
  GroupNormalised r{x, x, x, x, {}, {}, {}, {}};
  std::vector<long double> hat(cells), scale(groups), s1(groups), s2(groups), dgamma(channels), dbeta(channels);
  std::vector<double> hat_error(cells), spread_error(groups), s1_size(groups), s2_size(groups), s2_error(groups);
  std::vector<double> dgamma_size(channels), dbeta_size(channels);
  r.dgamma_error.assign(channels, 0.0);
  for (std::size_t g = 0; g < groups; ++g) {
    auto const inside = m.variance[g] + static_cast<long double>(norm.epsilon);
    scale[g] = 1 / std::sqrt(inside);
    spread_error[g] = m.variance_error[g] / static_cast<double>(inside) + 4 * v;  // relative, of scale
  }
  for (std::size_t i = 0; i < cells; ++i) {
    std::size_t const c = i % channels, g = norm.group(s, i);
    long double const far = static_cast<long double>(x.values[i]) - m.mean[g];
    hat[i] = far * scale[g];
    r.y.values[i] =
        static_cast<double>(static_cast<long double>(norm.gamma[c]) * hat[i] + static_cast<long double>(norm.beta[c]));
    // The mean is kept in two parts of the layer's type, and their differences and product round.
    double const large = std::abs(static_cast<double>(m.mean[g])), h = std::abs(static_cast<double>(hat[i]));
    double const gamma = std::abs(norm.gamma[c]), e = std::abs(dy.values[i]);
    hat_error[i] = static_cast<double>(scale[g]) * (2 * u * (std::abs(static_cast<double>(far)) + u * large) +
                                                    2 * u * u * large + m.mean_error[g]) +
                   h * (3 * u + spread_error[g]);
    r.y_error.values[i] = gamma * hat_error[i] + 4 * u * (gamma * h + std::abs(norm.beta[c]));
    auto const error = static_cast<long double>(dy.values[i]);
    s1[g] += static_cast<long double>(norm.gamma[c]) * error;
    s2[g] += static_cast<long double>(norm.gamma[c]) * error * hat[i];
    dgamma[c] += error * hat[i];
    dbeta[c] += error;
    s1_size[g] += gamma * e;
    s2_size[g] += gamma * e * h;
    s2_error[g] += gamma * e * hat_error[i];
    dgamma_size[c] += e * h;
    dbeta_size[c] += e;
    r.dgamma_error[c] += e * hat_error[i];
  }
  double const per_channel = static_cast<double>(cells / channels);
  double const summed = static_cast<double>(ranks + 2) * u + (per_channel + 2) * v;
  for (std::size_t c = 0; c < channels; ++c) {
    r.dgamma.push_back(static_cast<double>(dgamma[c]));
    r.dbeta.push_back(static_cast<double>(dbeta[c]));
    r.dgamma_error[c] += summed * dgamma_size[c];
    r.dbeta_error.push_back(summed * dbeta_size[c]);
  }
  for (std::size_t i = 0; i < cells; ++i) {
    std::size_t const c = i % channels, g = norm.group(s, i);
    auto const part = static_cast<long double>(share);
    r.dx.values[i] = static_cast<double>(
        scale[g] * (static_cast<long double>(norm.gamma[c]) * static_cast<long double>(dy.values[i]) - part * s1[g] -
                    hat[i] * part * s2[g]));
    double const h = std::abs(static_cast<double>(hat[i])), gamma = std::abs(norm.gamma[c]);
    double const size = gamma * std::abs(dy.values[i]) + share * s1_size[g] + h * share * s2_size[g];
    r.dx_error.values[i] = static_cast<double>(scale[g]) * ((8 * u + spread_error[g] + (n + 4) * v) * size +
                                                            share * (hat_error[i] * s2_size[g] + h * s2_error[g]));
  }
  return r;
}

}  // namespace tessera::test::oracle
