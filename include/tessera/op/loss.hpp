// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>

#include "tessera/tensor/run.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// (p - t)^2, with derivative 2 (p - t).
struct SquaredDifference {
  TESSERA_HD double value(double difference) const { return difference * difference; }
  TESSERA_HD double slope(double difference) const { return 2.0 * difference; }
};

/// |p - t|, with derivative sign(p - t) and 0 at 0.
struct AbsoluteDifference {
  TESSERA_HD double value(double difference) const { return difference < 0 ? -difference : difference; }
  TESSERA_HD double slope(double difference) const { return difference > 0 ? 1.0 : difference < 0 ? -1.0 : 0.0; }
};

/// d^2 / 2 within delta of 0 and delta (|d| - delta / 2) beyond, with derivative d held within [-delta, delta].
struct HuberDifference {
  double delta;
  TESSERA_HD double value(double difference) const {
    double const size = difference < 0 ? -difference : difference;
    return size <= delta ? 0.5 * difference * difference : delta * (size - 0.5 * delta);
  }
  TESSERA_HD double slope(double difference) const {
    return difference > delta ? delta : difference < -delta ? -delta : difference;
  }
};

/// sums[0] += measure(prediction - target) over the channels of a position.
template <class T, class Measure>
struct LossSum {
  Measure measure;
  Tile<T const> prediction;
  Tile<T const> target;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels, double* sums) const {
    T const* p = prediction.position(at[0], at[1], at[2], at[3]);
    T const* t = target.position(at[0], at[1], at[2], at[3]);
    for (std::int64_t c = channels.begin; c < channels.end; ++c)
      sums[0] += measure.value(static_cast<double>(p[c]) - static_cast<double>(t[c]));
  }
};

/// error = slope(prediction - target) / count.
template <class T, class Measure>
struct LossError {
  Measure measure;
  Tile<T const> prediction;
  Tile<T const> target;
  Tile<T> error;
  double count;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* p = prediction.position(at[0], at[1], at[2], at[3]);
    T const* t = target.position(at[0], at[1], at[2], at[3]);
    T* e = error.position(at[0], at[1], at[2], at[3]);
    for (std::int64_t c = channels.begin; c < channels.end; ++c)
      e[c] = static_cast<T>(measure.slope(static_cast<double>(p[c]) - static_cast<double>(t[c])) / count);
  }
};

}  // namespace tessera::op
