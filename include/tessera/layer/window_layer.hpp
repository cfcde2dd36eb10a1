// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/ranks.hpp"
#include "tessera/exchange/exchange.hpp"
#include "tessera/layer/layer.hpp"
#include "tessera/layer/window_binding.hpp"

namespace tessera {

/// An operation whose outputs read windows of its input: what a custom layer is. Required:
///   Windows windows(Shape const& input) const;     or Reaches reaches(input), for what no Window describes
///   void forward(ForwardPass<T, Space> const&);    computes y on a box
///   void backward(BackwardPass<T, Space> const&);  the adjoint: computes dx on a box
/// Optional: channels(in), parameters(input shape), backward_parameters(ParameterPass), border, mixes_channels,
/// reads_output, keeps_notes, flops(input shape, output shape), name().
template <class Op, class T, class Space>
concept WindowOp = requires(Op op, Shape const& shape, ForwardPass<T, Space> const& forward) {
  requires requires {
    { op.windows(shape) } -> std::convertible_to<Windows>;
  } || requires {
    { op.reaches(shape) } -> std::convertible_to<Reaches>;
  };
  op.forward(forward);
};

template <class Op, class T, class Space>
concept HasAdjoint = requires(Op op, BackwardPass<T, Space> const& backward) {
  op.backward(backward);
};

template <class Op, class T, class Space>
concept HasParameters = requires(Op const op, Shape const& shape) {
  { op.parameters(shape) } -> std::convertible_to<std::vector<ParameterSpec>>;
};

template <class Op, class T, class Space>
concept HasParameterGradient = requires(Op op, ParameterPass<T, Space> const& pass) {
  op.backward_parameters(pass);
};

namespace detail {

template <class Op>
constexpr Border border_of() {
  if constexpr (requires { Op::border; })
    return Op::border;
  else
    return Border::zeros;
}
template <class Op>
constexpr bool mixes_channels() {
  if constexpr (requires { Op::mixes_channels; })
    return Op::mixes_channels;
  else
    return false;
}
template <class Op>
constexpr bool keeps_notes() {
  if constexpr (requires { Op::keeps_notes; })
    return Op::keeps_notes;
  else
    return false;
}
template <class Op>
constexpr bool pointwise() {
  if constexpr (requires { Op::pointwise; })
    return Op::pointwise;
  else
    return false;
}

/// How far an operation reads along each spatial axis. Fails: if its windows do not fit the input.
template <class Op>
Reaches reaches_of(Op const& op, Shape const& input, std::string const& name) {
  if constexpr (requires { op.check(input); }) op.check(input);
  if constexpr (requires { op.reaches(input); }) {
    return op.reaches(input);
  } else {
    Windows const windows = op.windows(input);
    for (AxisId axis : spatial_axes) checked_outputs(windows[axis], input[axis], name, tessera::name(axis));
    return tessera::reaches_of(windows, border_of<Op>(), input);
  }
}

}  // namespace detail

/// Binds a WindowOp to a decomposition: it finds the boxes, exchanges the halos of x and dy, and hides them behind the
/// outputs that need none.
///
/// Moves: forward the halo of x; backward the halo of dy (and of the notes, if the operation keeps any).
template <class T, class Space, class Op>
class WindowLayer : public Layer<T, Space> {
  static_assert(
      WindowOp<Op, T, Space>,
      "tessera: a layer needs `Windows windows(Shape const&) const` and `void forward(ForwardPass<T, Space> const&)`");
  static_assert(
      HasAdjoint<Op, T, Space>,
      "tessera: a layer needs its adjoint: `void backward(BackwardPass<T, Space> const&)`, which computes dx");
  static_assert(!HasParameters<Op, T, Space> || HasParameterGradient<Op, T, Space>,
                "tessera: a layer with parameters needs `void backward_parameters(ParameterPass<T, Space> const&)`");

  static constexpr bool moves = !detail::pointwise<Op>();
  static constexpr bool keeps_notes = detail::keeps_notes<Op>();

 public:
  WindowLayer(Ranks const& ranks, Shape const& input, Op op, std::string name)
      : op_(std::move(op)),
        name_(std::move(name)),
        binding_(ranks.rank(), detail::reaches_of(op_, input, name_), detail::mixes_channels<Op>(),
                 channels_after(input)) {
    if constexpr (requires { op_.set_name(name_); }) op_.set_name(name_);
    require(!detail::mixes_channels<Op>() || ranks.grid().counts().channel == 1, name_,
            "its input must not be split in channels; redistribute to a Distribution without Channel first");
    if constexpr (HasParameters<Op, T, Space>)
      for (ParameterSpec const& spec : op_.parameters(input))
        parameters_.push_back(Parameter<T, Space>::replicated(name_ + "." + spec.name, spec, ranks));
    if constexpr (moves) {
      x_exchange_.emplace(ranks);
      dy_exchange_.emplace(ranks);
    }
    if constexpr (keeps_notes) notes_exchange_.emplace(ranks);
  }

  Partition output(Partition const& input) const override { return binding_.output(input); }
  Box needs_input(Partition const& input) const override { return binding_.needs_input(input); }
  Box needs_error(Partition const& input) const override { return binding_.needs_error(input); }

  bool reads_output() const override {
    if constexpr (requires { Op::reads_output; })
      return Op::reads_output;
    else
      return false;
  }

