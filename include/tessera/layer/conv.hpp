// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/layer/mixing_layer.hpp"
#include "tessera/layer/window_spec.hpp"
#include "tessera/op/conv_block.hpp"

namespace tessera {

/// How many groups the channels form: `groups(4)`. Each output channel reads the inputs of its own group alone.
struct GroupCount {
  std::int64_t value;
};
constexpr GroupCount groups(std::int64_t count) { return {count}; }

/// A convolution layer as a value; see conv3d.
struct ConvSpec {
  static constexpr char const* kind = "conv";
  std::int64_t out_channels;
  WindowSpec windows;
  bool bias = true;
  std::int64_t groups = 1;
  Padding padding = Padding::zeros;
  Stationary stationary = Stationary::automatic;

  void set(NoBias) { bias = false; }
  void set(GroupCount count) { groups = count.value; }
  void set(Padding mode) { padding = mode; }
  void set(Stationary kept) { stationary = kept; }
  template <class Option>
  requires detail::TakesOption<WindowSpec, Option>
  void set(Option const& option) { windows.set(option); }

  template <class T, class Space>
  auto op(Shape const& input) const;

  std::string text() const {
    std::string out = std::string(kind) + " " + windows.text();
    if (padding != Padding::zeros) out += " " + std::string(tessera::name(padding));
    if (groups > 1) out += ", " + std::to_string(groups) + " groups";
    return out + ", " + std::to_string(out_channels) + " channels" + (bias ? ", bias" : "");
  }
};

namespace detail {

/// Fails: if groups do not divide both channel counts.
inline void check_groups(std::string const& who, std::int64_t groups, std::int64_t in, std::int64_t out) {
  require(out >= 1, who, "the number of output channels must be at least 1, it is ", out);
  require(groups >= 1 && in % groups == 0 && out % groups == 0, who,
          "the groups must divide the input and the output channels, but ", groups, " groups were asked of ", in,
          " and ", out);
}

/// Fails: if a mode cannot supply the padding. Judged by the global extent.
inline void check_padding(std::string const& who, Padding mode, Windows const& windows, Shape const& input) {
  if (mode != Padding::reflect) return;
  for (AxisId axis : spatial_axes)
    require(windows[axis].low < input[axis] && windows[axis].high < input[axis], who,
            "reflect padding must be less than the extent, but along ", name(axis), " it is ", windows[axis].low,
            " and ", windows[axis].high, " of ", input[axis], "; use less padding or another mode");
}

}  // namespace detail

/// A convolution as an operation on boxes and blocks of channels (see op/conv_block.hpp).
template <class T, class Space>
class ConvOp {
 public:
  static constexpr bool sums_inputs = false;

  ConvOp(ConvSpec spec, Shape const& input) : spec_(std::move(spec)) {
    block_.geometry = {spec_.windows.on(input), input.channel, spec_.out_channels};
    block_.groups = spec_.groups;
    if (spec_.padding == Padding::zeros)
      for (int i = 0; i < 3; ++i) block_.geometry.extent[i] = input[spatial_axes[static_cast<std::size_t>(i)]];
  }

  void check(std::string const& who, Shape const& input) const {
    detail::check_groups(who, spec_.groups, input.channel, spec_.out_channels);
    for (AxisId axis : spatial_axes) checked_outputs(windows()[axis], input[axis], who, tessera::name(axis));
    detail::check_padding(who, spec_.padding, windows(), input);
  }
  Reaches mixing_reaches(Shape const& input) const { return reaches_of(windows(), Border::zeros, input); }
  Padding padding() const { return spec_.padding; }
  bool sums_bias() const { return block_.passes_outputs(); }
  std::int64_t channels(std::int64_t) const { return spec_.out_channels; }
  ChannelRoles roles(std::string const& who, Partition const& input, Partition const& output) const {
    return {who, input, output, spec_.stationary, spec_.groups, Grouped::outputs_stay};
  }

