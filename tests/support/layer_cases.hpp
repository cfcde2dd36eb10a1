// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/host_tensor.hpp"
#include "tessera/partition/partition.hpp"
#include "tessera/partition/window.hpp"

/// Random decompositions, and how often the awkward ones came up.
namespace tessera::test {

inline constexpr std::array<AxisId, 3> space_in_order{AxisId::depth, AxisId::height, AxisId::width};
inline constexpr std::array<AxisId, 5> cut_in_order{AxisId::sample, AxisId::depth, AxisId::height, AxisId::width,
                                                    AxisId::channel};

/// A whole number in [least, most], all equally likely whatever the size of the case.
inline std::int64_t draw(std::int64_t least, std::int64_t most, std::string const& name) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(least, most + 1)).as(name);
}

inline bool draw_one_in(std::int64_t chances, std::string const& name) {
  return draw(0, chances - 1, name) == chances - 1;
}

/// Whether the channels of a layer's input may be cut in a test.
enum class ChannelCuts { no, yes };

/// Counts whose product is `ranks`: every prime factor goes to the sample axis or to one of the last `space` spatial
/// axes, or to the channels if these may be cut, one time in eight to any; two times in five all to one axis.
inline Counts draw_counts(std::int64_t ranks, std::int64_t space, ChannelCuts channels = ChannelCuts::no) {
  Counts counts;
  std::int64_t const axes = draw_one_in(8, "split along axes of extent 1 too") ? 3 : space;
  auto const pick = [&](std::string const& name) {
    // A spatial axis is twice as likely as samples, and so are the channels.
    std::int64_t const to = draw(0, 2 * axes + (channels == ChannelCuts::yes ? 2 : 0), name);
    if (to > 2 * axes) return AxisId::channel;
    return to == 0 ? AxisId::sample : space_in_order[static_cast<std::size_t>(3 - axes + (to - 1) / 2)];
  };
  if (draw(0, 4, "all ranks on one axis (0, 1)") < 2) {
    counts[pick("the split axis")] = ranks;
    return counts;
  }
  for (std::int64_t factor = 2; ranks > 1; ++factor)
    for (; ranks % factor == 0; ranks /= factor) counts[pick("axis of a factor " + std::to_string(factor))] *= factor;
  return counts;
}

/// n cells in `parts` blocks, balanced or with random boundaries; many blocks in the middle have one cell or none.
inline Blocks draw_blocks(std::int64_t n, std::int64_t parts, bool by_user, std::string const& name) {
  if (!by_user || parts == 1) return Blocks(n, parts);
  std::vector<std::int64_t> boundaries{0, n};
  for (std::int64_t i = 1; i < parts; ++i) {
    std::int64_t const any = draw(0, n, "boundary along " + name), thin = draw(0, 3, "a thin block (0, 1)");
    boundaries.push_back(i > 1 && thin < 2 ? smaller(n, boundaries.back() + thin) : any);
  }
  std::sort(boundaries.begin(), boundaries.end());
  return Blocks::at(std::move(boundaries));
}

/// Blocks for a tensor, half the time with boundaries by the user along the split axes.
inline Partition draw_partition(Shape const& shape, Counts const& counts) {
  bool const by_user = draw(0, 1, "boundaries by the user") == 1;
  std::array<Blocks, axis_count> blocks;
  for (AxisId axis : rank_order)
    blocks[static_cast<std::size_t>(axis)] =
        draw_blocks(shape[axis], counts[axis], by_user, std::string(tessera::name(axis)));
  return Partition(Grid(counts), std::move(blocks));
}

/// A shape whose last `space` spatial axes are in use: one in four of 1 to 20 cells, the others of 1 to 12, in 3-D 1 to
/// 7; 1 to 5 samples and 1 to 9 channels; three times in four at least as many cells along a split axis as it has
/// blocks.
inline Shape draw_shape(Counts const& counts, std::int64_t space) {
  bool const one_each = draw(0, 3, "a cell for every block (1-3)") > 0;
  std::int64_t extent[3] = {1, 1, 1};
  auto const enough = [&](std::int64_t n, AxisId axis) { return one_each && n < counts[axis] ? counts[axis] : n; };
  for (std::int64_t i = 3 - space; i < 3; ++i)
    extent[i] = enough(draw(1, draw_one_in(4, "a long axis") ? 20 : space < 3 ? 12 : 7, "extent"),
                       space_in_order[static_cast<std::size_t>(i)]);
  return {enough(draw(1, 5, "samples"), AxisId::sample), extent[0], extent[1], extent[2],
          enough(draw(1, 9, "channels"), AxisId::channel)};
}

/// Fewer samples and channels, then shorter axes, until there are at most so many cells.
inline void shrink(Shape& shape, std::int64_t most) {
  while (shape.volume() > most) {
    std::int64_t* axis = shape.sample > shape.channel ? &shape.sample : &shape.channel;
    if (*axis == 1)
      for (std::int64_t* other : {&shape.depth, &shape.height, &shape.width})
        if (*other > *axis) axis = other;
    --*axis;
  }
}

/// A whole tensor of pseudo-random numbers in [-1, 1] with few bits, so that float holds them exactly.
inline HostTensor random_tensor(Shape const& shape, std::uint64_t seed) {
  HostTensor tensor(shape);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15u + 0x1234567u;
  for (double& value : tensor.values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<double>(static_cast<std::int64_t>(state >> 44) - (1 << 19)) / (1 << 19);
  }
  return tensor;
}

/// The same in whole numbers in [-most, most]: sums of their products are exact.
inline HostTensor whole_numbers(Shape const& shape, std::uint64_t seed, int most) {
  HostTensor tensor = random_tensor(shape, seed);
  for (double& value : tensor.values) value = static_cast<double>(static_cast<int>(value * (most + 0.999)));
  return tensor;
}

