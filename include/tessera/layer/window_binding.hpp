// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "tessera/exchange/plan.hpp"
#include "tessera/op/geometry.hpp"
#include "tessera/partition/partition.hpp"
#include "tessera/partition/reach.hpp"

namespace tessera {

/// What an operation may assume of cells beyond the global border: that they read as zeros, or nothing at all.
enum class Border { zeros, clipped };

/// The reach of windows over an input of this shape.
inline Reaches reaches_of(Windows const& windows, Border border, Shape const& input) {
  Reaches reaches;
  for (std::size_t i = 0; i < 3; ++i) {
    std::int64_t const n = input[spatial_axes[i]];
    reaches[i] = reach_of(windows.axis[i], n);
    if (border == Border::clipped) reaches[i] = clipped(reaches[i], n);
  }
  return reaches;
}

/// Whether one box around what is owned and what is needed would waste memory: both are small, but far apart.
inline bool lie_apart(Box const& owned, Box const& needed) {
  return !owned.empty() && !needed.empty() &&
         hull(owned, needed).volume() > 2 * larger(owned.volume(), needed.volume());
}

/// The boxes and plans of an operation whose outputs read windows of its input: everything that does not depend on
/// element type, space or operation.
class WindowBinding {
 public:
  /// All that depends on the number of samples.
  struct Bound {
    ExchangePlan x_plan, dy_plan, notes_plan;
    bool x_apart = false, dy_apart = false;  ///< needed cells lie in a buffer of the layer's own
    bool overlap = false;                    ///< whether the halo of x hides behind the interior
    Box interior;                            ///< outputs that read owned inputs alone
    Box notes_held;
  };

  /// For one rank of any grid, without MPI. `out_channels` is the whole extent after an operation that mixes channels;
  /// others pass channels through.
  WindowBinding(int rank, Reaches reaches, bool mixes_channels, std::int64_t out_channels)
      : rank_(rank), reaches_(std::move(reaches)), mixes_channels_(mixes_channels), out_channels_(out_channels) {}

  Partition output(Partition const& input) const { return input.scaled_to(output_shape(input.shape())); }

  Box needs_input(Partition const& input) const {
    return unless_apart(input.owned(rank_), input_region(input).box(rank_));
  }
  Box needs_error(Partition const& input) const {
    return unless_apart(output(input).owned(rank_), error_region(input).box(rank_));
  }

  ExchangePlan input_plan(Partition const& input, Placement placement) const {
    return make_plan(input, input_region(input), rank_, Padding::zeros, placement);
  }
  ExchangePlan error_plan(Partition const& input, Placement placement) const {
    return make_plan(output(input), error_region(input), rank_, Padding::zeros, placement);
  }

  /// The plans for this number of samples, made once.
  Bound& bind(Partition const& input) {
    auto const [place, is_new] = bound_.try_emplace(input.shape().sample);
    if (is_new) place->second = make(input);
    return place->second;
  }
  void forget() { bound_.clear(); }

 private:
  Shape output_shape(Shape const& in) const {
    return {in.sample, reaches_[0].outputs, reaches_[1].outputs, reaches_[2].outputs,
            mixes_channels_ ? out_channels_ : in.channel};
  }

  /// Inputs that every rank's outputs read.
  Region input_region(Partition const& input) const {
    Region needs(output(input));
    for (std::size_t i = 0; i < 3; ++i) needs.map(spatial_axes[i], reaches_[i].required);
    if (mixes_channels_) needs.map(AxisId::channel, [&](Interval) { return Interval{0, input.shape().channel}; });
    return needs;
  }

  /// Outputs that read every rank's inputs.
  Region error_region(Partition const& input) const {
    Region needs(input);
    for (std::size_t i = 0; i < 3; ++i) needs.map(spatial_axes[i], reaches_[i].touch);
    if (mixes_channels_) needs.map(AxisId::channel, [&](Interval) { return Interval{0, out_channels_}; });
    return needs;
  }

  static Box unless_apart(Box const& owned, Box const& needed) { return lie_apart(owned, needed) ? Box{} : needed; }

  Bound make(Partition const& input) const {
    Box const owned = input.owned(rank_), out = output(input).owned(rank_);
    Box const need = input_region(input).box(rank_), error = error_region(input).box(rank_);
    Bound bound;
    bound.x_apart = lie_apart(owned, need);
    bound.dy_apart = lie_apart(out, error);
    bound.x_plan = input_plan(input, bound.x_apart ? Placement::elsewhere : Placement::around_owned);
    bound.dy_plan = error_plan(input, bound.dy_apart ? Placement::elsewhere : Placement::around_owned);
    bound.notes_held = hull(out, error);
    bound.notes_plan = error_plan(input, Placement::around_owned);
    bound.interior = out;
    for (std::size_t i = 0; i < 3; ++i)
      bound.interior[spatial_axes[i]] = reaches_[i].interior(out[spatial_axes[i]], owned[spatial_axes[i]]);
    // Thin rims may cost more than they hide: overlap only what is mostly interior.
    bound.overlap =
        bound.x_plan.messages_received() > 0 && !bound.x_apart && 2 * bound.interior.volume() > out.volume();
    return bound;
  }

  int rank_;
  Reaches reaches_;
  bool mixes_channels_;
  std::int64_t out_channels_;
  std::map<std::int64_t, Bound> bound_;
};

}  // namespace tessera
