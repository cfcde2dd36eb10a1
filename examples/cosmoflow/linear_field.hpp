// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "periodic_field.hpp"
#include "philox.hpp"

namespace cosmoflow {

/// Fills `field` with the modes of a Gaussian density contrast of power spectrum `power` in a box of side `box`.
/// White noise is drawn cell by cell in real space, so its modes have the symmetry of a real field by construction,
/// and each is then scaled to the variance P(k) / volume. The mean is zero.
template <class Power>
void draw_linear_field(PeriodicField& field, Fourier const& fourier, double box, Power const& power,
                       UniverseRandom const& random) {
  std::int64_t const n = field.cells();
  double const cells = static_cast<double>(n * n * n);
  std::int64_t x = 0;
  std::int64_t y = 0;
  std::int64_t z = 0;
  for (std::int64_t block = 0; block < n * n * n / 4; ++block) {  // n is even: a multiple of 8 cells
    for (double const value : random.normal(Stream::white_noise, static_cast<std::uint64_t>(block))) {
      field.row(x, y)[z] = value;
      if (++z == n) {
        z = 0;
        if (++y == n) {
          y = 0;
          ++x;
        }
      }
    }
  }
  fourier.to_modes(field);

  // A mode's wave number depends on the integer mx^2 + my^2 + mz^2 alone.
  constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> scale(static_cast<std::size_t>(3 * (n / 2) * (n / 2) + 1), unknown);
  scale[0] = 0;
  double const volume = box * box * box;
  for_each_mode(n, [&](std::int64_t at, std::int64_t mx, std::int64_t my, std::int64_t mz) {
    auto const square = mx * mx + my * my + mz * mz;
    double& factor = scale[static_cast<std::size_t>(square)];
    if (std::isnan(factor)) {
      double const k = 2 * std::numbers::pi / box * std::sqrt(static_cast<double>(square));
      factor = std::sqrt(power(k) / (volume * cells));  // white noise modes, undivided, have variance `cells`
    }
    field.modes()[at] *= factor;
  });
}

}  // namespace cosmoflow