  std::vector<ParameterSpec> parameters(Shape const&) const {
    Window const* w = windows().axis;
    std::int64_t const in = block_.group_inputs(), out = spec_.out_channels, taps = windows().taps();
    std::vector<ParameterSpec> list{{"weight",
                                     {out, in, w[0].kernel, w[1].kernel, w[2].kernel},
                                     {2, 3, 4, 1, 0},
                                     Initial::glorot(in * taps, out * taps),
                                     detail::weight_file_shape(spec_.windows.rank(), out, in, windows())}};
    if (spec_.bias) list.push_back({"bias", {out}, {0}, Initial::value(0.0)});
    return list;
  }
  std::vector<std::vector<Interval>> shards(Interval reads, Interval makes, Interval own_outputs) const {
    Window const* w = windows().axis;
    Interval const in = spec_.groups == 1 ? reads : Interval{0, block_.group_inputs()};
    return {{makes, in, {0, w[0].kernel}, {0, w[1].kernel}, {0, w[2].kernel}}, {own_outputs}};
  }
  void set_channels(Interval reads, Interval makes) {
    block_.in = reads;
    block_.out = makes;
  }

  void forward(ForwardPass<T, Space> const& p) {
    op::conv_forward(p.space, block_, p.x, p.parameters[0], p.parameters[1], p.y, p.box, workspace_, PollPass{p.pass});
  }
  void backward(BackwardPass<T, Space> const& p) {
    op::conv_backward_data(p.space, block_, p.dy, p.parameters[0], p.dx, p.box, p.accumulate, workspace_,
                           PollPass{p.pass});
  }
  void backward_parameters(ParameterPass<T, Space> const& p) {
    op::conv_backward_filter(p.space, block_, p.x, p.dy, p.box, p.gradients[0], p.gradients[1], workspace_,
                             PollPass{p.pass});
  }

  std::string name() const { return spec_.text(); }
  double flops(Shape const&, Shape const& output) const {
    return 2.0 * static_cast<double>(output.volume()) * static_cast<double>(windows().taps() * block_.group_inputs());
  }

 private:
  Windows const& windows() const { return block_.geometry.windows; }

  ConvSpec spec_;
  op::ConvBlock block_;
  op::Workspace<T> workspace_;
};

template <class T, class Space>
auto ConvSpec::op(Shape const& input) const {
  return ConvOp<T, Space>(*this, input);
}

/// A convolution (cross-correlation): y[o, co] = bias[co] + sum over taps j and the channels ci of co's group of
/// w[co, ci, j] x[o * stride - low + dilation * j, ci]; beyond the border x is what the padding mode says.
///
/// Options, in any order: kernel(k...), stride(s...), dilation(d...), padding(p...), padding_low, padding_high (may be
/// negative: cropping), same, Padding::circular, ::reflect or ::replicate, groups(g), no_bias; where channels are cut,
/// Stationary::x, ::y or ::w. Padding defaults to 0 cells of zeros.
/// Shape: (N, D, H, W, Cin) -> (N, D', H', W', Cout), D' = floor((D + low + high - dilation (k - 1) - 1) / stride) + 1;
///   weights (Cout, Cin / g, k...) as in PyTorch.
/// Moves: the halo of x forward, of dy backward (of dx in the other padding modes); where channels are cut, input
///   channels or partial outputs too (see ChannelRoles).
/// Fails: if the kernel does not fit into the padded input, groups do not divide the channels, or reflect padding is as
///   wide as the extent.
template <std::int64_t Kernel = 1, class... Options>
ConvSpec conv3d(std::int64_t out_channels, Options const&... options) {
  return detail::with_options(ConvSpec{out_channels, detail::window_spec<3, Kernel>()}, options...);
}
template <std::int64_t Kernel = 1, class... Options>
ConvSpec conv2d(std::int64_t out_channels, Options const&... options) {
  return detail::with_options(ConvSpec{out_channels, detail::window_spec<2, Kernel>()}, options...);
}
template <std::int64_t Kernel = 1, class... Options>
ConvSpec conv1d(std::int64_t out_channels, Options const&... options) {
  return detail::with_options(ConvSpec{out_channels, detail::window_spec<1, Kernel>()}, options...);
}

}  // namespace tessera
