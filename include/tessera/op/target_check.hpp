// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>

#include "tessera/core/config.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// The number of a class, or the number that marks cells to be left out.
struct LabelRule {
  std::int64_t classes;
  double ignored;
  TESSERA_HD bool holds(double value) const {
    return value == ignored || (value >= 0 && value < static_cast<double>(classes) && Kokkos::floor(value) == value);
  }
};

struct ProbabilityRule {
  TESSERA_HD bool holds(double value) const { return value >= 0 && value <= 1; }
};

/// sums[0] += the number of cells of a position that break a rule.
template <class T, class Rule>
struct CountBroken {
  Rule rule;
  Tile<T const> target;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels, double* sums) const {
    T const* t = target.position(at[0], at[1], at[2], at[3]);
    for (std::int64_t c = channels.begin; c < channels.end; ++c)
      sums[0] += rule.holds(static_cast<double>(t[c])) ? 0.0 : 1.0;
  }
};

}  // namespace tessera::op
