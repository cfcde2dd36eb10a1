// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>

#include "tessera/tensor/run.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// Where a rank keeps what belongs to a class of a sample, or of all samples together.
struct OverlapCells {
  Interval classes;
  std::int64_t first_sample;
  bool per_sample;
  TESSERA_HD std::int64_t first(std::int64_t sample) const {
    return per_sample ? (sample - first_sample) * classes.size() : 0;
  }
};

/// The share g of each class in a position's target: labels, or one channel per class.
template <class T>
struct ClassShares {
  Tile<T const> target;
  bool labels;
  double ignored;

  TESSERA_HD T const* position(std::int64_t const at[4]) const { return target.position(at[0], at[1], at[2], at[3]); }
  /// Whether a position is to be left out.
  TESSERA_HD bool leaves_out(T const* t) const { return labels && static_cast<double>(*t) == ignored; }
  TESSERA_HD double share(T const* t, std::int64_t c) const {
    if (labels) return static_cast<double>(*t) == static_cast<double>(c) ? 1.0 : 0.0;
    return static_cast<double>(t[c]);
  }
};

/// Per cell: sums += (p g, p^e, g), e 1 or 2.
template <class T>
struct OverlapSums {
  Tile<T const> prediction;
  ClassShares<T> shares;
  OverlapCells cells;
  bool squared;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval, double* sums) const {
    T const* const t = shares.position(at);
    if (shares.leaves_out(t)) return;
    T const* const p = prediction.position(at[0], at[1], at[2], at[3]);
    double* cell = sums + 3 * cells.first(at[0]);
    for (std::int64_t c = cells.classes.begin; c < cells.classes.end; ++c, cell += 3) {
      double const value = static_cast<double>(p[c]), g = shares.share(t, c);
      cell[0] += value * g;
      cell[1] += squared ? value * value : value;
      cell[2] += g;
    }
  }
};

/// error = b (1 or 2 p) - a g, with (a, b) per cell.
template <class T>
struct OverlapError {
  Tile<T const> prediction;
  ClassShares<T> shares;
  Tile<T> error;
  OverlapCells cells;
  bool squared;
  double const* coefficients;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval) const {
    T const* const t = shares.position(at);
    T const* const p = prediction.position(at[0], at[1], at[2], at[3]);
    T* const e = error.position(at[0], at[1], at[2], at[3]);
    bool const out = shares.leaves_out(t);
    double const* cell = coefficients + 2 * cells.first(at[0]);
    for (std::int64_t c = cells.classes.begin; c < cells.classes.end; ++c, cell += 2) {
      double const slope = cell[1] * (squared ? 2.0 * static_cast<double>(p[c]) : 1.0) - cell[0] * shares.share(t, c);
      e[c] = out ? T(0) : static_cast<T>(slope);
    }
  }
};

}  // namespace tessera::op
