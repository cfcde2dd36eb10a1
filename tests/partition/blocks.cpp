// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/partition/blocks.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "support/property.hpp"

namespace {

using tessera::Blocks;
using tessera::Error;
using tessera::Interval;
using tessera::test::property;

std::int64_t draw(char const* name, std::int64_t least, std::int64_t most) {
  return *rc::gen::inRange<std::int64_t>(least, most + 1).as(name);
}

/// 0 = b[0] <= b[1] <= ...: a cut at random, with empty blocks.
std::vector<std::int64_t> draw_boundaries() {
  auto boundaries = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 41)).as("cuts");
  boundaries.push_back(0);
  if (boundaries.size() < 2) boundaries.push_back(draw("extent", 0, 40));
  std::sort(boundaries.begin(), boundaries.end());
  return boundaries;
}

/// Either kind of cut.
Blocks draw_blocks() {
  if (*rc::gen::arbitrary<bool>().as("given boundaries")) return Blocks::at(draw_boundaries());
  std::int64_t const n = draw("extent", 0, 40);
  return Blocks(n, draw("parts", 1, 50));
}

/// The only block that contains g, by looking at all of them; -1 if there is not exactly one.
std::int64_t owner_by_search(Blocks const& blocks, std::int64_t g) {
  std::int64_t found = -1;
  for (std::int64_t i = 0; i < blocks.parts(); ++i)
    if (blocks[i].begin <= g && g < blocks[i].end) {
      if (found != -1) return -1;
      found = i;
    }
  return found;
}

}  // namespace

TEST_CASE("Blocks: consecutive blocks cover the extent") {
  property("first begins at 0, each where the one before ends, last ends at the extent", [] {
    Blocks const blocks = draw_blocks();
    std::int64_t next = 0;
    for (std::int64_t i = 0; i < blocks.parts(); ++i) {
      RC_ASSERT(blocks[i].begin == next);
      RC_ASSERT(blocks[i].end >= next);
      next = blocks[i].end;
    }
    RC_ASSERT(next == blocks.extent());
  });
}

TEST_CASE("Blocks: balanced blocks differ by at most one cell, the longer ones first") {
  property("sizes never increase and differ by at most one", [] {
    std::int64_t const n = draw("extent", 0, 200), parts = draw("parts", 1, 50);
    Blocks const blocks(n, parts);
    RC_ASSERT(blocks.balanced());
    RC_ASSERT(blocks.extent() == n);
    RC_ASSERT(blocks.parts() == parts);
    for (std::int64_t i = 1; i < parts; ++i) RC_ASSERT(blocks[i].size() <= blocks[i - 1].size());
    RC_ASSERT(blocks[0].size() - blocks[parts - 1].size() <= 1);
  });
}

TEST_CASE("Blocks: boundaries are taken as given") {
  property("block i is [boundaries[i], boundaries[i+1])", [] {
    std::vector<std::int64_t> const boundaries = draw_boundaries();
    Blocks const blocks = Blocks::at(boundaries);
    RC_ASSERT(!blocks.balanced());
    RC_ASSERT(blocks.extent() == boundaries.back());
    RC_ASSERT(blocks.parts() == static_cast<std::int64_t>(boundaries.size()) - 1);
    for (std::size_t i = 0; i + 1 < boundaries.size(); ++i) {
      Interval const block = blocks[static_cast<std::int64_t>(i)];
      RC_ASSERT(block.begin == boundaries[i]);
      RC_ASSERT(block.end == boundaries[i + 1]);
    }
  });
}

