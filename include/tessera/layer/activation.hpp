// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/layer/window_layer.hpp"
#include "tessera/op/activation.hpp"
#include "tessera/op/reduce.hpp"

namespace tessera {

/// A function of each cell; its derivative follows from the output, or from the input if the function says so.
template <class T, class Space, class Function>
class ActivationOp {
 public:
  static constexpr bool pointwise = true;
  static constexpr bool reads_output = op::reads_output<Function>();

  ActivationOp(Function function, std::string name) : function_(function), name_(std::move(name)) {}

  Windows windows(Shape const&) const { return {}; }
  void forward(ForwardPass<T, Space> const& p) const {
    for_each_position("tessera::activation", p.space, p.box, op::Apply<T, Function>{function_, p.x, p.y});
  }
  void backward(BackwardPass<T, Space> const& p) const {
    for_each_position("tessera::activation", p.space, p.box,
                      op::ApplySlope<T, Function>{function_, reads_output ? p.y : p.x, p.dy, p.dx, p.accumulate});
  }
  std::string name() const { return name_; }

 private:
  Function function_;
  std::string name_;
};

template <class Function>
struct ActivationSpec {
  Function function;
  std::string kind;

  template <class T, class Space>
  ActivationOp<T, Space, Function> op(Shape const&) const {
    return ActivationOp<T, Space, Function>(function, kind);
  }
};

/// max(x, 0). Moves: nothing.
inline ActivationSpec<op::ReluFunction> relu() { return {{}, "relu"}; }

/// x if positive, else slope * x. Moves: nothing. Fails: if the slope is not positive or zero.
inline ActivationSpec<op::LeakyReluFunction> leaky_relu(double slope = 0.01) {
  require(slope >= 0.0, "leaky_relu", "the slope must not be negative, it is ", slope);
  return {{slope}, "leaky_relu"};
}

/// scale * tanh(x). Moves: nothing. Fails: if the scale is zero or not finite.
inline ActivationSpec<op::TanhFunction> scaled_tanh(double scale = 1.0) {
  require(scale != 0.0 && std::isfinite(scale), "scaled_tanh", "the scale must be finite and not zero, it is ", scale);
  return {{scale}, "scaled_tanh"};
}

/// 1 / (1 + exp(-x)). Moves: nothing.
inline ActivationSpec<op::SigmoidFunction> sigmoid() { return {{}, "sigmoid"}; }

/// x / (1 + exp(-x)), also called swish. Moves: nothing.
/// Source: Elfwing, Uchibe and Doya, "Sigmoid-weighted linear units", 2018.
inline ActivationSpec<op::SiluFunction> silu() { return {{}, "silu"}; }

/// x if positive, else alpha (exp(x) - 1). Moves: nothing. Fails: if alpha is not finite.
/// Source: Clevert, Unterthiner and Hochreiter, "Fast and accurate deep network learning by ELUs", 2016.
inline ActivationSpec<op::EluFunction> elu(double alpha = 1.0) {
  require(std::isfinite(alpha), "elu", "alpha must be finite, it is ", alpha);
  return {{alpha}, "elu"};
}

/// The option of gelu that takes the approximation by tanh.
struct TanhForm {};
inline constexpr TanhForm tanh_form{};

/// x times the normal distribution function of x. Moves: nothing.
/// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
inline ActivationSpec<op::GeluFunction> gelu() { return {{}, "gelu"}; }

/// Its approximation x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2. Moves: nothing.
inline ActivationSpec<op::GeluTanhFunction> gelu(TanhForm) { return {{}, "gelu"}; }

/// Options of prelu: where the slopes start, and whether there is one for all channels instead of one for each.
struct PreluOptions {
  double start = 0.25;
  bool shared = false;
};

/// A slope for negative cells that is learnt.
template <class T, class Space>
class PreluOp {
 public:
  static constexpr bool pointwise = true;

  explicit PreluOp(PreluOptions const& options) : options_(options) {}

