// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/border.hpp"
#include "tessera/exchange/plan.hpp"
#include "tessera/partition/partition.hpp"
#include "tessera/partition/window.hpp"

/// Random exchanges, and what they must do, cell by cell, without any of the library's formulas for pieces and owners.
namespace tessera::test {

/// A whole number in [low, past), all equally likely whatever the size of the case.
inline std::int64_t draw(std::int64_t low, std::int64_t past, std::string const& name) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, past)).as(name);
}

inline constexpr std::array<AxisId, 3> spatial{AxisId::depth, AxisId::height, AxisId::width};

/// Counts whose product is `ranks`: each prime factor goes to one of the axes sample, channel and the last `space`; in
/// a third of the cases all of them to one spatial axis.
inline Counts draw_counts(std::int64_t ranks, int space, std::string const& name) {
  Counts counts;
  auto const in_space = [&](std::int64_t i) { return spatial[static_cast<std::size_t>(3 - space + i)]; };
  if (draw(0, 3, name + ", all on one axis") == 0) {
    counts[in_space(draw(0, space, name + ", the axis"))] = ranks;
    return counts;
  }
  for (std::int64_t factor = 2; ranks > 1; ++factor)
    for (; ranks % factor == 0; ranks /= factor) {
      // The spatial axes are twice as likely: most of the work lies there.
      std::int64_t const to = draw(0, 2 + 2 * space, name + ", axis of a factor " + std::to_string(factor));
      counts[to == 0 ? AxisId::sample : to == 1 ? AxisId::channel : in_space((to - 2) / 2)] *= factor;
    }
  return counts;
}

/// n cells in `parts` blocks, balanced or with random boundaries, of which many coincide.
inline Blocks draw_blocks(std::int64_t n, std::int64_t parts, bool by_user, std::string const& name) {
  if (!by_user) return Blocks(n, parts);
  std::vector<std::int64_t> boundaries{0, n};
  for (std::int64_t i = 1; i < parts; ++i) boundaries.push_back(draw(0, n + 1, name + ", boundary"));
  std::sort(boundaries.begin(), boundaries.end());
  return Blocks::at(std::move(boundaries));
}

inline Partition draw_partition(Counts const& counts, Shape const& shape, bool by_user, std::string const& name) {
  std::array<Blocks, axis_count> blocks;
  for (AxisId axis : rank_order)
    blocks[static_cast<std::size_t>(axis)] = draw_blocks(shape[axis], counts[axis], by_user && counts[axis] > 1,
                                                         name + ", " + std::string(tessera::name(axis)));
  return Partition(Grid(counts), std::move(blocks));
}

enum class Job { required, touch, halo, redistribution };

/// Who has what, who needs what, and what lies beyond the border.
struct Case {
  int space = 1;  ///< spatial axes in use
  Job job = Job::required;
  Padding padding = Padding::zeros;
  Placement placement = Placement::elsewhere;
  bool by_user = false;  ///< boundaries of its own
  Partition has;
  Region needs{Partition()};
  std::int64_t ranks() const { return has.grid().size(); }
};

/// Whether `padding` is able to supply all that is needed along the spatial axes.
inline bool suppliable(Case const& c) {
  if (c.padding != Padding::reflect) return true;
  for (AxisId axis : spatial) {
    std::int64_t const n = c.has.shape()[axis];
    for (Interval need : c.needs.intervals(axis))
      if (!need.empty() && (need.begin <= -n || need.end >= 2 * n)) return false;
  }
  return true;
}

