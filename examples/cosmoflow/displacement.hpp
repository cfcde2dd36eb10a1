// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numbers>
#include <vector>

#include "periodic_field.hpp"

namespace cosmoflow {

/// Second-order Lagrangian perturbation theory: the particle that starts at q is found at
///   x(q, z) = q + D1(z) first(q) + D2(z) second(q),
/// first = -grad phi1 with laplacian phi1 = delta, and second = grad phi2 with
/// laplacian phi2 = sum over i > j of phi1,ii phi1,jj - phi1,ij^2.
/// Source: Bouchet et al., A&A 296, 575 (1995); Scoccimarro, MNRAS 299, 1097 (1998), appendix D.
class Displacement {
 public:
  /// Particles on a grid of `cells`^3 in a box of side `box`.
  Displacement(std::int64_t cells, double box) : box_{box}, source_{cells}, work_{cells}, sum_{cells} {
    for (auto& part : parts_) part.resize(static_cast<std::size_t>(cells * cells * cells));
  }

  /// `delta`: the modes of the linear density contrast today.
  void compute(PeriodicField const& delta, Fourier const& fourier) {
    for (int i = 0; i < 3; ++i) gradient(delta, fourier, i, 1, parts_[static_cast<std::size_t>(i)]);
    compute_source(delta, fourier);
    for (int i = 0; i < 3; ++i) gradient(source_, fourier, i, -1, parts_[static_cast<std::size_t>(3 + i)]);
  }

  /// Components along axis 0, 1 or 2 in the unit of the box, one number per particle, the last axis fastest.
  [[nodiscard]] std::vector<float> const& first(int axis) const { return parts_[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] std::vector<float> const& second(int axis) const { return parts_[static_cast<std::size_t>(3 + axis)]; }

 private:
  using Index = std::array<std::int64_t, 3>;

  /// The modes of -sign * grad phi along an axis, where laplacian phi = field: sign i k / k^2 field.
  void gradient(PeriodicField const& field, Fourier const& fourier, int axis, double sign, std::vector<float>& out) {
    double const scale = sign * box_ / (2 * std::numbers::pi);
    std::int64_t const n = field.cells();
    for_each_mode(n, [&](std::int64_t at, std::int64_t mx, std::int64_t my, std::int64_t mz) {
      Index const m{mx, my, mz};
      double const square = static_cast<double>(mx * mx + my * my + mz * mz);
      double const factor = square > 0 ? scale * static_cast<double>(odd(m, axis)) / square : 0;
      auto const mode = field.modes()[at];
      work_.modes()[at] = {-factor * mode.imag(), factor * mode.real()};
    });
    fourier.to_values(work_);
    auto* to = out.data();
    for (std::int64_t x = 0; x < n; ++x) {
      for (std::int64_t y = 0; y < n; ++y) {
        auto const* row = work_.row(x, y);
        for (std::int64_t z = 0; z < n; ++z) *to++ = static_cast<float>(row[z]);
      }
    }
  }

  /// The values of phi1,ij: k_i k_j / k^2 delta.
  void second_derivative(PeriodicField const& delta, Fourier const& fourier, int i, int j, PeriodicField& out) const {
    for_each_mode(delta.cells(), [&](std::int64_t at, std::int64_t mx, std::int64_t my, std::int64_t mz) {
      Index const m{mx, my, mz};
      double const square = static_cast<double>(mx * mx + my * my + mz * mz);
      auto const index = static_cast<std::size_t>(i);
      double const product = static_cast<double>(i == j ? m[index] * m[index] : odd(m, i) * odd(m, j));
      out.modes()[at] = delta.modes()[at] * (square > 0 ? product / square : 0);
    });
    fourier.to_values(out);
  }

  void compute_source(PeriodicField const& delta, Fourier const& fourier) {
    std::int64_t const n = delta.cells();
    auto const size = n * n * (n + 2);
    auto* const source = source_.values();
    auto* const sum = sum_.values();
    auto* const work = work_.values();
    second_derivative(delta, fourier, 0, 0, sum_);
    second_derivative(delta, fourier, 1, 1, work_);
    for (std::int64_t at = 0; at < size; ++at) {
      source[at] = sum[at] * work[at];
      sum[at] += work[at];
    }
    second_derivative(delta, fourier, 2, 2, work_);
    for (std::int64_t at = 0; at < size; ++at) source[at] += sum[at] * work[at];
    for (auto const& [i, j] : {std::array{0, 1}, std::array{0, 2}, std::array{1, 2}}) {
      second_derivative(delta, fourier, i, j, work_);
      for (std::int64_t at = 0; at < size; ++at) source[at] -= work[at] * work[at];
    }
    fourier.to_modes(source_);
    double const cells = static_cast<double>(n * n * n);
    for (std::int64_t at = 0; at < size; ++at) source[at] /= cells;
  }

  /// A Nyquist component stands for +k and -k at once: an odd derivative of it, the mean of both, is zero.
  [[nodiscard]] std::int64_t odd(Index const& m, int axis) const {
    auto const component = m[static_cast<std::size_t>(axis)];
    return 2 * component == source_.cells() ? 0 : component;
  }

  double box_;
  PeriodicField source_;
  PeriodicField work_;
  PeriodicField sum_;
  std::array<std::vector<float>, 6> parts_;
};

}  // namespace cosmoflow