  Windows windows(Shape const&) const { return {}; }
  std::vector<ParameterSpec> parameters(Shape const& input) const {
    return {{"weight", {options_.shared ? 1 : input.channel}, {0}, Initial::value(options_.start)}};
  }
  void forward(ForwardPass<T, Space> const& p) const {
    for_each_position("tessera::prelu", p.space, p.box, op::Prelu<T>{slopes(p.parameters[0], p.box), p.x, p.y});
  }
  void backward(BackwardPass<T, Space> const& p) const {
    for_each_position("tessera::prelu", p.space, p.box,
                      op::PreluBackward<T>{slopes(p.parameters[0], p.box), p.x, p.dy, p.dx, p.accumulate});
  }
  /// Each rank adds for its own channels; the sum over all ranks makes the gradients whole.
  void backward_parameters(ParameterPass<T, Space> const& p) {
    Interval const own = p.box[AxisId::channel];
    double const* const sums = sums_.over(p.space, p.box, own.size(), op::PreluSlopeSums<T>{p.x, p.dy});
    double const all = std::accumulate(sums, sums + own.size(), 0.0);
    if (options_.shared)
      add_(p.space, p.gradients[0], &all, 1);
    else
      add_(p.space, p.gradients[0] + own.begin, sums, own.size());
  }
  std::string name() const { return options_.shared ? "prelu, one slope" : "prelu"; }

 private:
  op::Slopes<T> slopes(T const* weight, Box const& box) const {
    return {options_.shared ? weight : weight + box[AxisId::channel].begin, options_.shared};
  }

  PreluOptions options_;
  op::Sums<Space> sums_;
  op::AddFromHost<T, Space> add_;
};

struct PreluSpec {
  static constexpr char const* kind = "prelu";
  PreluOptions options;

  template <class T, class Space>
  PreluOp<T, Space> op(Shape const&) const {
    return PreluOp<T, Space>(options);
  }
};

/// x if positive, else a slope times x, with a learnt slope for each channel or one for all.
/// Shape: unchanged; weight (C) or (1). Moves: the sum of the slopes' gradients. Fails: if the start is not finite.
/// Source: He, Zhang, Ren and Sun, "Delving deep into rectifiers", 2015.
inline PreluSpec prelu(PreluOptions const& options = {}) {
  require(std::isfinite(options.start), "prelu", "the slopes must start at a finite number, it is ", options.start);
  return {options};
}

/// Drops cells at random in training; the mask is a function of seed, step, name and global position alone.
template <class T, class Space>
class DropoutOp {
 public:
  static constexpr bool pointwise = true;

  explicit DropoutOp(double rate) : rate_(rate) {}

  void set_name(std::string const& name) { stream_name_ = name; }
  Windows windows(Shape const&) const { return {}; }
  void forward(ForwardPass<T, Space> const& p) const {
    drop(p.pass, p.space, p.input, p.box, p.x, p.y, Accumulate::write);
  }
  void backward(BackwardPass<T, Space> const& p) const {
    drop(p.pass, p.space, p.input, p.box, p.dy, p.dx, p.accumulate);
  }
  std::string name() const { return "dropout " + detail::text(rate_); }

 private:
  void drop(Pass const& pass, Space const& space, Shape const& shape, Box const& box, Tile<T const> const& from,
            Tile<T> const& to, Accumulate accumulate) const {
    bool const active = pass.mode == Mode::training && rate_ > 0.0;
    double const scale = !active ? 1.0 : rate_ < 1.0 ? 1.0 / (1.0 - rate_) : 0.0;
    auto const threshold = active ? static_cast<std::uint64_t>(std::ceil(rate_ * 0x1p32)) : 0;
    op::Dropout<T> body{random_stream(pass.seed, stream_name_, pass.step),
                        threshold,
                        static_cast<T>(scale),
                        {shape.depth, shape.height, shape.width, shape.channel},
                        from,
                        to,
                        accumulate};
    // A micro-batch draws what its samples would draw within the whole batch.
    body.first_sample = pass.first_sample;
    for_each_position("tessera::dropout", space, box, body);
  }

  double rate_;
  std::string stream_name_;
};

struct DropoutSpec {
  static constexpr char const* kind = "dropout";
  double rate;

  template <class T, class Space>
  DropoutOp<T, Space> op(Shape const&) const {
    return DropoutOp<T, Space>(rate);
  }
};

/// Zeroes each cell with probability `rate` in training and scales the others by 1 / (1 - rate); the identity in
/// inference. Moves: nothing. Fails: if the rate is not within [0, 1].
inline DropoutSpec dropout(double rate) {
  require(0.0 <= rate && rate <= 1.0, "dropout", "the rate must be within [0, 1], it is ", rate);
  return {rate};
}

}  // namespace tessera
