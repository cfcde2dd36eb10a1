// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <tuple>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/partition/partition.hpp"

namespace tessera {

/// What lies beyond the global border of a spatial axis.
enum class Padding { zeros, circular, reflect, replicate };

constexpr std::string_view name(Padding padding) {
  constexpr std::array<std::string_view, 4> names{"zeros", "circular", "reflect", "replicate"};
  return names[static_cast<std::size_t>(padding)];
}

/// Cells `to` along one axis, taken from cells `from`: the first one of `to` from from.begin if step is +1, from
/// from.end - 1 if it is -1 (mirrored), all of them from the one cell of `from` if it is 0 (broadcast).
struct AxisPiece {
  Interval to;
  Interval from;
  int step = 1;
};

/// Cuts what is needed along an axis of n cells into pieces that a cell of the axis can supply. Padding::zeros supplies
/// nothing beyond the border.
/// Fails: reflect beyond n - 1 cells per side (as PyTorch); an axis without cells supplies nothing.
template <class Visit>
void for_each_piece(Padding padding, Interval need, std::int64_t n, Visit visit) {
  if (need.empty() || n == 0) return;
  auto const emit = [&](AxisPiece const& piece) {
    if (!piece.to.empty()) visit(piece);
  };
  if (padding == Padding::circular) {
    for (std::int64_t copy = floor_div(need.begin, n); copy <= floor_div(need.end - 1, n); ++copy) {
      Interval const to = intersect(need, {copy * n, (copy + 1) * n});
      emit({to, shifted(to, -copy * n), 1});
    }
    return;
  }
  Interval const below{need.begin, smaller(need.end, 0)}, above{larger(need.begin, n), need.end};
  if (padding == Padding::reflect) {
    require(need.begin > -n && need.end < 2 * n, "Padding::reflect", "can mirror at most ", n - 1,
            " cells of an axis of ", n, ", but ", need, " is needed; use less padding or another mode");
    emit({below, {1 - below.end, 1 - below.begin}, -1});
  } else if (padding == Padding::replicate) {
    emit({below, {0, 1}, 0});
  }
  Interval const inside = intersect(need, {0, n});
  emit({inside, inside, 1});
  if (padding == Padding::reflect) emit({above, {2 * n - 1 - above.end, 2 * n - 1 - above.begin}, -1});
  if (padding == Padding::replicate) emit({above, {n - 1, n}, 0});
}

/// One box that travels to or from a peer: which cells, and how they are laid out at the receiver.
struct Transfer {
  int peer = 0;
  Box to;    ///< at the receiver
  Box from;  ///< at the owner
  std::array<int, axis_count> step{1, 1, 1, 1, 1};

  /// The number of elements that travel; a broadcast cell travels once.
  std::int64_t cells() const { return from.volume(); }
  bool in_place() const { return step == std::array<int, axis_count>{1, 1, 1, 1, 1} && to == from; }
};

/// Whether needed cells that the rank owns itself are there already (a halo around the owned box) or go elsewhere too.
enum class Placement { around_owned, elsewhere };

/// One rank's part of an exchange: every rank has box A_r and needs box B_r; what travels is every intersection. It
/// follows from formulas: nothing is communicated to make it, and both ends of a message list its boxes in one order.
struct ExchangePlan {
  int rank = 0;
  Box has;
  Box needs;
  std::vector<Transfer> receives;  ///< by (peer, position of `to`); one message per peer
  std::vector<Transfer> sends;     ///< by (peer, position of `to`)
  std::vector<Box> borders;        ///< needed cells that nobody owns: filled with zeros

  std::int64_t received_cells() const { return count(receives); }
  std::int64_t sent_cells() const { return count(sends); }
  std::int64_t messages_received() const { return peers(receives); }
  std::int64_t messages_sent() const { return peers(sends); }

 private:
  std::int64_t count(std::vector<Transfer> const& list) const {
    std::int64_t cells = 0;
    for (Transfer const& transfer : list) cells += transfer.peer == rank ? 0 : transfer.cells();
    return cells;
  }
  std::int64_t peers(std::vector<Transfer> const& list) const {
    std::int64_t found = 0;
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].peer != rank && (i == 0 || list[i - 1].peer != list[i].peer)) ++found;
    return found;
  }
};

