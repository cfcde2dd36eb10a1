// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/layer/conv.hpp"
#include "tessera/layer/mixing_layer.hpp"
#include "tessera/layer/window_spec.hpp"
#include "tessera/op/conv_block.hpp"

namespace tessera {

/// A transposed convolution layer as a value; see transposed_conv3d.
struct TransposedConvSpec {
  static constexpr char const* kind = "transposed_conv";
  std::int64_t out_channels;
  WindowSpec windows;
  bool bias = true;
  std::int64_t groups = 1;
  std::array<std::int64_t, 3> output_padding{};
  Stationary stationary = Stationary::automatic;

  void set(NoBias) { bias = false; }
  void set(GroupCount count) { groups = count.value; }
  void set(Stationary kept) { stationary = kept; }
  void set(detail::AxisOption<detail::OutputPaddingName> const& cells) {
    for (int i = 0, rank = windows.rank(); i < rank; ++i)
      output_padding[static_cast<std::size_t>(3 - rank + i)] = cells.along(i, rank, "output_padding");
  }
  template <class Option>
  requires detail::TakesOption<WindowSpec, Option>
  void set(Option const& option) { windows.set(option); }

  template <class T, class Space>
  auto op(Shape const& input) const;

  std::string text() const {
    std::string out = "transposed conv " + windows.text();
    if (groups > 1) out += ", " + std::to_string(groups) + " groups";
    return out + ", " + std::to_string(out_channels) + " channels" + (bias ? ", bias" : "");
  }
};

/// A transposed convolution as an operation on boxes and blocks of channels: the adjoint of the convolution from its
/// outputs to its inputs, whose `in` channels are the outputs here.
template <class T, class Space>
class TransposedConvOp {
 public:
  static constexpr bool sums_inputs = true;

  TransposedConvOp(TransposedConvSpec spec, Shape const& input) : spec_(std::move(spec)) {
    Windows windows = spec_.windows.given();
    std::array<std::int64_t, 3> more = spec_.output_padding;
    require(!spec_.windows.is_same() || more == std::array<std::int64_t, 3>{}, "same",
            "chooses the output padding itself; give either same or output_padding, not both");
    if (spec_.windows.is_same())
      for (std::size_t i = static_cast<std::size_t>(3 - spec_.windows.rank()); i < 3; ++i) {
        Window& w = windows.axis[i];
        std::int64_t const total = larger(0, w.span() - w.stride);
        w.low = total / 2;
        w.high = total - w.low;
        more[i] = larger(0, w.stride - w.span());
      }
    spec_.output_padding = more;
    block_.geometry = {windows, spec_.out_channels, input.channel};
    block_.groups = spec_.groups;
    for (std::size_t i = 0; i < 3; ++i) {
      Window const& w = windows.axis[i];
      block_.geometry.extent[i] = (input[spatial_axes[i]] - 1) * w.stride - w.low - w.high + w.span() + more[i];
    }
  }

  void check(std::string const& who, Shape const& input) const {
    detail::check_groups(who, spec_.groups, input.channel, spec_.out_channels);
    for (std::size_t i = 0; i < 3; ++i) {
      Window const& w = windows().axis[i];
      std::int64_t const more = spec_.output_padding[i];
      auto const axis = name(spatial_axes[i]);
      require(w.kernel >= 1 && w.stride >= 1 && w.dilation >= 1, who,
              "kernel, stride and dilation must be at least 1, but along ", axis, " they are ", w.kernel, ", ",
              w.stride, ", ", w.dilation);
      require(0 <= more && (more == 0 || more < larger(w.stride, w.dilation)), who,
              "the output padding must be less than the stride or the dilation, but along ", axis, " it is ", more,
              " with stride ", w.stride, " and dilation ", w.dilation);
      require(outputs(i) >= 1, who, "must make at least one cell, but along ", axis, " its padding leaves ", outputs(i),
              "; use less padding or more output padding");
    }
  }
  Reaches mixing_reaches(Shape const&) const {
    return {transposed_reach(windows().axis[0], outputs(0)), transposed_reach(windows().axis[1], outputs(1)),
            transposed_reach(windows().axis[2], outputs(2))};
  }
  Padding padding() const { return Padding::zeros; }
  bool sums_bias() const { return false; }
  std::int64_t channels(std::int64_t) const { return spec_.out_channels; }
  ChannelRoles roles(std::string const& who, Partition const& input, Partition const& output) const {
    return {who, input, output, spec_.stationary, spec_.groups, Grouped::inputs_stay};
  }