TEST_CASE("Blocks: owner and owners agree with a search") {
  property("owner(g) is the only block that contains g", [] {
    Blocks const blocks = draw_blocks();
    for (std::int64_t g = 0; g < blocks.extent(); ++g) RC_ASSERT(blocks.owner(g) == owner_by_search(blocks, g));
  });
  property("owners(cells) reaches from the first to the last block that meets the cells", [] {
    Blocks const blocks = draw_blocks();
    std::int64_t const n = blocks.extent();
    Interval const cells{draw("begin", 0, n), draw("end", 0, n)};
    std::int64_t first = -1, last = -1;
    for (std::int64_t i = 0; i < blocks.parts(); ++i) {
      bool meets = false;
      for (std::int64_t g = blocks[i].begin; g < blocks[i].end; ++g) meets = meets || cells.contains(g);
      if (!meets) continue;
      if (first == -1) first = i;
      last = i;
    }
    Interval const owners = blocks.owners(cells);
    if (first == -1) {
      RC_ASSERT(owners.empty());
    } else {
      RC_ASSERT(owners.begin == first);
      RC_ASSERT(owners.end == last + 1);
    }
    if (blocks.balanced())
      for (std::int64_t i = owners.begin; i < owners.end; ++i) RC_ASSERT(!blocks[i].empty());
  });
}

TEST_CASE("Blocks: scaled_to keeps the kind of cut") {
  property("each boundary b becomes the least c with c / m >= b / n", [] {
    Blocks const blocks = draw_blocks();
    std::int64_t const n = blocks.extent(), m = draw("new extent", 0, 60);
    Blocks const scaled = blocks.scaled_to(m);
    RC_ASSERT(scaled.extent() == m);
    RC_ASSERT(scaled.parts() == blocks.parts());
    RC_ASSERT(blocks.scaled_to(n) == blocks);
    if (blocks.balanced()) {
      RC_ASSERT(scaled == Blocks(m, blocks.parts()));
      return;
    }
    for (std::int64_t i = 0; i < blocks.parts(); ++i) {
      std::int64_t cut = 0;
      while (n > 0 && cut * n < blocks[i].end * m) ++cut;
      RC_ASSERT(scaled[i].end == (n > 0 ? cut : m));
    }
  });
}

TEST_CASE("Blocks: equal when the blocks are, however they were given") {
  property("== compares block by block", [] {
    Blocks const a = draw_blocks(), b = draw_blocks();
    bool same = a.parts() == b.parts();
    for (std::int64_t i = 0; same && i < a.parts(); ++i) same = a[i].begin == b[i].begin && a[i].end == b[i].end;
    RC_ASSERT((a == b) == same);
  });
  property("a balanced cut equals the same cut by boundaries, and no shifted one", [] {
    std::int64_t const n = draw("extent", 1, 40), parts = draw("parts", 2, 10);
    Blocks const balanced(n, parts);
    std::vector<std::int64_t> boundaries{0};
    for (std::int64_t i = 0; i < parts; ++i) boundaries.push_back(balanced[i].end);
    RC_ASSERT(Blocks::at(boundaries) == balanced);
    RC_ASSERT(balanced == Blocks::at(boundaries));
    boundaries[1] -= 1;
    RC_ASSERT(Blocks::at(boundaries) != balanced);
  });
}

TEST_CASE("Blocks: errors say what must hold") {
  CHECK_THROWS_WITH_AS(Blocks(-3, 2), "Blocks: the extent must not be negative, it is -3", Error);
  CHECK_THROWS_WITH_AS(Blocks(3, 0), "Blocks: the number of blocks must be at least 1, it is 0", Error);
  CHECK_THROWS_WITH_AS(Blocks::at({}), "Blocks::at: needs at least two boundaries, got 0", Error);
  CHECK_THROWS_WITH_AS(Blocks::at({0}), "Blocks::at: needs at least two boundaries, got 1", Error);
  CHECK_THROWS_WITH_AS(Blocks::at({1, 4}), "Blocks::at: the first boundary must be 0, it is 1", Error);
  CHECK_THROWS_WITH_AS(Blocks::at({0, 5, 4}), "Blocks::at: boundaries must not decrease, but 4 follows 5", Error);
  CHECK_THROWS_WITH_AS(Blocks(4, 2).scaled_to(-1), "Blocks: the extent must not be negative, it is -1", Error);
}
