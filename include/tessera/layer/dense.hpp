// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/layer/mixing_layer.hpp"
#include "tessera/layer/window_spec.hpp"
#include "tessera/op/conv_block.hpp"

namespace tessera {

/// A dense layer on the channels of every position: the contraction of a 1 x 1 x 1 convolution, with the samples as the
/// positions along which kernels run.
template <class T, class Space>
class DenseOp {
 public:
  static constexpr bool sums_inputs = false;

  DenseOp(std::int64_t outputs, bool bias, double bias_start, Stationary stationary, Shape const& input)
      : bias_(bias), bias_start_(bias_start), stationary_(stationary) {
    block_.geometry = {{}, input.channel, outputs};
  }

  void check(std::string const& who, Shape const&) const {
    require(outputs() >= 1, who, "the number of outputs must be at least 1, it is ", outputs());
  }
  Reaches mixing_reaches(Shape const& input) const { return reaches_of(Windows{}, Border::zeros, input); }
  Padding padding() const { return Padding::zeros; }
  bool sums_bias() const { return block_.passes_outputs(); }
  std::int64_t channels(std::int64_t) const { return outputs(); }
  ChannelRoles roles(std::string const& who, Partition const& input, Partition const& output) const {
    return {who, input, output, stationary_, 1, Grouped::outputs_stay};
  }

  std::vector<ParameterSpec> parameters(Shape const& input) const {
    std::int64_t const in = input.channel, out = outputs();
    std::vector<ParameterSpec> list{{"weight", {out, in}, {1, 0}, Initial::glorot(in, out)}};
    if (bias_) list.push_back({"bias", {out}, {0}, Initial::value(bias_start_)});
    return list;
  }
  std::vector<std::vector<Interval>> shards(Interval reads, Interval makes, Interval own_outputs) const {
    return {{makes, reads}, {own_outputs}};
  }
  void set_channels(Interval reads, Interval makes) {
    block_.in = reads;
    block_.out = makes;
  }

  void forward(ForwardPass<T, Space> const& p) {
    op::conv_forward(p.space, block_, op::with_samples_along_width(p.x), p.parameters[0], p.parameters[1],
                     op::with_samples_along_width(p.y), op::with_samples_along_width(p.box), workspace_,
                     PollPass{p.pass});
  }
  void backward(BackwardPass<T, Space> const& p) {
    op::conv_backward_data(p.space, block_, op::with_samples_along_width(p.dy), p.parameters[0],
                           op::with_samples_along_width(p.dx), op::with_samples_along_width(p.box), p.accumulate,
                           workspace_, PollPass{p.pass});
  }
  void backward_parameters(ParameterPass<T, Space> const& p) {
    op::conv_backward_filter(p.space, block_, op::with_samples_along_width(p.x), op::with_samples_along_width(p.dy),
                             op::with_samples_along_width(p.box), p.gradients[0], p.gradients[1], workspace_,
                             PollPass{p.pass});
  }

  std::string name() const { return "dense, " + std::to_string(outputs()) + " outputs" + (bias_ ? ", bias" : ""); }
  double flops(Shape const& input, Shape const& output) const {
    return 2.0 * static_cast<double>(output.volume()) * static_cast<double>(input.channel);
  }

 private:
  std::int64_t outputs() const { return block_.geometry.out_channels; }

  op::ConvBlock block_;
  bool bias_;
  double bias_start_;
  Stationary stationary_;
  op::Workspace<T> workspace_;
};

/// Where a bias starts, if not at 0.
struct BiasStart {
  double value;
};
constexpr BiasStart bias(double start) { return {start}; }

struct DenseSpec {
  static constexpr char const* kind = "dense";
  std::int64_t outputs;
  bool bias = true;
  double bias_start = 0.0;
  Stationary stationary = Stationary::automatic;

  void set(Stationary kept) { stationary = kept; }
  void set(NoBias) { bias = false; }
  void set(BiasStart start) { bias_start = start.value; }

  template <class T, class Space>
  DenseOp<T, Space> op(Shape const& input) const {
    return DenseOp<T, Space>(outputs, bias, bias_start, stationary, input);
  }
};

/// y = W x + b on the channels of every position (of the one position that flatten leaves).
/// Shape: (N, D, H, W, Cin) -> (N, D, H, W, outputs); weights (outputs, Cin) as in PyTorch.
/// Moves: nothing, unless channels are cut: then input channels or partial outputs (see ChannelRoles).
template <class... Options>
DenseSpec dense(std::int64_t outputs, Options const&... options) {
  return detail::with_options(DenseSpec{outputs}, options...);
}

}  // namespace tessera
