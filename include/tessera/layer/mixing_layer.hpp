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
#include "tessera/layer/bias_gradient.hpp"
#include "tessera/layer/layer.hpp"
#include "tessera/layer/mixing_binding.hpp"
#include "tessera/op/conv_block.hpp"

namespace tessera {

/// An operation whose outputs mix channels, linear in its input and in a weight, with or without a bias: convolutions
/// and dense layers. It computes with blocks of channels, and leaves it to MixingLayer which ones.
template <class Op, class T, class Space>
concept MixingOp = requires(Op op, Shape const& shape, Partition const& partition, ChannelRoles const& roles,
                            Interval channels, ForwardPass<T, Space> const& forward,
                            BackwardPass<T, Space> const& backward, ParameterPass<T, Space> const& pass) {
  { op.mixing_reaches(shape) } -> std::same_as<Reaches>;
  { op.padding() } -> std::same_as<Padding>;
  { op.sums_bias() } -> std::same_as<bool>;
  { op.roles(std::string(), partition, partition) } -> std::same_as<ChannelRoles>;
  { op.shards(channels, channels, channels) } -> std::same_as<std::vector<std::vector<Interval>>>;
  op.check(std::string(), shape);
  op.set_channels(channels, channels);
  op.forward(forward);
  op.backward(backward);
  op.backward_parameters(pass);
};

/// Binds a MixingOp to a decomposition, channels included.
///
/// Moves: forward the halo of x and, as its ChannelRoles say, input channels or partial outputs; backward the halo of
/// dy or what ranks gave to inputs of others, and error channels. Weights are split as the channels are, and replicated
/// along the other axes.
template <class T, class Space, class Op>
class MixingLayer : public Layer<T, Space> {
  static_assert(MixingOp<Op, T, Space>);

 public:
  MixingLayer(Ranks const& ranks, Partition const& input, Op op, std::string name)
      : op_(std::move(op)), name_(std::move(name)), binding_(bound_to(ranks, input)), exchanges_(ranks) {
    std::int64_t const block = ranks.coordinates()[AxisId::channel];
    ChannelRoles const& roles = binding_.roles();
    own_outputs_ = binding_.output(input).blocks(AxisId::channel)[block];
    op_.set_channels(roles.reads(block), roles.makes(block));
    auto const shards = op_.shards(roles.reads(block), roles.makes(block), own_outputs_);
    AxisSet same_channels = space_axes;
    same_channels.insert(AxisId::sample);
    Communicator<Mpi> const& replicas = roles.cut() ? ranks.group(same_channels) : ranks.world();
    std::size_t i = 0;
    for (ParameterSpec const& spec : op_.parameters(input.shape()))
      parameters_.emplace_back(name_ + "." + spec.name, spec, shards[i++], replicas);
  }

  Partition output(Partition const& input) const override { return binding_.output(input); }
  Box needs_input(Partition const& input) const override { return binding_.needs_input(input); }
  Box needs_error(Partition const& input) const override { return binding_.needs_error(input); }

  void allocate(Partition const& input) override {
    binding_.forget();
    Bound const& bound = binding_.bind(input);
    if (bound.x_apart) x_buffer_.grow(bound.x_plan.needs.volume());
    if (bound.dy_apart) dy_buffer_.grow(bound.dy_held.volume());
    if (binding_.folds()) dx_buffer_.grow(bound.x_plan.needs.volume());
    if (moves_outputs()) y_buffer_.grow(bound.made.volume());
  }

  void forward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y) override {
    Bound const& bound = binding_.bind(x.partition());
    Tile<T> const input = input_view(bound, x);
    Tile<T> const made = moves_outputs() ? dense_tile(y_buffer_.data(), bound.made) : y.tile();
    ForwardPass<T, Space> call{pass, space_, input, made, bound.made, x.shape(), y.shape(), {weight(), nullptr}, {}};
    if (!moves_outputs()) call.parameters[1] = bias();
    exchanges_.x.start(bound.x_plan, x.tile());
    if (bound.overlap) {
      call.box = bound.interior;
      {
        Watched const watched(pass, exchanges_.x.request());
        op_.forward(call);
      }
      exchanges_.x.finish(input);
      for_each_rim(bound.made, bound.interior, [&](Box const& rim) {
        call.box = rim;
        op_.forward(call);
      });
    } else {
      exchanges_.x.finish(input);
      op_.forward(call);
    }
    if (!moves_outputs()) return;
    exchanges_.y.start_add(bound.y_plan, made);
    op::fill_bias(space_, y.tile(), y.owned(), bias(), own_outputs_.begin);
    exchanges_.y.finish_add(y.tile());
  }

