// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/partition/box.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <set>
#include <vector>

#include "support/property.hpp"

namespace {

using tessera::axis_count;
using tessera::Box;
using tessera::for_each_rim;
using tessera::hull;
using tessera::intersect;
using tessera::Interval;
using tessera::test::property;

using Cell = std::array<std::int64_t, axis_count>;

/// Within [-1, 5); seldom empty, and then sometimes with end < begin.
Interval draw_interval() {
  std::int64_t const begin = *rc::gen::inRange<std::int64_t>(-1, 3).as("begin");
  std::int64_t const length =
      *rc::gen::weightedElement<std::int64_t>({{8, 2}, {8, 1}, {6, 3}, {1, 0}, {1, -1}}).as("length");
  return {begin, begin + length};
}

Box draw_box() {
  Box box;
  for (Interval& along : box.axis) along = draw_interval();
  return box;
}

std::set<Cell> cells(Box const& box) {
  std::set<Cell> found;
  Cell at;
  for (at[0] = box.axis[0].begin; at[0] < box.axis[0].end; ++at[0])
    for (at[1] = box.axis[1].begin; at[1] < box.axis[1].end; ++at[1])
      for (at[2] = box.axis[2].begin; at[2] < box.axis[2].end; ++at[2])
        for (at[3] = box.axis[3].begin; at[3] < box.axis[3].end; ++at[3])
          for (at[4] = box.axis[4].begin; at[4] < box.axis[4].end; ++at[4]) found.insert(at);
  return found;
}

}  // namespace

TEST_CASE("Box: volume and empty count cells") {
  property("volume is the number of cells, empty says whether there are none", [] {
    Box const box = draw_box();
    RC_ASSERT(box.volume() == static_cast<std::int64_t>(cells(box).size()));
    RC_ASSERT(box.empty() == cells(box).empty());
  });
}

TEST_CASE("Box: contains, == and intersect act on sets of cells") {
  property("contains is inclusion, == equality, intersect intersection", [] {
    Box const a = draw_box();
    Box const b = *rc::gen::arbitrary<bool>().as("independent") ? draw_box() : [&] {
      Box near = a;  // often equal to a or inside of it
      near.axis[*rc::gen::inRange(0, axis_count).as("axis")] = draw_interval();
      return near;
    }();
    std::set<Cell> const in_a = cells(a), in_b = cells(b);
    std::set<Cell> both;
    std::set_intersection(in_a.begin(), in_a.end(), in_b.begin(), in_b.end(), std::inserter(both, both.end()));
    RC_ASSERT(cells(intersect(a, b)) == both);
    RC_ASSERT(a.contains(b) == (both == in_b));
    RC_ASSERT((a == b) == (in_a == in_b));
    RC_ASSERT(a == a);
  });
}

TEST_CASE("Box: hull is the smallest box around both") {
  property("per axis from the first to the last cell of either", [] {
    Box const a = draw_box(), b = draw_box(), around = hull(a, b);
    std::set<Cell> all = cells(a);
    all.merge(cells(b));
    RC_ASSERT(around.empty() == all.empty());
    if (all.empty()) return;
    for (std::size_t i = 0; i < axis_count; ++i) {
      auto const by_axis = [i](Cell const& x, Cell const& y) { return x[i] < y[i]; };
      RC_ASSERT(around.axis[i].begin == (*std::min_element(all.begin(), all.end(), by_axis))[i]);
      RC_ASSERT(around.axis[i].end == (*std::max_element(all.begin(), all.end(), by_axis))[i] + 1);
    }
  });
}

TEST_CASE("for_each_rim: disjoint boxes cover what the hole leaves") {
  property("every cell of the box outside the hole is in exactly one piece, and no other cell is", [] {
    Box const box = draw_box(), hole = draw_box();
    std::vector<Box> pieces;
    for_each_rim(box, hole, [&](Box const& piece) { pieces.push_back(piece); });
    RC_ASSERT(pieces.size() <= std::size_t{2 * axis_count});
    std::set<Cell> left = cells(box);
    for (Cell const& cell : cells(hole)) left.erase(cell);
    for (Box const& piece : pieces) {
      RC_ASSERT(!piece.empty());
      for (Cell const& cell : cells(piece)) RC_ASSERT(left.erase(cell) == 1U);
    }
    RC_ASSERT(left.empty());
  });
  SUBCASE("the visitor may return a value") {
    int pieces = 0;
    Box box;
    for (Interval& along : box.axis) along = {0, 3};
    for_each_rim(box, Box{}, [&](Box const&) { return ++pieces; });
    CHECK(pieces == 1);
  }
}

TEST_CASE("Box: prints its intervals, or that there is nothing") {
  Box box;
  for (Interval& along : box.axis) along = {0, 2};
  box.axis[3] = {-1, 4};
  CHECK(tessera::detail::text(box) == "[0,2)x[0,2)x[0,2)x[-1,4)x[0,2)");
  CHECK(tessera::detail::text(Box{}) == "(nothing)");
  CHECK(tessera::detail::text(Interval{-3, 7}) == "[-3,7)");
}
