// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cosmology.hpp"
#include "displacement.hpp"
#include "linear_field.hpp"
#include "periodic_field.hpp"
#include "philox.hpp"

namespace cosmoflow {

/// What all universes of a file have in common.
struct UniverseShape {
  std::int64_t size = 64;  ///< voxels per side
  double voxel = 4.0;      ///< side of a voxel in Mpc/h
  std::vector<double> redshifts{0.0, 0.5, 1.5, 3.0};

  [[nodiscard]] double box() const { return static_cast<double>(size) * voxel; }
  [[nodiscard]] std::int64_t cells() const { return 2 * size; }  ///< particles per side: 8 per voxel on average
  [[nodiscard]] std::int64_t channels() const { return static_cast<std::int64_t>(redshifts.size()); }
  [[nodiscard]] std::int64_t values() const { return size * size * size * channels(); }
  /// Memory of a UniverseSimulator: four fields of double and six of float.
  [[nodiscard]] double bytes() const {
    auto const n = static_cast<double>(cells());
    return n * n * (32 * (n + 2) + 24 * n);
  }
};

/// Which voxel along an axis of `size` a position, in voxels, lies in, wrapped round the periodic box.
[[nodiscard]] constexpr std::int64_t periodic_voxel(double position, std::int64_t size) {
  auto voxel = static_cast<std::int64_t>(position);
  if (position < static_cast<double>(voxel)) --voxel;
  if (voxel >= 0 && voxel < size) return voxel;
  voxel %= size;  // for few particles; a division for each of them would cost a tenth of the run
  return voxel < 0 ? voxel + size : voxel;
}

/// Makes universes of one shape, one after another, in the same buffers.
class UniverseSimulator {
 public:
  explicit UniverseSimulator(UniverseShape shape)
      : shape_{std::move(shape)},
        fourier_{shape_.cells()},
        delta_{shape_.cells()},
        displacement_{shape_.cells(), shape_.box()} {}

  [[nodiscard]] UniverseShape const& shape() const { return shape_; }

  /// Particles per voxel of universe `index` into `counts`, as (depth, height, width, redshift). Depends on the shape,
  /// the seed and the index alone.
  Truth simulate(std::uint64_t seed, std::uint64_t index, std::span<std::int16_t> counts) {
    UniverseRandom const random{seed, index};
    Truth const truth = draw_truth(random);
    draw_linear_field(delta_, fourier_, shape_.box(), PowerSpectrum{truth.cosmology}, random);
    displacement_.compute(delta_, fourier_);
    count(truth.cosmology.omega_m, counts);
    return truth;
  }

  /// The modes of the linear density contrast today of the universe simulated last.
  [[nodiscard]] PeriodicField const& linear_modes() const { return delta_; }

 private:
  struct Growth {
    double first;
    double second;
  };

  void count(double omega_m, std::span<std::int16_t> counts) const {
    std::vector<Growth> growth;  // per voxel side, so that positions come out in voxels
    for (double const z : shape_.redshifts)
      growth.push_back({linear_growth(omega_m, z) / shape_.voxel, second_order_growth(omega_m, z) / shape_.voxel});
    std::fill(counts.begin(), counts.end(), std::int16_t{0});
    std::int64_t const n = shape_.cells();
    std::int64_t const channels = shape_.channels();
    std::array<float const*, 3> const first{data(0, 1), data(1, 1), data(2, 1)};
    std::array<float const*, 3> const second{data(0, 2), data(1, 2), data(2, 2)};
    std::int64_t particle = 0;
    for (std::int64_t x = 0; x < n; ++x) {
      for (std::int64_t y = 0; y < n; ++y) {
        for (std::int64_t z = 0; z < n; ++z, ++particle) {
          // A particle starts in the middle of its cell, so that an undisturbed voxel holds exactly 8.
          std::array<std::int64_t, 3> const cell{x, y, z};
          for (std::int64_t c = 0; c < channels; ++c) {
            std::int64_t at = 0;
            for (std::size_t axis = 0; axis < 3; ++axis) {
              auto const [d1, d2] = growth[static_cast<std::size_t>(c)];
              double const start = (static_cast<double>(cell[axis]) + 0.5) / 2;
              double const moved = start + d1 * static_cast<double>(first[axis][particle]) +
                                   d2 * static_cast<double>(second[axis][particle]);
              at = at * shape_.size + periodic_voxel(moved, shape_.size);
            }
            auto& voxel = counts[static_cast<std::size_t>(at * channels + c)];
            if (voxel == std::numeric_limits<std::int16_t>::max())
              throw std::runtime_error("simulate: a voxel must hold at most 32767 particles; choose another --voxel");
            ++voxel;
          }
        }
      }
    }
  }

  [[nodiscard]] float const* data(int axis, int order) const {
    return (order == 1 ? displacement_.first(axis) : displacement_.second(axis)).data();
  }

  UniverseShape shape_;
  Fourier fourier_;
  PeriodicField delta_;
  Displacement displacement_;
};

}  // namespace cosmoflow
