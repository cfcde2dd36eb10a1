// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/layer/window_layer.hpp"
#include "tessera/op/activation.hpp"

namespace tessera {

/// A function of each cell whose derivative follows from the output.
template <class T, class Space, class Function>
class ActivationOp {
 public:
  static constexpr bool pointwise = true;
  static constexpr bool reads_output = true;

  ActivationOp(Function function, std::string name) : function_(function), name_(std::move(name)) {}

  Windows windows(Shape const&) const { return {}; }
  void forward(ForwardPass<T, Space> const& p) const {
    for_each_position("tessera::activation", p.space, p.box, op::Apply<T, Function>{function_, p.x, p.y});
  }
  void backward(BackwardPass<T, Space> const& p) const {
    for_each_position("tessera::activation", p.space, p.box,
                      op::ApplySlope<T, Function>{function_, p.y, p.dy, p.dx, p.accumulate});
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
