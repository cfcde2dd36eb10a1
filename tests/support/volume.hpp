// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/border.hpp"
#include "support/distributed_property.hpp"
#include "support/layer_cases.hpp"
#include "tessera/exchange/plan.hpp"

/// How much the layers move: all ranks together receive prod_a(sum N_a) - prod_a(sum O_a) cells, where N counts, per
/// axis and coordinate, the cells that are needed and O those of them that the rank owns itself. They arrive in
/// prod_a(sum Q_a) - prod_a(sum Qs_a) boxes, Q counting pairs of owner and piece (piece: the part within the border, or
/// one beyond it), Qs those with the rank itself. A message carries all boxes between two ranks, so that in the number
/// of messages Q counts owners alone. N, O and Q are counted here cell by cell, without the library's formulas.
namespace tessera::test {

struct Volume {
  std::int64_t cells = 0, boxes = 0, messages = 0;
  friend bool operator==(Volume const&, Volume const&) = default;
  std::string text() const {
    return tessera::detail::text(cells, " cells in ", boxes, " boxes and ", messages, " messages");
  }
};

using Cells = std::vector<std::int64_t>;
/// What the blocks along one axis need, one after the other.
using Needs = std::vector<Cells>;

/// Of one block along one axis: needed cells and those of them that are its own, the cells of its own that all blocks
/// need, boxes and owners.
struct Counted {
  std::int64_t needed = 0, own = 0, given = 0, boxes = 0, own_boxes = 0, owners = 0, own_owners = 0;
};

inline std::vector<Counted> count(Blocks const& blocks, Needs const& needs, Padding padding) {
  std::int64_t const n = blocks.extent();
  std::vector<std::int64_t> owner(static_cast<std::size_t>(n), -1);
  for (std::int64_t i = 0; i < blocks.parts(); ++i)
    for (std::int64_t g = blocks[i].begin; g < blocks[i].end; ++g) owner[static_cast<std::size_t>(g)] = i;
  std::vector<Counted> all(needs.size());
  for (std::size_t i = 0; i < needs.size(); ++i) {
    auto const self = static_cast<std::int64_t>(i);
    std::set<std::pair<std::int64_t, std::int64_t>> boxes;
    std::set<std::int64_t> owners;
    for (std::int64_t const g : needs[i]) {
      auto const from = source_of(padding, g, n);
      if (!from) continue;
      std::int64_t const who = owner[static_cast<std::size_t>(*from)];
      std::int64_t const piece = padding == Padding::circular ? (g - *from) / n : g < 0 ? -1 : g < n ? 0 : 1;
      bool const begins = boxes.insert({who, piece}).second;
      owners.insert(who);
      // The cell that is repeated beyond the border travels once.
      if (padding == Padding::replicate && piece != 0 && !begins) continue;
      ++all[i].needed;
      all[i].own += who == self ? 1 : 0;
      ++all[static_cast<std::size_t>(who)].given;
    }
    all[i].boxes = static_cast<std::int64_t>(boxes.size());
    all[i].own_boxes = std::count_if(boxes.begin(), boxes.end(), [&](auto const& box) { return box.first == self; });
    all[i].owners = static_cast<std::int64_t>(owners.size());
    all[i].own_owners = owners.contains(self) ? 1 : 0;
  }
  return all;
}

inline Cells range(std::int64_t begin, std::int64_t end) {
  Cells cells;
  for (std::int64_t g = begin; g < end; ++g) cells.push_back(g);
  return cells;
}

/// What every block owns.
inline Needs owned(Blocks const& blocks) {
  Needs needs;
  for (std::int64_t i = 0; i < blocks.parts(); ++i) needs.push_back(range(blocks[i].begin, blocks[i].end));
  return needs;
}

/// Needs per axis, in the order of rank_order.
using AllNeeds = std::array<Needs, axis_count>;
inline Needs& along(AllNeeds& needs, AxisId axis) { return needs[static_cast<std::size_t>(axis)]; }

inline AllNeeds owned(Partition const& partition) {
  AllNeeds needs;
  for (AxisId axis : rank_order) along(needs, axis) = owned(partition.blocks(axis));
  return needs;
}

/// An exchange, as it is counted.
struct Flow {
  std::array<std::vector<Counted>, axis_count> axes;

