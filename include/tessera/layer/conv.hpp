// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/layer/window_layer.hpp"
#include "tessera/layer/window_spec.hpp"
#include "tessera/op/conv.hpp"

namespace tessera {

/// A convolution as an operation on boxes (see op/conv.hpp).
template <class T, class Space>
class ConvOp {
 public:
  static constexpr bool mixes_channels = true;

  ConvOp(WindowSpec spec, std::int64_t out_channels, bool bias, Shape const& input)
      : spec_(std::move(spec)),
        geometry_{spec_.on(input), input.channel, out_channels, {input.depth, input.height, input.width}},
        bias_(bias) {}

  Windows windows(Shape const&) const { return geometry_.windows; }
  std::int64_t channels(std::int64_t) const { return geometry_.out_channels; }
  void check(Shape const&) const {
    require(geometry_.out_channels >= 1, "conv", "the number of output channels must be at least 1, it is ",
            geometry_.out_channels);
  }

  std::vector<ParameterSpec> parameters(Shape const& input) const {
    Window const* w = geometry_.windows.axis;
    std::int64_t const in = input.channel, out = geometry_.out_channels, taps = geometry_.windows.taps();
    std::vector<ParameterSpec> list{{"weight",
                                     {out, in, w[0].kernel, w[1].kernel, w[2].kernel},
                                     {2, 3, 4, 1, 0},
                                     Initial::glorot(in * taps, out * taps)}};
    if (bias_) list.push_back({"bias", {out}, {0}, Initial::value(0.0)});
    return list;
  }

  void forward(ForwardPass<T, Space> const& p) {
    op::conv_forward(p.space, geometry_, p.x, p.parameters[0], bias_ ? p.parameters[1] : nullptr, p.y, p.box,
                     workspace_, PollPass{p.pass});
  }
  void backward(BackwardPass<T, Space> const& p) {
    op::conv_backward_data(p.space, geometry_, p.dy, p.parameters[0], p.dx, p.box, p.accumulate, workspace_,
                           PollPass{p.pass});
  }
  void backward_parameters(ParameterPass<T, Space> const& p) {
    op::conv_backward_filter(p.space, geometry_, p.x, p.dy, p.box, p.gradients[0], bias_ ? p.gradients[1] : nullptr,
                             workspace_, PollPass{p.pass});
  }

  std::string name() const {
    return "conv " + spec_.text() + ", " + std::to_string(geometry_.out_channels) + " channels" +
           (bias_ ? ", bias" : "");
  }
  double flops(Shape const& input, Shape const& output) const {
    return 2.0 * static_cast<double>(output.volume()) * static_cast<double>(geometry_.windows.taps() * input.channel);
  }

 private:
  WindowSpec spec_;
  op::ConvGeometry geometry_;
  bool bias_;
  op::Workspace<T> workspace_;
};

/// A convolution layer as a value; see conv3d.
struct ConvSpec {
  static constexpr char const* kind = "conv";
  std::int64_t out_channels;
  WindowSpec windows;
  bool bias = true;

  void set(NoBias) { bias = false; }
  template <class Option>
  void set(Option const& option) {
    windows.set(option);
  }

  template <class T, class Space>
  ConvOp<T, Space> op(Shape const& input) const {
    return ConvOp<T, Space>(windows, out_channels, bias, input);
  }
};

namespace detail {

template <class Spec, class... Options>
Spec with_options(Spec spec, Options const&... options) {
  (spec.set(options), ...);
  return spec;
}

template <int Rank, std::int64_t Kernel>
WindowSpec window_spec() {
  static_assert(Kernel >= 1, "tessera: a kernel extent must be at least 1");
  WindowSpec spec(Rank);
  spec.set(kernel(Kernel));
  return spec;
}

}  // namespace detail

/// A convolution (cross-correlation): y[o, co] = bias[co] + sum over taps j and channels ci of
/// w[co, ci, j] x[o * stride - low + dilation * j, ci], zeros beyond the border.
///
/// Options, in any order: kernel(k...), stride(s...), dilation(d...), padding(p...), padding_low, padding_high (may be
/// negative: cropping), same, no_bias. Padding defaults to 0.
/// Shape: (N, D, H, W, Cin) -> (N, D', H', W', Cout), D' = floor((D + low + high - dilation (k - 1) - 1) / stride) + 1.
/// Moves: the halo of x forward, of dy backward. Fails: if the kernel does not fit into the padded input.
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
