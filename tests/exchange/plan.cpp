// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/exchange/plan.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/exchange_case.hpp"
#include "support/property.hpp"
#include "tessera/partition/window.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

std::vector<ExchangePlan> plans_of(Case const& c) {
  std::vector<ExchangePlan> plans;
  for (std::int64_t rank = 0; rank < c.ranks(); ++rank)
    plans.push_back(make_plan(c.has, c.needs, static_cast<int>(rank), c.padding, c.placement));
  return plans;
}

std::vector<Transfer> with(std::vector<Transfer> const& list, int peer) {
  std::vector<Transfer> part;
  for (Transfer const& transfer : list)
    if (transfer.peer == peer) part.push_back(transfer);
  return part;
}

bool same(Transfer const& a, Transfer const& b) { return a.to == b.to && a.from == b.from && a.step == b.step; }

/// The owner's cell for cell g of transfer.to, as the comment on AxisPiece defines it.
Cell taken_from(Transfer const& transfer, Cell const& g) {
  Cell from{};
  for (std::size_t a = 0; a < axis_count; ++a) {
    std::int64_t const i = g[a] - transfer.to.axis[a].begin;
    if (transfer.step[a] == 1) from[a] = transfer.from.axis[a].begin + i;
    if (transfer.step[a] == -1) from[a] = transfer.from.axis[a].end - 1 - i;
    if (transfer.step[a] == 0) from[a] = transfer.from.axis[a].begin;
  }
  return from;
}

/// Grid and extents of a problem whose spatial axes are all alike.
Partition cube(std::int64_t n, std::int64_t depth, std::int64_t height, std::int64_t width) {
  return Partition(Grid(Counts{.depth = depth, .height = height, .width = width}),
                   Shape{.depth = n, .height = n, .width = n});
}

Region window_needs(Partition const& outputs, Window const& window) {
  Region needs(outputs);
  for (AxisId axis : spatial) needs.map(axis, [&](Interval block) { return window.required(block); });
  return needs;
}

/// One spatial axis: who has which cells, and what each rank needs of them.
Partition line(Blocks const& width) {
  return Partition(Grid(Counts{.width = width.parts()}),
                   {Blocks(1, 1), Blocks(1, 1), Blocks(1, 1), width, Blocks(1, 1)});
}

Region line_needs(Partition const& has, std::vector<Interval> const& needs) {
  Region region(has);
  std::size_t i = 0;
  return region.map(AxisId::width, [&](Interval) { return needs[i++]; });
}

}  // namespace

TEST_CASE("both ends of every message list the same boxes in the same order") {
  property("sends equal receives", [] {
    Case const c = draw_case(draw(1, 13, "ranks"));
    auto const plans = plans_of(c);
    for (std::size_t to = 0; to < plans.size(); ++to)
      for (std::size_t from = 0; from < plans.size(); ++from) {
        auto const arriving = with(plans[to].receives, static_cast<int>(from));
        auto const leaving = with(plans[from].sends, static_cast<int>(to));
        RC_ASSERT(arriving.size() == leaving.size());
        for (std::size_t i = 0; i < arriving.size(); ++i) RC_ASSERT(same(arriving[i], leaving[i]));
      }
    // One message per peer: the transfers with a peer stand together.
    for (ExchangePlan const& plan : plans) {
      auto const by_peer = [](Transfer const& a, Transfer const& b) { return a.peer < b.peer; };
      RC_ASSERT(std::is_sorted(plan.receives.begin(), plan.receives.end(), by_peer));
      RC_ASSERT(std::is_sorted(plan.sends.begin(), plan.sends.end(), by_peer));
    }
  });
}

