// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/core/config.hpp"

namespace tessera {

/// Division rounded down, for any sign of a and b > 0 (C++ division truncates).
TESSERA_HD constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
/// Division rounded up, for any sign of a and b > 0.
TESSERA_HD constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }
/// The remainder that belongs to floor_div: 0 <= floor_mod(a, b) < b.
TESSERA_HD constexpr std::int64_t floor_mod(std::int64_t a, std::int64_t b) { return a % b + (a % b < 0 ? b : 0); }

TESSERA_HD constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) { return b < a ? b : a; }
TESSERA_HD constexpr std::int64_t larger(std::int64_t a, std::int64_t b) { return a < b ? b : a; }

/// Global indices [begin, end) along one axis. Any begin >= end is empty and has no position.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  TESSERA_HD constexpr bool empty() const { return begin >= end; }
  TESSERA_HD constexpr std::int64_t size() const { return begin < end ? end - begin : 0; }
  TESSERA_HD constexpr bool contains(std::int64_t i) const { return begin <= i && i < end; }
  TESSERA_HD constexpr bool contains(Interval other) const {
    return other.empty() || (begin <= other.begin && other.end <= end);
  }

  friend TESSERA_HD constexpr bool operator==(Interval a, Interval b) {
    return (a.empty() && b.empty()) || (a.begin == b.begin && a.end == b.end);
  }
};

TESSERA_HD constexpr Interval intersect(Interval a, Interval b) {
  return {larger(a.begin, b.begin), smaller(a.end, b.end)};
}

/// The smallest interval that contains both; an empty one adds nothing.
TESSERA_HD constexpr Interval hull(Interval a, Interval b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  return {smaller(a.begin, b.begin), larger(a.end, b.end)};
}

TESSERA_HD constexpr Interval shifted(Interval a, std::int64_t by) { return {a.begin + by, a.end + by}; }

}  // namespace tessera