  std::vector<ParameterSpec> parameters(Shape const& input) const {
    Window const* w = windows().axis;
    std::int64_t const out = block_.group_inputs(), taps = windows().taps();
    std::vector<ParameterSpec> list{{"weight",
                                     {input.channel, out, w[0].kernel, w[1].kernel, w[2].kernel},
                                     {2, 3, 4, 1, 0},
                                     Initial::glorot(out * taps, input.channel * taps),
                                     detail::weight_file_shape(spec_.windows.rank(), input.channel, out, windows())}};
    if (spec_.bias) list.push_back({"bias", {spec_.out_channels}, {0}, Initial::value(0.0)});
    return list;
  }
  std::vector<std::vector<Interval>> shards(Interval reads, Interval makes, Interval own_outputs) const {
    Window const* w = windows().axis;
    Interval const out = spec_.groups == 1 ? makes : Interval{0, block_.group_inputs()};
    return {{reads, out, {0, w[0].kernel}, {0, w[1].kernel}, {0, w[2].kernel}}, {own_outputs}};
  }
  void set_channels(Interval reads, Interval makes) {
    block_.in = makes;
    block_.out = reads;
  }

  void forward(ForwardPass<T, Space> const& p) {
    bool const biased = p.parameters[1] != nullptr;
    if (biased) op::fill_bias(p.space, p.y, p.box, p.parameters[1], block_.in.begin);
    op::conv_backward_data(p.space, block_, p.x, p.parameters[0], p.y, p.box,
                           biased ? Accumulate::add : Accumulate::write, workspace_, PollPass{p.pass});
  }
  void backward(BackwardPass<T, Space> const& p) {
    op::conv_forward(p.space, block_, p.dy, p.parameters[0], static_cast<T const*>(nullptr), p.dx, p.box, workspace_,
                     PollPass{p.pass}, p.accumulate);
  }
  void backward_parameters(ParameterPass<T, Space> const& p) {
    op::conv_backward_filter(p.space, block_, p.dy, p.x, p.box, p.gradients[0], static_cast<T*>(nullptr), workspace_,
                             PollPass{p.pass});
  }

  std::string name() const { return spec_.text(); }
  double flops(Shape const& input, Shape const&) const {
    return 2.0 * static_cast<double>(input.volume()) * static_cast<double>(windows().taps() * block_.group_inputs());
  }

 private:
  static std::string_view name(AxisId axis) { return tessera::name(axis); }
  Windows const& windows() const { return block_.geometry.windows; }
  std::int64_t outputs(std::size_t i) const { return block_.geometry.extent[i]; }

  TransposedConvSpec spec_;
  op::ConvBlock block_;
  op::Workspace<T> workspace_;
};

template <class T, class Space>
auto TransposedConvSpec::op(Shape const& input) const {
  return TransposedConvOp<T, Space>(*this, input);
}

/// A transposed convolution (also called deconvolution): y[i * stride - low + dilation * j, co] += w[ci, co, j] x[i,
/// ci] over inputs i, taps j and the channels ci of co's group, and the bias.
///
/// Options, in any order: kernel(k...), stride(s...), dilation(d...), padding(p...), padding_low, padding_high,
/// output_padding(cells...), same (makes n * stride cells), groups(g), no_bias; where channels are cut, Stationary::x,
/// ::y or ::w.
/// Shape: (N, D, H, W, Cin) -> (N, D', H', W', Cout), D' = (D - 1) stride - low - high + dilation (k - 1) + 1 + output
///   padding; weights (Cin, Cout / g, k...) as in PyTorch.
/// Moves: the halo of x forward (an odd kernel has one too), of dy backward; where channels are cut, input channels or
///   partial outputs too (see ChannelRoles).
/// Fails: if the output padding is not less than the stride or the dilation, groups do not divide the channels, or
///   nothing is left to make.
template <std::int64_t Kernel = 1, class... Options>
TransposedConvSpec transposed_conv3d(std::int64_t out_channels, Options const&... options) {
  return detail::with_options(TransposedConvSpec{out_channels, detail::window_spec<3, Kernel>()}, options...);
}
template <std::int64_t Kernel = 1, class... Options>
TransposedConvSpec transposed_conv2d(std::int64_t out_channels, Options const&... options) {
  return detail::with_options(TransposedConvSpec{out_channels, detail::window_spec<2, Kernel>()}, options...);
}
template <std::int64_t Kernel = 1, class... Options>
TransposedConvSpec transposed_conv1d(std::int64_t out_channels, Options const&... options) {
  return detail::with_options(TransposedConvSpec{out_channels, detail::window_spec<1, Kernel>()}, options...);
}

}  // namespace tessera
