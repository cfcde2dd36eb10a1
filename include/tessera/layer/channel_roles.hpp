// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/partition/partition.hpp"

namespace tessera {

/// What stays where it is when the channels are cut and a layer mixes them.
enum class Stationary {
  automatic,  ///< what moves least
  x,          ///< each rank keeps its input channels, and partial outputs are summed at their owners
  y,          ///< each rank keeps its output channels, and all input channels come to it
  w           ///< weights are cut both ways: some of both moves
};

/// The side of a grouped operation whose channels stay where they are: the other one's follow from whole groups.
enum class Grouped { outputs_stay, inputs_stay };

/// Which channels each block of the channel axis computes with, where every output mixes inputs: it reads input
/// channels `reads` and makes output channels `makes` of them. The products of a layer, (input, output) channels of one
/// group, are shared out among the blocks without overlap.
///
/// Source: Dryden et al., "Channel and filter parallelism for large-scale CNN training", SC'19.
class ChannelRoles {
 public:
  ChannelRoles(std::string const& who, Partition const& input, Partition const& output, Stationary stationary,
               std::int64_t groups, Grouped grouped)
      : x_(input.blocks(AxisId::channel)), y_(output.blocks(AxisId::channel)) {
    if (groups > 1) {
      Stationary const kept = grouped == Grouped::outputs_stay ? Stationary::y : Stationary::x;
      require(x_.parts() == 1 || stationary == Stationary::automatic || stationary == kept, who, "with groups, its ",
              kept == Stationary::y ? "outputs" : "inputs", " stay where they are; leave the choice out");
      std::int64_t const ins = x_.extent() / groups, outs = y_.extent() / groups;
      for (std::int64_t i = 0; i < x_.parts(); ++i) {
        bool const by_outputs = kept == Stationary::y;
        Interval const own = by_outputs ? y_[i] : x_[i];
        reads_.push_back(by_outputs ? whole_groups(own, outs, ins) : own);
        makes_.push_back(by_outputs ? own : whole_groups(own, ins, outs));
      }
    } else {
      share(filter_blocks(who, input.shape(), output.shape(), stationary));
    }
    for (std::size_t i = 0; i < reads_.size(); ++i)  // who has nothing to make of it reads nothing, and the reverse
      if (reads_[i].empty() || makes_[i].empty()) reads_[i] = makes_[i] = {};
    for (std::int64_t i = 0; i < x_.parts(); ++i) {
      moves_inputs_ = moves_inputs_ || !(reads(i) == x_[i]);
      moves_outputs_ = moves_outputs_ || !(makes(i) == y_[i]);
    }
  }

  /// Whether the channels are cut at all.
  bool cut() const { return x_.parts() > 1; }
  /// Whether blocks read inputs that others own: what they give these inputs' gradient is summed at the owners.
  bool moves_inputs() const { return moves_inputs_; }
  /// Whether blocks make parts of outputs that others own: these are summed there.
  bool moves_outputs() const { return moves_outputs_; }

  Interval reads(std::int64_t block) const { return reads_[static_cast<std::size_t>(block)]; }
  Interval makes(std::int64_t block) const { return makes_[static_cast<std::size_t>(block)]; }
  std::vector<Interval> const& all_reads() const { return reads_; }
  std::vector<Interval> const& all_makes() const { return makes_; }

 private:
  /// The other side's channels of the groups that `own` meets.
  static Interval whole_groups(Interval own, std::int64_t each, std::int64_t other) {
    if (own.empty()) return {};
    return {own.begin / each * other, ceil_div(own.end, each) * other};
  }

  /// Shares the products out with the output channels in `filters` parts and the input channels in as many as remain.
  void share(std::int64_t filters) {
    std::int64_t const parts = x_.parts(), inputs = parts / filters;
    reads_.clear();
    makes_.clear();
    for (std::int64_t i = 0; i < parts; ++i) {
      makes_.push_back(inputs == 1 ? y_[i] : block_range(y_.extent(), filters, i / inputs));
      reads_.push_back(filters == 1 ? x_[i] : block_range(x_.extent(), inputs, i % inputs));
    }
  }

  /// The number of cells that do not lie where they are read, or belong, for one sample.
  double moved(Shape const& in, Shape const& out) const {
    double cells = 0.0;
    for (std::int64_t i = 0; i < x_.parts(); ++i) {
      auto const elsewhere = [](Interval part, Interval own) {
        return static_cast<double>(part.size() - intersect(part, own).size());
      };
      cells += elsewhere(reads(i), x_[i]) * static_cast<double>(in.depth * in.height * in.width) +
               elsewhere(makes(i), y_[i]) * static_cast<double>(out.depth * out.height * out.width);
    }
    return cells;
  }

  /// Into how many parts the output channels are cut.
  std::int64_t filter_blocks(std::string const& who, Shape const& in, Shape const& out, Stationary stationary) {
    std::int64_t const parts = x_.parts();
    if (parts == 1 || stationary == Stationary::x) return 1;
    if (stationary == Stationary::y) return parts;
    std::int64_t best = 0;
    double least = 0.0;
    for (std::int64_t filters = parts; filters >= 1; --filters) {
      if (parts % filters != 0) continue;
      if (stationary == Stationary::w && (filters == 1 || filters == parts)) continue;
      share(filters);
      double const cells = moved(in, out);
      if (best == 0 || cells < least) {
        best = filters;
        least = cells;
      }
    }
    require(best != 0, who, "stationary weights need a number of channel blocks that is a product, but it is ", parts,
            "; keep x or y stationary");
    return best;
  }

  Blocks x_, y_;
  std::vector<Interval> reads_, makes_;
  bool moves_inputs_ = false, moves_outputs_ = false;
};

}  // namespace tessera
