// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tessera/exchange/plan.hpp"
#include "tessera/layer/channel_roles.hpp"
#include "tessera/layer/window_binding.hpp"
#include "tessera/partition/partition.hpp"
#include "tessera/partition/reach.hpp"

namespace tessera {

/// The boxes and plans of an operation that reads windows and mixes channels. The gradient of its input takes one of
/// two ways: it is gathered, from all outputs that read the rank's inputs; or, where what lies beyond the border is
/// made of inputs, or inputs are read by ranks that do not own them, it is computed on all that the rank read and
/// folded back, by the adjoint of the exchange that brought it.
class MixingBinding {
 public:
  /// All that depends on the number of samples.
  struct Bound {
    ExchangePlan x_plan;                     ///< brings what the rank reads
    ExchangePlan y_plan;                     ///< backwards: brings partial outputs to their owners
    ExchangePlan dy_plan;                    ///< brings the error that the backward pass reads
    bool x_apart = false, dy_apart = false;  ///< it lies in a buffer of the layer's own
    bool overlap = false;                    ///< whether the halo of x hides behind the interior
    Box interior;                            ///< outputs that read owned inputs alone
    Box made;                                ///< the outputs that the rank computes, or computes parts of
    Box dy_held;                             ///< what the buffer of the error spans; zeros beyond dy_plan.needs
  };

  MixingBinding(int rank, Reaches reaches, std::int64_t out_channels, Padding padding, ChannelRoles roles)
      : rank_(rank),
        reaches_(std::move(reaches)),
        out_channels_(out_channels),
        padding_(padding),
        roles_(std::move(roles)) {}

  ChannelRoles const& roles() const { return roles_; }
  bool folds() const { return padding_ != Padding::zeros || roles_.moves_inputs(); }

  static Partition output(Partition const& input, Reaches const& reaches, std::int64_t channels) {
    return input.scaled_to(
        {input.shape().sample, reaches[0].outputs, reaches[1].outputs, reaches[2].outputs, channels});
  }
  Partition output(Partition const& input) const { return output(input, reaches_, out_channels_); }

  /// What the rank's input tensor must hold beside the owned box.
  Box needs_input(Partition const& input) const {
    Box const need = input_region(input).box(rank_);
    return x_apart(input, need) ? Box{} : need;
  }
  Box needs_error(Partition const& input) const {
    if (folds() || roles_.moves_outputs()) return {};
    Box const need = error_region(input).box(rank_);
    return lie_apart(output(input).owned(rank_), need) ? Box{} : need;
  }

  /// The plans for this number of samples, made once.
  Bound& bind(Partition const& input) {
    auto const [place, is_new] = bound_.try_emplace(input.shape().sample);
    if (is_new) place->second = make(input);
    return place->second;
  }
  void forget() { bound_.clear(); }

  Bound make(Partition const& input) const {
    Partition const out = output(input);
    Region const made = output_region(out), reads = input_region(input);
    Bound bound;
    bound.made = made.box(rank_);
    bound.x_apart = x_apart(input, reads.box(rank_));
    bound.x_plan = make_plan(input, reads, rank_, padding_, placement(bound.x_apart));
    if (roles_.moves_outputs()) bound.y_plan = make_plan(out, made, rank_);
    Region error = folds() ? made : error_region(input);
    if (!folds() && roles_.moves_outputs()) error = hulls(error, made);
    bound.dy_held = error.box(rank_);
    bound.dy_apart = folds() || roles_.moves_outputs() || lie_apart(out.owned(rank_), bound.dy_held);
    bound.dy_plan = make_plan(out, error, rank_, Padding::zeros, placement(bound.dy_apart));
    if (folds() && !bound.made.empty())
      for (std::size_t i = 0; i < 3; ++i) {
        AxisId const axis = spatial_axes[i];
        bound.dy_held[axis] = hull(bound.dy_held[axis], reaches_[i].touch(bound.x_plan.needs[axis]));
      }
    bound.interior = bound.made;
    for (std::size_t i = 0; i < 3; ++i) {
      AxisId const axis = spatial_axes[i];
      bound.interior[axis] = reaches_[i].interior(bound.made[axis], input.owned(rank_)[axis]);
    }
    // Thin rims may cost more than they hide: overlap only what is mostly interior.
    bound.overlap =
        bound.x_plan.messages_received() > 0 && !bound.x_apart && 2 * bound.interior.volume() > bound.made.volume();
    return bound;
  }

 private:
  static Placement placement(bool apart) { return apart ? Placement::elsewhere : Placement::around_owned; }

  bool x_apart(Partition const& input, Box const& need) const {
    return padding_ != Padding::zeros || roles_.moves_inputs() || lie_apart(input.owned(rank_), need);
  }

  /// Inputs that every rank reads.
  Region input_region(Partition const& input) const {
    Region needs(output(input));
    for (std::size_t i = 0; i < 3; ++i) needs.map(spatial_axes[i], reaches_[i].required);
    return needs.set(AxisId::channel, roles_.all_reads());
  }
  /// Outputs that every rank computes.
  Region output_region(Partition const& out) const { return Region(out).set(AxisId::channel, roles_.all_makes()); }
  /// Outputs that read every rank's inputs.
  Region error_region(Partition const& input) const {
    Region needs(input);
    for (std::size_t i = 0; i < 3; ++i) needs.map(spatial_axes[i], reaches_[i].touch);
    return needs.set(AxisId::channel, roles_.all_makes());
  }
  static Region hulls(Region a, Region const& b) {
    for (AxisId axis : spatial_axes) {
      std::vector<Interval> both;
      for (std::size_t i = 0; i < a.intervals(axis).size(); ++i)
        both.push_back(hull(a.intervals(axis)[i], b.intervals(axis)[i]));
      a.set(axis, std::move(both));
    }
    return a;
  }

  int rank_;
  Reaches reaches_;
  std::int64_t out_channels_;
  Padding padding_;
  ChannelRoles roles_;
  std::map<std::int64_t, Bound> bound_;
};

}  // namespace tessera