TEST_CASE("every needed cell is supplied once, by its owner, from the right cell") {
  property("supply, cell by cell", [] {
    Case const c = draw_case(draw(1, 13, "ranks"));
    for (ExchangePlan const& plan : plans_of(c)) {
      RC_ASSERT(plan.has == c.has.owned(plan.rank));
      RC_ASSERT(plan.needs == c.needs.box(plan.rank));
      std::vector<int> supplied(static_cast<std::size_t>(plan.needs.volume()), 0);
      for (Transfer const& transfer : plan.receives) {
        RC_ASSERT(!transfer.to.empty());
        RC_ASSERT(plan.needs.contains(transfer.to));
        RC_ASSERT(c.has.owned(transfer.peer).contains(transfer.from));
        for_each_cell(transfer.to, [&](Cell const& g) {
          ++supplied[offset_in(plan.needs, g)];
          RC_ASSERT(source_of(c, g) == taken_from(transfer, g));
        });
      }
      for (Box const& border : plan.borders) {
        RC_ASSERT(plan.needs.contains(border));
        for_each_cell(border, [&](Cell const& g) {
          ++supplied[offset_in(plan.needs, g)];
          RC_ASSERT(!source_of(c, g).has_value());
        });
      }
      for_each_cell(plan.needs, [&](Cell const& g) {
        bool const there =
            c.placement == Placement::around_owned && source_of(c, g) == g && owner_of(c.has, g) == plan.rank;
        RC_ASSERT(supplied[offset_in(plan.needs, g)] == (there ? 0 : 1));
      });
    }
  });
}

TEST_CASE("volumes and messages are those of the closed formulas") {
  property("per rank, and over all ranks", [] {
    Case c = draw_case(draw(1, 13, "ranks"));
    RC_PRE(c.job != Job::redistribution);
    c.placement = Placement::elsewhere;
    // Per axis and coordinate: needed cells N, own ones O, messages Q, own ones Qs. A broadcast border counts as one.
    struct PerAxis {
      std::vector<std::int64_t> needed, own, messages, own_messages;
    };
    std::map<AxisId, PerAxis> axes;
    for (AxisId axis : rank_order) {
      std::int64_t const n = c.has.shape()[axis];
      std::int64_t i = 0;
      for (Interval need : c.needs.intervals(axis)) {
        std::int64_t needed = 0, own = 0, messages = 0, own_messages = 0;
        std::int64_t last_piece = 0, last_owner = -1;
        for (std::int64_t g = need.begin; g < need.end; ++g) {
          auto const from = source_of(c.padding, g, n);
          if (!from) continue;
          std::int64_t const owner = owner_of(c.has.blocks(axis), *from);
          std::int64_t const piece = c.padding == Padding::circular ? floor_div(g, n) : (g < 0 ? -1 : g < n ? 0 : 1);
          bool const begins = owner != last_owner || piece != last_piece;
          bool const again = c.padding == Padding::replicate && piece != 0 && !begins;
          last_owner = owner;
          last_piece = piece;
          needed += again ? 0 : 1;
          own += owner == i && !again ? 1 : 0;
          messages += begins ? 1 : 0;
          own_messages += owner == i && begins ? 1 : 0;
        }
        axes[axis].needed.push_back(needed);
        axes[axis].own.push_back(own);
        axes[axis].messages.push_back(messages);
        axes[axis].own_messages.push_back(own_messages);
        ++i;
      }
    }
    auto const sum = [](std::vector<std::int64_t> const& list) {
      std::int64_t all = 0;
      for (std::int64_t each : list) all += each;
      return all;
    };
    std::int64_t cells = 0, sent = 0, transfers = 0;
    for (ExchangePlan const& plan : plans_of(c)) {
      Coordinates const at = c.has.grid().coordinates(plan.rank);
      std::int64_t needed = 1, own = 1;
      for (AxisId axis : rank_order) {
        needed *= axes[axis].needed[static_cast<std::size_t>(at[axis])];
        own *= axes[axis].own[static_cast<std::size_t>(at[axis])];
      }
      RC_ASSERT(plan.received_cells() == needed - own);
      cells += plan.received_cells();
      sent += plan.sent_cells();
      for (Transfer const& transfer : plan.receives) transfers += transfer.peer == plan.rank ? 0 : 1;
    }
    std::int64_t needed = 1, own = 1, messages = 1, own_messages = 1;
    for (AxisId axis : rank_order) {
      needed *= sum(axes[axis].needed);
      own *= sum(axes[axis].own);
      messages *= sum(axes[axis].messages);
      own_messages *= sum(axes[axis].own_messages);
    }
    RC_ASSERT(cells == needed - own);
    RC_ASSERT(sent == cells);
    RC_ASSERT(transfers == messages - own_messages);
  });
}