namespace detail {

/// A piece along one axis, cut by the block of one peer.
struct AxisCut {
  std::int64_t peer;  ///< coordinate in the other grid
  AxisPiece piece;
};

/// The part of a piece that block `owned` supplies.
inline AxisPiece cut(AxisPiece const& piece, Interval owned) {
  AxisPiece part = piece;
  part.from = intersect(piece.from, owned);
  if (part.from.empty()) {
    part.to = {};
  } else if (piece.step == 1) {
    part.to = shifted(part.from, piece.to.begin - piece.from.begin);
  } else if (piece.step == -1) {
    part.to = {piece.to.begin + piece.from.end - part.from.end, piece.to.end - (part.from.begin - piece.from.begin)};
  }
  return part;
}

/// All combinations of one cut per axis, as transfers with the rank in `grid` that the coordinates name.
inline std::vector<Transfer> combine(std::array<std::vector<AxisCut>, axis_count> const& cuts, Grid const& grid) {
  std::vector<Transfer> transfers;
  std::array<std::size_t, axis_count> pick{};
  for (auto const& along : cuts)
    if (along.empty()) return transfers;
  while (true) {
    Transfer transfer;
    Coordinates peer;
    for (std::size_t a = 0; a < cuts.size(); ++a) {
      AxisCut const& part = cuts[a][pick[a]];
      peer.at[a] = part.peer;
      transfer.to.axis[a] = part.piece.to;
      transfer.from.axis[a] = part.piece.from;
      transfer.step[a] = part.piece.step;
    }
    transfer.peer = static_cast<int>(grid.rank(peer));
    transfers.push_back(transfer);
    std::size_t a = 0;
    while (a < cuts.size() && ++pick[a] == cuts[a].size()) pick[a++] = 0;
    if (a == cuts.size()) break;
  }
  std::sort(transfers.begin(), transfers.end(), [](Transfer const& a, Transfer const& b) {
    auto const key = [](Transfer const& t) {
      return std::tuple(t.peer, t.to.axis[0].begin, t.to.axis[1].begin, t.to.axis[2].begin, t.to.axis[3].begin,
                        t.to.axis[4].begin);
    };
    return key(a) < key(b);
  });
  return transfers;
}

}  // namespace detail

/// The plan of rank `rank`: `has` says who owns what, `needs` what every rank wants, in the same global indices.
/// Needed cells beyond the border of a spatial axis are supplied as `padding` says. Work: the rank's own transfers, and
/// one look at every block of each axis.
inline ExchangePlan make_plan(Partition const& has, Region const& needs, int rank, Padding padding = Padding::zeros,
                              Placement placement = Placement::elsewhere) {
  require(has.grid().size() == needs.grid().size(), "make_plan",
          "what is had and what is needed must be over the same ranks, but there are ", has.grid().size(), " and ",
          needs.grid().size());
  Coordinates const owner_at = has.grid().coordinates(rank), needer_at = needs.grid().coordinates(rank);
  ExchangePlan plan;
  plan.rank = rank;
  plan.has = has.owned(rank);
  plan.needs = needs.box(rank);
  std::array<std::vector<detail::AxisCut>, axis_count> receives, sends;
  for (AxisId axis : rank_order) {
    auto const a = static_cast<std::size_t>(axis);
    Blocks const& blocks = has.blocks(axis);
    std::vector<Interval> const& wanted = needs.intervals(axis);
    for_each_piece(padding, wanted[static_cast<std::size_t>(needer_at[axis])], blocks.extent(),
                   [&](AxisPiece const& piece) {
                     Interval const owners = blocks.owners(piece.from);
                     for (std::int64_t peer = owners.begin; peer < owners.end; ++peer)
                       if (auto const part = detail::cut(piece, blocks[peer]); !part.to.empty())
                         receives[a].push_back({peer, part});
                   });
    Interval const own = blocks[owner_at[axis]];
    for (std::size_t peer = 0; peer < wanted.size(); ++peer)  // also if nothing is owned: all ranks see what is refused
      for_each_piece(padding, wanted[peer], blocks.extent(), [&](AxisPiece const& piece) {
        if (auto const part = detail::cut(piece, own); !part.to.empty())
          sends[a].push_back({static_cast<std::int64_t>(peer), part});
      });
  }
  plan.receives = detail::combine(receives, has.grid());
  plan.sends = detail::combine(sends, needs.grid());
  if (placement == Placement::around_owned) {
    auto const there = [&](Transfer const& t) { return t.peer == rank && t.in_place(); };
    std::erase_if(plan.receives, there);
    std::erase_if(plan.sends, there);
  }
  if (padding == Padding::zeros)
    for_each_rim(plan.needs, has.shape().box(), [&](Box const& rim) { plan.borders.push_back(rim); });
  return plan;
}

/// Who sends which box to whom, one line per box, for people.
inline void explain(std::ostream& out, ExchangePlan const& plan) {
  out << "rank " << plan.rank << " has " << plan.has << ", needs " << plan.needs
      << " (sample x depth x height x width x "
      << "channel)\n";
  auto const print = [&](Transfer const& t, std::string_view verb) {
    out << "  " << verb << ' ';
    if (t.peer == plan.rank)
      out << "itself";
    else
      out << "rank " << t.peer;
    out << ": " << t.from;
    if (!(t.from == t.to)) out << " as " << t.to;
    for (int a = 0; a < axis_count; ++a) {
      int const step = t.step[static_cast<std::size_t>(a)];
      if (step != 1) out << (step == 0 ? ", broadcast along " : ", mirrored along ") << name(static_cast<AxisId>(a));
    }
    out << '\n';
  };
  for (Transfer const& t : plan.receives) print(t, "receives from");
  for (Transfer const& t : plan.sends)
    if (t.peer != plan.rank) print(t, "sends to");
  for (Box const& border : plan.borders) out << "  fills " << border << " with zeros\n";
}

}  // namespace tessera