  Volume all() const {
    std::int64_t const own = product(&Counted::own), own_boxes = product(&Counted::own_boxes),
                       own_owners = product(&Counted::own_owners);
    return {product(&Counted::needed) - own, product(&Counted::boxes) - own_boxes,
            product(&Counted::owners) - own_owners};
  }
  /// What one rank receives, and what it receives when the exchange runs backwards.
  std::int64_t received(Coordinates const& at) const {
    return product(at, &Counted::needed) - product(at, &Counted::own);
  }
  std::int64_t received_back(Coordinates const& at) const {
    return product(at, &Counted::given) - product(at, &Counted::own);
  }

 private:
  std::int64_t product(std::int64_t Counted::*what) const {
    std::int64_t all = 1;
    for (auto const& blocks : axes) {
      std::int64_t sum = 0;
      for (Counted const& block : blocks) sum += block.*what;
      all *= sum;
    }
    return all;
  }
  std::int64_t product(Coordinates const& at, std::int64_t Counted::*what) const {
    std::int64_t all = 1;
    for (std::size_t a = 0; a < axes.size(); ++a) all *= axes[a][static_cast<std::size_t>(at.at[a])].*what;
    return all;
  }
};

inline Flow flow(Partition const& has, AllNeeds const& needs, Padding padding) {
  Flow flow;
  for (AxisId axis : rank_order) {
    auto const a = static_cast<std::size_t>(axis);
    flow.axes[a] = count(has.blocks(axis), needs[a], padding);
  }
  return flow;
}

/// The hull of the cells that outputs [b, e) of a window read, tap by tap.
inline Cells reads(Window const& w, Cells const& outputs) {
  if (outputs.empty()) return {};
  std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = std::numeric_limits<std::int64_t>::min();
  for (std::int64_t const o : outputs)
    for (std::int64_t j = 0; j < w.kernel; ++j) {
      std::int64_t const g = o * w.stride - w.low + w.dilation * j;
      least = smaller(least, g);
      most = larger(most, g);
    }
  return range(least, most + 1);
}

/// Those of m outputs whose windows, as far as they span, meet the cells.
inline Cells readers(Window const& w, Cells const& cells, std::int64_t m) {
  Cells found;
  for (std::int64_t o = 0; o < m && !cells.empty(); ++o) {
    std::int64_t const first = o * w.stride - w.low;
    if (first <= cells.back() && cells.front() < first + w.dilation * (w.kernel - 1) + 1) found.push_back(o);
  }
  return found;
}

inline Cells hull_of(Cells const& a, Cells const& b) {
  if (a.empty() || b.empty()) return a.empty() ? b : a;
  return range(smaller(a.front(), b.front()), larger(a.back(), b.back()) + 1);
}

/// A sum over the plans of all ranks.
struct Tally {
  Volume received, sent;
  void add(ExchangePlan const& plan) {
    auto const boxes = [&](std::vector<Transfer> const& list) {
      return std::count_if(list.begin(), list.end(), [&](Transfer const& t) { return t.peer != plan.rank; });
    };
    received.cells += plan.received_cells();
    received.boxes += boxes(plan.receives);
    received.messages += plan.messages_received();
    sent.cells += plan.sent_cells();
    sent.boxes += boxes(plan.sends);
    sent.messages += plan.messages_sent();
  }
  void expect_equal(std::string const& what, Volume const& volume) const {
    expect(received == volume,
           tessera::detail::text(what, ": received are ", received.text(), ", expected ", volume.text()));
    expect(sent == volume, tessera::detail::text(what, ": sent are ", sent.text(), ", expected ", volume.text()));
  }
};

/// Any number of ranks up to 512, small ones as likely as large ones.
inline std::int64_t draw_ranks() {
  std::int64_t const most = std::int64_t{1} << draw(0, 9, "ranks, at most 2^");
  return draw((most + 1) / 2, most, "ranks");
}

/// Extents that leave blocks with several cells along the axes that are cut.
inline Shape draw_large_shape(Counts const& counts, std::int64_t space) {
  Shape shape = draw_shape(counts, space);
  std::int64_t* const extents[] = {&shape.depth, &shape.height, &shape.width};
  for (std::size_t i = static_cast<std::size_t>(3 - space); i < 3; ++i)
    if (draw(0, 1, "a longer axis") == 1)
      *extents[i] += counts[space_in_order[i]] * draw(0, 3, "more cells for each block");
  return shape;
}

}  // namespace tessera::test