TEST_CASE("the halo of a 3-cube kernel has the known volume") {
  auto const all = [](Partition const& has) {
    Region const needs = window_needs(has, Window{.kernel = 3, .low = 1, .high = 1});
    std::int64_t cells = 0;
    for (std::int64_t rank = 0; rank < has.grid().size(); ++rank)
      cells += make_plan(has, needs, static_cast<int>(rank)).received_cells();
    return cells;
  };
  CHECK(all(cube(128, 2, 2, 2)) == 99'848);
  CHECK(all(cube(512, 4, 4, 4)) == 4'774'104);
}

TEST_CASE("one rank's plan among 2,048 needs no other rank") {
  Partition const has = cube(1024, 8, 16, 16);
  Region const needs = window_needs(has, Window{.kernel = 3, .low = 1, .high = 1});
  int const inner = static_cast<int>(has.grid().rank(Coordinates{{0, 4, 7, 7, 0}}));
  ExchangePlan const plan = make_plan(has, needs, inner, Padding::zeros, Placement::around_owned);
  CHECK(plan.messages_received() == 26);
  CHECK(plan.messages_sent() == 26);
  CHECK(plan.received_cells() == 130 * 66 * 66 - 128 * 64 * 64);
  CHECK(plan.borders.empty());
  int const corner = 2047;
  ExchangePlan const last = make_plan(has, needs, corner, Padding::circular, Placement::around_owned);
  CHECK(last.messages_received() == 26);
}

TEST_CASE("a block in the gap of a stride still feeds the hull of its reader") {
  // k1 s3: outputs 0 and 1 read cells 0 and 3. Nobody reads cells 1 and 2, yet they lie in the hull that rank 0 needs.
  Partition const has = line(Blocks::at({0, 1, 3, 4}));
  Window const window{.kernel = 1, .stride = 3};
  CHECK(window.touch({1, 3}).empty());
  Region const needs = line_needs(has, {window.required({0, 2}), {}, {}});
  ExchangePlan const reader = make_plan(has, needs, 0), owner = make_plan(has, needs, 1);
  CHECK(reader.receives.size() == 3);
  CHECK(owner.receives.empty());
  REQUIRE(owner.sends.size() == 1);
  CHECK(owner.sends[0].peer == 0);
  CHECK(owner.sends[0].from.axis[3] == Interval{1, 3});
}

TEST_CASE("a window that misses the tensor is all border") {
  Partition const has = line(Blocks(4, 2));
  ExchangePlan const plan = make_plan(has, line_needs(has, {{-5, -2}, {2, 5}}), 0);
  CHECK(plan.receives.empty());
  REQUIRE(plan.borders.size() == 1);
  CHECK(plan.borders[0].axis[3] == Interval{-5, -2});
}

TEST_CASE("gathering to one rank is a partition in which it owns everything") {
  Partition const has = line(Blocks(7, 3)), one = line(Blocks::at({0, 0, 7, 7}));
  CHECK(make_plan(has, Region(one), 1).receives.size() == 3);
  CHECK(make_plan(has, Region(one), 0).receives.empty());
  CHECK(make_plan(has, Region(one), 0).sends.size() == 1);
  CHECK(make_plan(one, Region(has), 1).sends.size() == 3);  // and scattering is the same, read backward
}

TEST_CASE("a reflected border may not be wider than the axis allows, and every rank says so") {
  Partition const has = line(Blocks::at({0, 0, 4}));
  for (int rank = 0; rank < 2; ++rank) {
    CHECK_NOTHROW(make_plan(has, line_needs(has, {{}, {-3, 7}}), rank, Padding::reflect));
    CHECK_THROWS_WITH_AS(make_plan(has, line_needs(has, {{}, {-4, 4}}), rank, Padding::reflect),
                         "Padding::reflect: can mirror at most 3 cells of an axis of 4, but [-4,4) is needed; use less "
                         "padding or another mode",
                         Error);
    CHECK_THROWS_AS(make_plan(has, line_needs(has, {{}, {0, 8}}), rank, Padding::reflect), Error);
    CHECK_NOTHROW(make_plan(has, line_needs(has, {{}, {-13, 13}}), rank, Padding::circular));
  }
}

TEST_CASE("has and needs must be over equally many ranks") {
  Partition const two = line(Blocks(4, 2)), four = line(Blocks(4, 4));
  CHECK_THROWS_WITH_AS(make_plan(two, Region(four), 0),
                       "make_plan: what is had and what is needed must be over the same ranks, but there are 2 and 4",
                       Error);
}

TEST_CASE("explain says who sends which box to whom") {
  auto const text = [](ExchangePlan const& plan) {
    std::ostringstream out;
    explain(out, plan);
    return out.str();
  };
  Partition const has = line(Blocks(4, 2));
  Region const needs = line_needs(has, {{-1, 3}, {1, 5}});
  CHECK(text(make_plan(has, needs, 0, Padding::zeros, Placement::around_owned)) ==
        "rank 0 has [0,1)x[0,1)x[0,1)x[0,2)x[0,1), needs [0,1)x[0,1)x[0,1)x[-1,3)x[0,1) (sample x depth x height x "
        "width x "
        "channel)\n"
        "  receives from rank 1: [0,1)x[0,1)x[0,1)x[2,3)x[0,1)\n"
        "  sends to rank 1: [0,1)x[0,1)x[0,1)x[1,2)x[0,1)\n"
        "  fills [0,1)x[0,1)x[0,1)x[-1,0)x[0,1) with zeros\n");
  CHECK(
      text(make_plan(has, needs, 0, Padding::reflect, Placement::around_owned)) ==
      "rank 0 has [0,1)x[0,1)x[0,1)x[0,2)x[0,1), needs [0,1)x[0,1)x[0,1)x[-1,3)x[0,1) (sample x depth x height x width "
      "x "
      "channel)\n"
      "  receives from itself: [0,1)x[0,1)x[0,1)x[1,2)x[0,1) as [0,1)x[0,1)x[0,1)x[-1,0)x[0,1), mirrored along width\n"
      "  receives from rank 1: [0,1)x[0,1)x[0,1)x[2,3)x[0,1)\n"
      "  sends to rank 1: [0,1)x[0,1)x[0,1)x[1,2)x[0,1)\n");
  CHECK(
      text(make_plan(has, needs, 1, Padding::replicate, Placement::around_owned)) ==
      "rank 1 has [0,1)x[0,1)x[0,1)x[2,4)x[0,1), needs [0,1)x[0,1)x[0,1)x[1,5)x[0,1) (sample x depth x height x width "
      "x "
      "channel)\n"
      "  receives from rank 0: [0,1)x[0,1)x[0,1)x[1,2)x[0,1)\n"
      "  receives from itself: [0,1)x[0,1)x[0,1)x[3,4)x[0,1) as [0,1)x[0,1)x[0,1)x[4,5)x[0,1), broadcast along width\n"
      "  sends to rank 0: [0,1)x[0,1)x[0,1)x[2,3)x[0,1)\n");
}