  void backward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y, Shard<T, Space> const& dy,
                Shard<T, Space> const* dx, Accumulate accumulate) override {
    Bound const& bound = binding_.bind(x.partition());
    Tile<T> const input = input_view(bound, x);
    // The parameters' gradients wait for the error only where they need what others own of it.
    bool const learns = parameters_[0].trainable();
    bool const waits = learns && (moves_outputs() || Op::sums_inputs);
    bool const arrives = dx != nullptr || waits;
    Tile<T> const error = bound.dy_apart && arrives ? dense_tile(dy_buffer_.data(), bound.dy_held) : dy.tile();
    ParameterPass<T, Space> sums{pass, space_, input, error, bound.made, x.shape(), y.shape(), gradients()};
    if constexpr (Op::sums_inputs) {
      sums.box = binding_.folds() ? bound.x_plan.needs : x.owned();
      if (!binding_.folds()) sums.x = x.tile();
    }
    if (arrives) exchanges_.dy.start(bound.dy_plan, dy.tile());
    if (learns && has_bias() && !sums_bias()) bias_gradient_(space_, dy, parameters_[1].gradient());
    if (learns && !waits) {
      Watched const watched(pass, exchanges_.dy.request());
      sums.dy = dy.tile();
      op_.backward_parameters(sums);
    }
    if (arrives) {
      exchanges_.dy.finish(error);
      if (binding_.folds())
        for_each_rim(bound.dy_held, bound.made, [&](Box const& rim) { fill(space_, error, rim, T(0)); });
    }
    if (waits) {
      op_.backward_parameters(sums);
    }
    if (dx == nullptr) return;
    BackwardPass<T, Space> call{pass,        space_,     input,     y.tile(),  error,      dx->tile(),
                                dx->owned(), accumulate, x.shape(), y.shape(), {weight()}, {}};
    if (!binding_.folds()) return op_.backward(call);
    call.dx = dense_tile(dx_buffer_.data(), bound.x_plan.needs);
    call.box = bound.x_plan.needs;
    call.accumulate = Accumulate::write;
    op_.backward(call);
    exchanges_.x.start_add(bound.x_plan, call.dx);
    if (accumulate == Accumulate::write) fill(space_, dx->tile(), dx->owned(), T(0));
    exchanges_.x.finish_add(dx->tile());
  }

  void for_each_parameter(std::function<void(Parameter<T, Space>&)> const& visit) override {
    for (auto& parameter : parameters_) visit(parameter);
  }

  void describe(Partition const& input, bool needs_dx, std::vector<LayerInfo>& out) const override {
    Bound const bound = binding_.make(input);
    LayerInfo info{name_, op_.name(), output(input), 0, 0, 0, 0.0, needs_dx};
    for (auto const& parameter : parameters_) info.parameters += parameter.whole_count();
    info.flops = op_.flops(input.shape(), info.output.shape());
    info.halo_cells = bound.x_plan.received_cells() + bound.y_plan.sent_cells();
    bool const learns = parameters_[0].trainable();
    if (needs_dx || (learns && (moves_outputs() || Op::sums_inputs)))
      info.halo_cells_back = bound.dy_plan.received_cells();
    if (needs_dx && binding_.folds()) info.halo_cells_back += bound.x_plan.sent_cells();
    out.push_back(std::move(info));
  }

  Op const& op() const { return op_; }

 private:
  using Bound = MixingBinding::Bound;

  struct Exchanges {
    explicit Exchanges(Ranks const& ranks) : x(ranks), dy(ranks), y(ranks) {}
    Exchange<T, Space> x, dy, y;
  };

  MixingBinding bound_to(Ranks const& ranks, Partition const& input) const {
    Shape const shape = input.shape();
    op_.check(name_, shape);
    Reaches const reaches = op_.mixing_reaches(shape);
    std::int64_t const channels = op_.channels(shape.channel);
    return {ranks.rank(), reaches, channels, op_.padding(),
            op_.roles(name_, input, MixingBinding::output(input, reaches, channels))};
  }

  bool moves_outputs() const { return binding_.roles().moves_outputs(); }

  T const* weight() const { return parameters_[0].value(); }
  bool has_bias() const { return parameters_.size() > 1; }
  T const* bias() const { return has_bias() ? parameters_[1].value() : nullptr; }
  /// Whether the operation sums the error on the way, for the bias.
  bool sums_bias() const { return !moves_outputs() && op_.sums_bias(); }
  std::vector<T*> gradients() const {
    return {parameters_[0].gradient(), has_bias() && sums_bias() ? parameters_[1].gradient() : nullptr};
  }

  /// Where all that the rank reads lies: the tensor itself, or the buffer.
  Tile<T> input_view(Bound const& bound, Shard<T, Space> const& x) const {
    return bound.x_apart ? dense_tile(x_buffer_.data(), bound.x_plan.needs) : x.tile();
  }

  Op op_;
  std::string name_;
  MixingBinding binding_;
  Exchanges exchanges_;
  Interval own_outputs_;
  Space space_;
  std::vector<Parameter<T, Space>> parameters_;
  BiasGradient<T, Space> bias_gradient_;
  Storage<T, Space> x_buffer_, y_buffer_, dy_buffer_, dx_buffer_;
};

}  // namespace tessera
