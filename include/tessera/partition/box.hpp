// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>

#include "tessera/core/config.hpp"
#include "tessera/partition/axis.hpp"
#include "tessera/partition/interval.hpp"

namespace tessera {

/// An interval per axis, in global indices, in the order (sample, depth, height, width, channel).
struct Box {
  Interval axis[axis_count];

  TESSERA_HD constexpr Interval& operator[](AxisId a) { return axis[static_cast<int>(a)]; }
  TESSERA_HD constexpr Interval const& operator[](AxisId a) const { return axis[static_cast<int>(a)]; }

  TESSERA_HD constexpr bool empty() const {
    for (int a = 0; a < axis_count; ++a)
      if (axis[a].empty()) return true;
    return false;
  }

  /// The number of cells, 0 if any axis is empty.
  TESSERA_HD constexpr std::int64_t volume() const {
    std::int64_t cells = 1;
    for (int a = 0; a < axis_count; ++a) cells *= axis[a].size();
    return cells;
  }

  TESSERA_HD constexpr bool contains(Box const& other) const {
    if (other.empty()) return true;
    for (int a = 0; a < axis_count; ++a)
      if (!axis[a].contains(other.axis[a])) return false;
    return true;
  }

  friend TESSERA_HD constexpr bool operator==(Box const& a, Box const& b) {
    if (a.empty() || b.empty()) return a.empty() == b.empty();
    for (int i = 0; i < axis_count; ++i)
      if (!(a.axis[i] == b.axis[i])) return false;
    return true;
  }
};

TESSERA_HD constexpr Box intersect(Box const& a, Box const& b) {
  Box both;
  for (int i = 0; i < axis_count; ++i) both.axis[i] = intersect(a.axis[i], b.axis[i]);
  return both;
}

/// The smallest box that contains both; an empty box adds nothing.
TESSERA_HD constexpr Box hull(Box const& a, Box const& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  Box both;
  for (int i = 0; i < axis_count; ++i) both.axis[i] = hull(a.axis[i], b.axis[i]);
  return both;
}

/// `box` without `hole`, as disjoint boxes: calls visit(Box) at most 2 * axis_count times.
template <class Visit>
constexpr void for_each_rim(Box box, Box const& hole, Visit visit) {
  if (box.empty()) return;
  if (intersect(box, hole).empty()) {
    visit(static_cast<Box const&>(box));
    return;
  }
  for (int i = 0; i < axis_count; ++i) {
    Interval const whole = box.axis[i], inner = intersect(whole, hole.axis[i]);
    if (whole.begin < inner.begin) {
      box.axis[i] = {whole.begin, inner.begin};
      visit(static_cast<Box const&>(box));
    }
    if (inner.end < whole.end) {
      box.axis[i] = {inner.end, whole.end};
      visit(static_cast<Box const&>(box));
    }
    box.axis[i] = inner;
  }
}

inline std::ostream& operator<<(std::ostream& out, Interval i) { return out << '[' << i.begin << ',' << i.end << ')'; }

inline std::ostream& operator<<(std::ostream& out, Box const& box) {
  if (box.empty()) return out << "(nothing)";
  for (int a = 0; a < axis_count; ++a) out << (a == 0 ? "" : "x") << box.axis[a];
  return out;
}

}  // namespace tessera
