// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "tessera/op/conv.hpp"
#include "tessera/op/depthwise.hpp"

namespace tessera::op {

/// The part of a convolution that one rank computes: input channels `in` against output channels `out`. With groups,
/// an output channel meets the inputs of its own group alone, and `in` consists of whole groups. Weights are those of
/// the part, [taps][input channels, of a group if there are several][out].
struct ConvBlock {
  ConvGeometry geometry;  ///< windows, extents, and the channels of the whole convolution
  std::int64_t groups = 1;
  Interval in;
  Interval out;

  std::int64_t group_inputs() const { return geometry.in_channels / groups; }
  std::int64_t group_outputs() const { return geometry.out_channels / groups; }
  /// Whether each channel has a filter of its own.
  bool depthwise() const { return groups > 1 && group_inputs() == 1 && group_outputs() == 1; }
  /// Whether the filter gradient passes over all of `out` and so can sum the bias gradient on the way.
  bool passes_outputs() const { return !in.empty() && !depthwise(); }

  /// Calls visit(geometry of the group's part, its input channels, its output channels) for each group that `out`
  /// meets.
  template <class Visit>
  void for_each_group(Visit visit) const {
    if (in.empty() || out.empty()) return;
    ConvGeometry part = geometry;
    part.weight_step = out.size();
    std::int64_t const outs = group_outputs(), ins = group_inputs();
    for (std::int64_t g = out.begin / outs; g * outs < out.end; ++g) {
      Interval const to = intersect(out, {g * outs, (g + 1) * outs});
      Interval const from = groups == 1 ? in : Interval{g * ins, (g + 1) * ins};
      part.in_channels = from.size();
      part.out_channels = to.size();
      visit(static_cast<ConvGeometry const&>(part), from, to);
    }
  }
};

/// The channels of a box that lie in `part`, counted from its first.
inline Box from_channel(Box box, Interval part) {
  box.axis[4] = shifted(intersect(box.axis[4], part), -part.begin);
  return box;
}

/// The same cells with samples and width changed over. Kernels run along the width, and behind a flatten there are many
/// samples of one position each.
template <class T>
Tile<T> with_samples_along_width(Tile<T> tile) {
  std::swap(tile.origin[0], tile.origin[3]);
  std::swap(tile.stride[0], tile.stride[3]);
  return tile;
}
inline Box with_samples_along_width(Box box) {
  std::swap(box.axis[0], box.axis[3]);
  return box;
}

/// target[c] = values[c - first], or 0 if there are none.
template <class T>
struct FillBias {
  Tile<T> target;
  T const* values;
  std::int64_t first;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T* const to = target.position(at[0], at[1], at[2], at[3]) + channels.begin;
    std::int64_t const count = channels.size(), skip = channels.begin - first;
    if (values == nullptr) {
      TESSERA_INDEPENDENT
      for (std::int64_t c = 0; c < count; ++c) to[c] = T(0);
    } else {
      TESSERA_INDEPENDENT
      for (std::int64_t c = 0; c < count; ++c) to[c] = values[skip + c];
    }
  }
};

/// target = the bias of each channel, whose values begin with channel `first`; 0 without one.
template <class T, class Space>
void fill_bias(Space const& space, Tile<T> const& target, Box const& box, T const* values, std::int64_t first) {
  for_each_position("tessera::fill_bias", space, box, FillBias<T>{target, values, first});
}

/// As conv_forward, for a rank's part; the bias is that of `out`.
template <class Space, class T, Poll Polling>
void conv_forward(Space const& space, ConvBlock const& block, Tile<T const> const& x, T const* weights, T const* bias,
                  Tile<T> const& y, Box const& box, Workspace<T>& workspace, Polling const& poll,
                  Accumulate accumulate = Accumulate::write) {
  if (block.in.empty()) {
    if (accumulate == Accumulate::write) fill_bias(space, y, box, bias, block.out.begin);
    return;
  }
  if (block.depthwise()) {
    ConvGeometry geometry = block.geometry;
    geometry.weight_step = block.out.size();
    for_each_position("tessera::conv_forward", space, box,
                      DepthwiseForward<T>{geometry, block.out.begin, x, weights, bias, y, accumulate});
    return poll();
  }
  block.for_each_group([&](ConvGeometry const& part, Interval from, Interval to) {
    std::int64_t const skip = to.begin - block.out.begin;
    conv_forward(space, part, from_channel(x, from.begin), weights + skip, bias == nullptr ? nullptr : bias + skip,
                 from_channel(y, to.begin), from_channel(box, to), workspace, poll, accumulate);
  });
}

/// As conv_backward_data, for a rank's part: what its output channels give its input channels.
template <class Space, class T, Poll Polling>
void conv_backward_data(Space const& space, ConvBlock const& block, Tile<T const> const& dy, T const* weights,
                        Tile<T> const& dx, Box const& box, Accumulate accumulate, Workspace<T>& workspace,
                        Polling const& poll) {
  if (block.out.empty()) {
    if (accumulate == Accumulate::write) fill(space, dx, box, T(0));
    return;
  }
  if (block.depthwise()) {
    ConvGeometry geometry = block.geometry;
    geometry.weight_step = block.out.size();
    for_each_position("tessera::conv_backward_data", space, box,
                      DepthwiseBackwardData<T>{geometry, block.out.begin, dy, weights, dx, accumulate});
    return poll();
  }
  block.for_each_group([&](ConvGeometry const& part, Interval from, Interval to) {
    conv_backward_data(space, part, from_channel(dy, to.begin), weights + (to.begin - block.out.begin),
                       from_channel(dx, from.begin), from_channel(box, from), accumulate, workspace, poll);
  });
}

/// As conv_backward_filter, for a rank's part; the bias gradient is that of `out`, and null unless passes_outputs().
template <class Space, class T, Poll Polling>
void conv_backward_filter(Space const& space, ConvBlock const& block, Tile<T const> const& x, Tile<T const> const& dy,
                          Box const& box, T* dw, T* db, Workspace<T>& workspace, Polling const& poll) {
  if (box.empty()) return;
  if (block.in.empty()) return;
  if (block.depthwise()) {
    ConvGeometry geometry = block.geometry;
    geometry.weight_step = block.out.size();
    run("tessera::conv_backward_filter", space, geometry.windows.taps(),
        DepthwiseBackwardFilter<T>{geometry, block.out.begin, x, dy, box, dw}, box.volume());
    return poll();
  }
  block.for_each_group([&](ConvGeometry const& part, Interval from, Interval to) {
    std::int64_t const skip = to.begin - block.out.begin;
    conv_backward_filter(space, part, from_channel(x, from.begin), from_channel(dy, to.begin), from_channel(box, to),
                         dw + skip, db == nullptr ? nullptr : db + skip, workspace, poll);
  });
}

}  // namespace tessera::op