/// Any exchange between `ranks` ranks: extents up to `longest`, windows and halos that reach over several blocks.
inline Case draw_case(std::int64_t ranks) {
  Case c;
  c.space = static_cast<int>(draw(1, 4, "spatial axes"));
  c.by_user = draw(0, 2, "boundaries by the user") == 1;
  c.job = static_cast<Job>(draw(0, 4, "job (required, touch, halo, redistribution)"));
  c.padding = static_cast<Padding>(draw(0, 4, "padding (zeros, circular, reflect, replicate)"));
  c.placement = static_cast<Placement>(draw(0, 2, "placement (around owned, elsewhere)"));
  std::int64_t const longest = c.space == 3 ? 6 : 12, widest = c.space == 3 ? 3 : 7;

  std::array<std::int64_t, axis_count> extent{1, 1, 1, 1, 1};
  auto const of = [&](AxisId axis) -> std::int64_t& { return extent[static_cast<std::size_t>(axis)]; };
  of(AxisId::sample) = draw(1, 4, "samples");
  of(AxisId::channel) = draw(1, 6, "channels");
  for (int i = 3 - c.space; i < 3; ++i) {
    AxisId const axis = spatial[static_cast<std::size_t>(i)];
    of(axis) = draw(1, longest + 1, std::string(name(axis)));
  }
  Counts const counts = draw_counts(ranks, c.space, "counts");
  if (draw(0, 4, "a cell for every block") != 0)
    for (AxisId axis : rank_order) of(axis) = std::max(of(axis), counts[axis]);
  Shape const shape{extent[0], extent[1], extent[2], extent[3], extent[4]};

  if (c.job == Job::redistribution) {
    c.placement = Placement::elsewhere;
    c.has = draw_partition(counts, shape, c.by_user, "has");
    c.needs = Region(draw_partition(draw_counts(ranks, c.space, "new counts"), shape, c.by_user, "needs"));
    return c;
  }
  if (c.job == Job::halo) {
    c.has = draw_partition(counts, shape, c.by_user, "has");
    c.needs = Region(c.has);
    for (int i = 3 - c.space; i < 3; ++i) {
      std::int64_t const low = draw(0, widest + 1, "halo below"), high = draw(0, widest + 1, "halo above");
      c.needs.map(spatial[static_cast<std::size_t>(i)], [&](Interval owned) {
        return owned.empty() ? owned : Interval{owned.begin - low, owned.end + high};
      });
    }
  } else {
    // A window from inputs to outputs per axis; the pads grow until the kernel fits.
    std::array<Window, 3> windows;
    std::array<std::int64_t, axis_count> outputs = extent;
    for (int i = 3 - c.space; i < 3; ++i) {
      AxisId const axis = spatial[static_cast<std::size_t>(i)];
      Window& window = windows[static_cast<std::size_t>(i)];
      window.kernel = draw(1, 6, "kernel");
      window.stride = draw(1, 5, "stride");
      window.dilation = draw(1, c.space == 3 ? 3 : 4, "dilation");
      window.low = draw(-2, widest, "low");
      window.high = draw(-2, widest, "high");
      while (of(axis) + window.low + window.high < window.span())
        ++(window.low < window.high ? window.low : window.high);
      outputs[static_cast<std::size_t>(axis)] = window.outputs(of(axis));
    }
    Partition const in = draw_partition(counts, shape, c.by_user, "inputs");
    Shape const out_shape{outputs[0], outputs[1], outputs[2], outputs[3], outputs[4]};
    // Samples and channels stay where they are; space may be cut anew.
    std::array<Blocks, axis_count> cut;
    for (AxisId axis : rank_order) {
      bool const in_space = std::find(spatial.begin(), spatial.end(), axis) != spatial.end();
      cut[static_cast<std::size_t>(axis)] =
          in_space ? draw_blocks(out_shape[axis], counts[axis], c.by_user && counts[axis] > 1, "outputs")
                   : in.blocks(axis);
    }
    Partition const out(Grid(counts), std::move(cut));
    bool const forward = c.job == Job::required;
    c.has = forward ? in : out;
    c.needs = Region(forward ? out : in);
    for (std::size_t i = 0; i < 3; ++i)
      c.needs.map(spatial[i],
                  [&](Interval block) { return forward ? windows[i].required(block) : windows[i].touch(block); });
  }
  if (!suppliable(c)) c.padding = Padding::circular;
  return c;
}

/// The block that owns cell g, by looking at every block.
inline std::int64_t owner_of(Blocks const& blocks, std::int64_t g) {
  for (std::int64_t i = 0; i < blocks.parts(); ++i)
    if (blocks[i].begin <= g && g < blocks[i].end) return i;
  return -1;
}

using Cell = std::array<std::int64_t, axis_count>;

template <class Visit>
void for_each_cell(Box const& box, Visit visit) {
  if (box.empty()) return;
  Cell g;
  for (g[0] = box.axis[0].begin; g[0] < box.axis[0].end; ++g[0])
    for (g[1] = box.axis[1].begin; g[1] < box.axis[1].end; ++g[1])
      for (g[2] = box.axis[2].begin; g[2] < box.axis[2].end; ++g[2])
        for (g[3] = box.axis[3].begin; g[3] < box.axis[3].end; ++g[3])
          for (g[4] = box.axis[4].begin; g[4] < box.axis[4].end; ++g[4]) visit(Cell(g));
}

/// The number of a cell of a box, in row-major order.
inline std::size_t offset_in(Box const& box, Cell const& g) {
  std::int64_t at = 0;
  for (std::size_t a = 0; a < axis_count; ++a) at = at * box.axis[a].size() + (g[a] - box.axis[a].begin);
  return static_cast<std::size_t>(at);
}

/// The cell of the tensor that cell g takes its value from.
inline std::optional<Cell> source_of(Case const& c, Cell const& g) {
  Shape const shape = c.has.shape();
  Cell from{};
  for (AxisId axis : rank_order) {
    auto const a = static_cast<std::size_t>(axis);
    auto const along = source_of(c.padding, g[a], shape[axis]);
    if (!along) return std::nullopt;
    from[a] = *along;
  }
  return from;
}

inline std::int64_t owner_of(Partition const& partition, Cell const& g) {
  Coordinates at;
  for (AxisId axis : rank_order) at[axis] = owner_of(partition.blocks(axis), g[static_cast<std::size_t>(axis)]);
  return partition.grid().rank(at);
}

/// What makes a case worth having drawn.
struct Traits {
  bool empty_shard = false;  ///< some rank owns nothing
  bool multi_hop = false;    ///< something comes from a block that is not next to the receiver's, no border crossed
  bool two_axes = false;     ///< two or more axes are split
  bool by_user = false;      ///< a split axis has boundaries that the user gave
};

inline Traits traits_of(Case const& c) {
  Traits traits;
  Grid const& grid = c.has.grid();
  for (std::int64_t rank = 0; rank < grid.size(); ++rank) traits.empty_shard |= c.has.owned(rank).empty();
  int split = 0;
  for (AxisId axis : rank_order) {
    split += grid.counts()[axis] > 1 ? 1 : 0;
    traits.by_user |= grid.counts()[axis] > 1 && !c.has.blocks(axis).balanced();
    if (c.job == Job::redistribution) continue;
    auto const& needs = c.needs.intervals(axis);
    for (std::size_t i = 0; i < needs.size(); ++i)
      for (std::int64_t g = std::max<std::int64_t>(needs[i].begin, 0); g < std::min(needs[i].end, c.has.shape()[axis]);
           ++g)
        traits.multi_hop |= std::abs(owner_of(c.has.blocks(axis), g) - static_cast<std::int64_t>(i)) >= 2;
  }
  traits.two_axes = split >= 2;
  return traits;
}

}  // namespace tessera::test