  void allocate(Partition const& input) override {
    binding_.forget();
    if constexpr (moves) {
      Bound const& bound = binding_.bind(input);
      if (bound.x_apart) x_buffer_.grow(bound.x_plan.needs.volume());
      if (bound.dy_apart) dy_buffer_.grow(bound.dy_plan.needs.volume());
      if constexpr (keeps_notes) notes_.grow(bound.notes_held.volume());
    }
  }

  void forward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y) override {
    ForwardPass<T, Space> call{pass, space_, x.tile(), y.tile(), y.owned(), x.shape(), y.shape(), values(), {}};
    if constexpr (!moves) {
      op_.forward(call);
    } else {
      Bound const& bound = binding_.bind(x.partition());
      Tile<T> const input = input_view(bound, x);
      call.x = input;
      call.notes = notes_tile(bound);
      x_exchange_->start(bound.x_plan, x.tile());
      if (!bound.overlap) {
        x_exchange_->finish(input);
        op_.forward(call);
        return;
      }
      Box const whole = call.box;
      call.box = bound.interior;
      {
        Watched const watched(pass, x_exchange_->request());
        op_.forward(call);
      }
      x_exchange_->finish(input);
      for_each_rim(whole, bound.interior, [&](Box const& rim) {
        call.box = rim;
        op_.forward(call);
      });
    }
  }

  void backward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y, Shard<T, Space> const& dy,
                Shard<T, Space> const* dx, Accumulate accumulate) override {
    Tile<T> input = x.tile(), error = dy.tile();
    Tile<std::int32_t> notes;
    if constexpr (moves) {
      Bound const& bound = binding_.bind(x.partition());
      input = input_view(bound, x);
      if (dx != nullptr) {
        dy_exchange_->start(bound.dy_plan, dy.tile());
        if (bound.dy_apart) error = dense_tile(dy_buffer_.data(), bound.dy_plan.needs);
      }
      notes = notes_tile(bound);
      if constexpr (keeps_notes)
        if (dx != nullptr) notes_exchange_->start(bound.notes_plan, notes);
    }
    if constexpr (HasParameters<Op, T, Space>)
      if (!parameters_.empty() && parameters_[0].trainable()) {
        std::optional<Watched> watched;
        if (dy_exchange_) watched.emplace(pass, dy_exchange_->request());
        op_.backward_parameters(
            ParameterPass<T, Space>{pass, space_, input, dy.tile(), dy.owned(), x.shape(), y.shape(), gradients()});
      }
    if (dx == nullptr) return;
    if constexpr (moves) dy_exchange_->finish(error);
    if constexpr (keeps_notes) notes_exchange_->finish(notes);
    op_.backward(BackwardPass<T, Space>{pass, space_, input, y.tile(), error, dx->tile(), dx->owned(), accumulate,
                                        x.shape(), y.shape(), values(), notes});
  }

  void for_each_parameter(std::function<void(Parameter<T, Space>&)> const& visit) override {
    for (auto& parameter : parameters_) visit(parameter);
  }

  void describe(Partition const& input, bool needs_dx, std::vector<LayerInfo>& out) const override {
    LayerInfo info{name_, describe_op(), output(input), 0, 0, 0, 0.0, needs_dx};
    for (auto const& parameter : parameters_) info.parameters += parameter.whole_count();
    if constexpr (requires { op_.flops(input.shape(), input.shape()); })
      info.flops = op_.flops(input.shape(), info.output.shape());
    if constexpr (moves) {
      info.halo_cells = binding_.input_plan(input, Placement::around_owned).received_cells();
      // Of errors and, at the same places, notes.
      std::int64_t const read_back = keeps_notes ? 2 : 1;
      if (needs_dx)
        info.halo_cells_back = read_back * binding_.error_plan(input, Placement::around_owned).received_cells();
    }
    out.push_back(std::move(info));
  }

  Op const& op() const { return op_; }

 private:
  using Bound = WindowBinding::Bound;

  std::int64_t channels_after(Shape const& input) const {
    if constexpr (requires { op_.channels(input.channel); })
      return op_.channels(input.channel);
    else
      return input.channel;
  }
  std::string describe_op() const {
    if constexpr (requires { op_.name(); })
      return op_.name();
    else
      return "custom";
  }

  /// Where all that the owned outputs read lies: the tensor itself, or the buffer.
  Tile<T> input_view(Bound const& bound, Shard<T, Space> const& x) const {
    return bound.x_apart ? dense_tile(x_buffer_.data(), bound.x_plan.needs) : x.tile();
  }
  Tile<std::int32_t> notes_tile(Bound const& bound) const {
    if constexpr (keeps_notes)
      return dense_tile(notes_.data(), bound.notes_held);
    else
      return {};
  }

  std::vector<T const*> values() const {
    std::vector<T const*> list;
    for (auto const& parameter : parameters_) list.push_back(parameter.value());
    return list;
  }
  std::vector<T*> gradients() const {
    std::vector<T*> list;
    for (auto const& parameter : parameters_) list.push_back(parameter.gradient());
    return list;
  }

  Op op_;
  std::string name_;
  WindowBinding binding_;
  Space space_;
  std::vector<Parameter<T, Space>> parameters_;
  std::optional<Exchange<T, Space>> x_exchange_, dy_exchange_;
  std::optional<Exchange<std::int32_t, Space>> notes_exchange_;
  Storage<T, Space> x_buffer_, dy_buffer_;
  Storage<std::int32_t, Space> notes_;
};

}  // namespace tessera