inline std::vector<double> random_values(std::int64_t count, std::uint64_t seed) {
  return random_tensor({1, 1, 1, 1, count}, seed).values;
}

inline std::string text(Blocks const& blocks) {
  std::ostringstream out;
  for (std::int64_t i = 0; i < blocks.parts(); ++i) out << (i == 0 ? "" : ",") << blocks[i].end;
  return out.str();
}

/// The shape, and the ends of the blocks along the split axes.
inline std::string text(Partition const& partition) {
  std::ostringstream out;
  out << partition.shape();
  for (AxisId axis : cut_in_order)
    if (partition.blocks(axis).parts() > 1) out << ' ' << tessera::name(axis) << " to " << text(partition.blocks(axis));
  return out.str();
}

inline std::string text(Window const& w) {
  std::ostringstream out;
  out << "k" << w.kernel << " s" << w.stride << " d" << w.dilation << " p" << w.low << "/" << w.high;
  return out.str();
}

inline bool cuts_channels(Partition const& partition) { return partition.blocks(AxisId::channel).parts() > 1; }

/// What makes a decomposition worth having drawn.
inline int split_axes(Partition const& partition) {
  int split = 0;
  for (AxisId axis : cut_in_order) split += partition.blocks(axis).parts() > 1 ? 1 : 0;
  return split;
}
inline bool has_empty_shard(Partition const& partition) {
  for (std::int64_t rank = 0; rank < partition.grid().size(); ++rank)
    if (partition.owned(rank).empty()) return true;
  return false;
}
inline bool cut_by_user(Partition const& partition) {
  for (AxisId axis : cut_in_order)
    if (partition.blocks(axis).parts() > 1 && !partition.blocks(axis).balanced()) return true;
  return false;
}

/// Whether some block reads a cell that lies two or more blocks away: cell by cell, without the library's formulas.
inline bool is_multi_hop(Blocks const& in, Blocks const& out, Window const& window) {
  for (std::int64_t block = 0; block < out.parts(); ++block)
    for (std::int64_t o = out[block].begin; o < out[block].end; ++o)
      for (std::int64_t tap = 0; tap < window.kernel; ++tap) {
        std::int64_t const cell = o * window.stride - window.low + tap * window.dilation;
        for (std::int64_t other = 0; other < in.parts(); ++other)
          if (in[other].begin <= cell && cell < in[other].end && std::abs(other - block) >= 2) return true;
      }
  return false;
}
inline bool is_multi_hop(Partition const& in, Partition const& out, std::array<Window, 3> const& windows) {
  for (std::size_t i = 0; i < 3; ++i)
    if (is_multi_hop(in.blocks(space_in_order[i]), out.blocks(space_in_order[i]), windows[i])) return true;
  return false;
}

/// Counts what the cases of a property covered; prints a table and fails if a kind of case is rarer than one in ten.
class Coverage {
 public:
  Coverage(std::string title, std::int64_t ranks) : title_(std::move(title)), ranks_(ranks) {}

  void begin_case() { ++cases_; }
  /// `possible` is false where this number of ranks rules the kind out.
  void count(std::string const& kind, bool present, bool possible = true) {
    auto row = std::find_if(rows_.begin(), rows_.end(), [&](Row const& r) { return r.kind == kind; });
    if (row == rows_.end()) row = rows_.insert(rows_.end(), Row{kind, 0, possible});
    row->hits += present ? 1 : 0;
  }
  /// What holds of every layer on several ranks.
  void count_decomposition(Partition const& in, Partition const& out) {
    count("empty shards", has_empty_shard(in) || has_empty_shard(out), ranks_ > 1);
    count("two or more split axes", split_axes(in) >= 2, ranks_ > 3 && ranks_ != 5 && ranks_ != 7);
    count("boundaries by the user", cut_by_user(in), ranks_ > 1);
  }
  void count_windows(Partition const& in, Partition const& out, std::array<Window, 3> const& windows) {
    count_decomposition(in, out);
    count("multi-hop", is_multi_hop(in, out, windows), ranks_ > 2);
    bool even = false, strided = false, dilated = false;
    for (Window const& w : windows) {
      even |= w.kernel % 2 == 0;
      strided |= w.stride > 1;
      dilated |= w.dilation > 1;
    }
    count("even kernel", even);
    count("stride > 1", strided);
    if (dilated || dilation_seen_) {
      dilation_seen_ = true;
      count("dilation > 1", dilated);
    }
  }

  void report(int rank) const {
    if (rank == 0) {
      std::printf("coverage of %s on %d rank(s), %d cases\n", title_.c_str(), static_cast<int>(ranks_), cases_);
      for (Row const& row : rows_)
        if (row.possible)
          std::printf("  %-24s %5.1f %%\n", row.kind.c_str(), 100.0 * row.hits / std::max(cases_, 1));
        else
          std::printf("  %-24s impossible on this number of ranks\n", row.kind.c_str());
      std::fflush(stdout);
    }
    if (cases_ < 100) return;  // too few to judge
    for (Row const& row : rows_)
      if (row.possible)
        CHECK_MESSAGE(10 * row.hits >= cases_,
                      title_ << ": only " << row.hits << " of " << cases_ << " cases have " << row.kind);
  }

 private:
  struct Row {
    std::string kind;
    int hits = 0;
    bool possible = true;
  };
  std::string title_;
  std::int64_t ranks_;
  int cases_ = 0;
  bool dilation_seen_ = false;
  std::vector<Row> rows_;
};

}  // namespace tessera::test
