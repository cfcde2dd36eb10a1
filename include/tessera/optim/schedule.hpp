// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"

namespace tessera {

/// The factor on the learning rate at an optimizer step, counted from 0.
using Schedule = std::function<double(std::int64_t step)>;

inline Schedule constant() {
  return [](std::int64_t) { return 1.0; };
}

/// From 1 at `first` down to `last_factor` at `last`, and constant outside.
inline Schedule linear_decay(std::int64_t first, std::int64_t last, double last_factor = 0.0) {
  require(first < last, "linear_decay", "the first step must come before the last one, but they are ", first, " and ",
          last);
  return [=](std::int64_t step) {
    double const way = std::clamp(static_cast<double>(step - first) / static_cast<double>(last - first), 0.0, 1.0);
    return 1.0 + way * (last_factor - 1.0);
  };
}

/// Rises linearly over the first `steps` steps, then goes on as `then` says.
inline Schedule warm_up(std::int64_t steps, Schedule then = constant()) {
  require(steps >= 0, "warm_up", "the number of steps must not be negative, it is ", steps);
  return [steps, then = std::move(then)](std::int64_t step) {
    double const factor = then(step);
    return step < steps ? factor * static_cast<double>(step + 1) / static_cast<double>(steps) : factor;
  };
}

/// Factors, each from a step on: `step_decay({{3200, 0.25}, {6400, 0.125}})` holds 1, then 0.25, then 0.125.
inline Schedule step_decay(std::vector<std::pair<std::int64_t, double>> factors) {
  for (std::size_t i = 1; i < factors.size(); ++i)
    require(factors[i - 1].first < factors[i].first, "step_decay", "the steps must ascend, but ", factors[i].first,
            " follows ", factors[i - 1].first);
  return [factors = std::move(factors)](std::int64_t step) {
    double factor = 1.0;
    for (auto const& [from, value] : factors)
      if (step >= from) factor = value;
    return factor;
  };
}

}  // namespace tessera
