// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/comm/rank_grid.hpp"
#include "tessera/exchange/exchange.hpp"
#include "tessera/layer/layer.hpp"

namespace tessera {

/// What an operation may assume of cells beyond the global border: that they read as zeros, or nothing at all.
enum class Border { zeros, clipped };

/// An operation whose outputs read windows of its input: what a custom layer is. Required:
///   Windows windows(Shape const& input) const;
///   void forward(ForwardPass<T, Space> const&);    computes y on a box
///   void backward(BackwardPass<T, Space> const&);  the adjoint: computes dx on a box
/// Optional: channels(in), parameters(in channels), backward_parameters(ParameterPass), border, mixes_channels,
/// reads_output, keeps_notes, flops(ForwardPass shapes), name().
template <class Op, class T, class Space>
concept WindowOp = requires(Op op, Shape const& shape, ForwardPass<T, Space> const& forward) {
  { op.windows(shape) } -> std::convertible_to<Windows>;
  op.forward(forward);
};

template <class Op, class T, class Space>
concept HasAdjoint = requires(Op op, BackwardPass<T, Space> const& backward) { op.backward(backward); };

template <class Op, class T, class Space>
concept HasParameters =
    requires(Op const op, Shape const& shape) {
      { op.parameters(shape) } -> std::convertible_to<std::vector<ParameterSpec>>;
    };

template <class Op, class T, class Space>
concept HasParameterGradient =
    requires(Op op, ParameterPass<T, Space> const& pass) { op.backward_parameters(pass); };

namespace detail {

template <class Op>
constexpr Border border_of() {
  if constexpr (requires { Op::border; }) return Op::border;
  else return Border::zeros;
}
template <class Op>
constexpr bool mixes_channels() {
  if constexpr (requires { Op::mixes_channels; }) return Op::mixes_channels;
  else return false;
}
template <class Op>
constexpr bool keeps_notes() {
  if constexpr (requires { Op::keeps_notes; }) return Op::keeps_notes;
  else return false;
}
template <class Op>
constexpr bool pointwise() {
  if constexpr (requires { Op::pointwise; }) return Op::pointwise;
  else return false;
}

/// Holding one box around both would waste memory: the owned box and the needed one are small, but far apart.
inline bool much_larger(Box const& held, Box const& owned, Box const& needed) {
  return !owned.empty() && !needed.empty() &&
         held.volume() > 2 * larger(owned.volume(), needed.volume());
}

}  // namespace detail

/// Binds a WindowOp to a decomposition: it finds the boxes, exchanges the halos of x and dy, and hides them behind the
/// outputs that need none.
///
/// Moves: forward the halo of x; backward the halo of dy (and of the notes, if the operation keeps any).
template <class T, PartitionPolicy Policy, class Space, class Op>
class WindowLayer : public Layer<T, Space> {
  static_assert(WindowOp<Op, T, Space>,
                "tessera: a layer needs `Windows windows(Shape const&) const` and `void forward(ForwardPass<T, Space> const&)`");
  static_assert(HasAdjoint<Op, T, Space>,
                "tessera: a layer needs its adjoint: `void backward(BackwardPass<T, Space> const&)`, which computes dx");
  static_assert(!HasParameters<Op, T, Space> || HasParameterGradient<Op, T, Space>,
                "tessera: a layer with parameters needs `void backward_parameters(ParameterPass<T, Space> const&)`");

  /// Nothing to exchange, whatever the counts: the policy does not cut what the windows slide over.
  static constexpr bool never_moves = detail::pointwise<Op>();

 public:
  WindowLayer(RankGrid<Policy> const& ranks, Shape const& input, Op op, std::string name)
      : ranks_(ranks), op_(std::move(op)), name_(std::move(name)), windows_(op_.windows(input)) {
    if constexpr (detail::mixes_channels<Op>())
      require(ranks.grid().counts().channel == 1, name_,
              "its input must not be split in channels; redistribute to a Distribution without Channel first");
    if constexpr (requires { op_.set_name(name_); }) op_.set_name(name_);
    if constexpr (requires { op_.check(input); }) op_.check(input);
    for (AxisId axis : spatial_axes) checked_outputs(windows_[axis], input[axis], name_, tessera::name(axis));
    if constexpr (HasParameters<Op, T, Space>)
      for (ParameterSpec const& spec : op_.parameters(input))
        parameters_.push_back(Parameter<T, Space>::replicated(name_ + "." + spec.name, spec, ranks_));
    if constexpr (!never_moves) {
      x_exchange_.emplace(ranks_);
      dy_exchange_.emplace(ranks_);
    }
    if constexpr (detail::keeps_notes<Op>()) notes_exchange_.emplace(ranks_);
  }

  Partition output(Partition const& input) const override { return input.scaled_to(output_shape(input.shape())); }

  Box needs_input(Partition const& input) const override {
    Box const need = input_region(input).box(ranks_.rank());
    Box const owned = input.owned(ranks_.rank());
    return detail::much_larger(hull(owned, need), owned, need) ? Box{} : need;
  }

  Box needs_error(Partition const& input) const override {
    Box const need = error_region(input).box(ranks_.rank());
    Box const owned = output(input).owned(ranks_.rank());
    return detail::much_larger(hull(owned, need), owned, need) ? Box{} : need;
  }

  bool reads_output() const override {
    if constexpr (requires { Op::reads_output; }) return Op::reads_output;
    else return false;
  }

  void allocate(Partition const& input) override {
    bound_.clear();
    Bound const& bound = bind(input);
    if (bound.x_apart) x_buffer_.grow(bound.x_plan.needs.volume());
    if (bound.dy_apart) dy_buffer_.grow(bound.dy_plan.needs.volume());
    if constexpr (detail::keeps_notes<Op>()) notes_.grow(bound.notes_held.volume());
    bound_.clear();
  }

  void forward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y) override {
    Bound& bound = bind(x.partition());
    ForwardPass<T, Space> call{pass, space_, input_view(bound, x), y.tile(), y.owned(), x.shape(), y.shape(), values(),
                               notes_tile(bound)};
    if constexpr (never_moves) {
      op_.forward(call);
    } else {
      x_exchange_->start(bound.x_plan, x.tile());
      Box const whole = call.box;
      if (bound.overlap) {
        call.box = bound.interior;
        {
          Watched const watched(pass, *x_exchange_);
          op_.forward(call);
        }
        x_exchange_->finish(input_target(bound, x));
        for_each_rim(whole, bound.interior, [&](Box const& rim) {
          call.box = rim;
          op_.forward(call);
        });
      } else {
        x_exchange_->finish(input_target(bound, x));
        op_.forward(call);
      }
    }
  }

  void backward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y, Shard<T, Space> const& dy,
                Shard<T, Space> const* dx, Accumulate accumulate) override {
    Bound& bound = bind(x.partition());
    if (!never_moves && dx != nullptr) dy_exchange_->start(bound.dy_plan, dy.tile());
    if constexpr (HasParameters<Op, T, Space>) {
      std::optional<Watched> watched;
      if (dy_exchange_) watched.emplace(pass, *dy_exchange_);
      op_.backward_parameters(ParameterPass<T, Space>{pass, space_, input_view(bound, x), dy.tile(), dy.owned(),
                                                      x.shape(), y.shape(), gradients()});
    }
    if (dx == nullptr) return;
    Tile<T> error = dy.tile();
    if constexpr (!never_moves) {
      if (bound.dy_apart) error = dense_tile(dy_buffer_.data(), bound.dy_plan.needs);
      dy_exchange_->finish(error);
    }
    if constexpr (detail::keeps_notes<Op>()) {
      notes_exchange_->start(bound.notes_plan, notes_tile(bound));
      notes_exchange_->finish(notes_tile(bound));
    }
    op_.backward(BackwardPass<T, Space>{pass, space_, input_view(bound, x), y.tile(), error, dx->tile(), dx->owned(),
                                        accumulate, x.shape(), y.shape(), values(), notes_tile(bound)});
  }

  void for_each_parameter(std::function<void(Parameter<T, Space>&)> const& visit) override {
    for (auto& parameter : parameters_) visit(parameter);
  }

  void describe(Partition const& input, bool needs_dx, std::vector<LayerInfo>& out) const override {
    LayerInfo info{name_, op_.name(), output(input), 0, 0, 0, 0.0, needs_dx};
    for (auto const& parameter : parameters_) info.parameters += parameter.whole_count();
    if constexpr (requires { op_.flops(input.shape(), input.shape()); })
      info.flops = op_.flops(input.shape(), info.output.shape());
    if constexpr (!never_moves) {
      info.halo_cells = input_plan(input, Placement::around_owned).received_cells();
      if (needs_dx) info.halo_cells_back = error_plan(input, Placement::around_owned).received_cells();
    }
    out.push_back(std::move(info));
  }

  Op const& op() const { return op_; }

 private:
  /// Lets an exchange make progress while a kernel runs.
  class Watched {
   public:
    Watched(Pass const& pass, Exchange<T, Space>& exchange) : progress_(pass.progress), request_(exchange.request()) {
      if (progress_ != nullptr) progress_->watch(request_);
    }
    Watched(Watched const&) = delete;
    Watched& operator=(Watched const&) = delete;
    ~Watched() {
      if (progress_ != nullptr) progress_->forget(request_);
    }

   private:
    Progress* progress_;
    Request<Mpi>& request_;
  };

  /// All that depends on the number of samples.
  struct Bound {
    ExchangePlan x_plan, dy_plan, notes_plan;
    bool x_apart = false, dy_apart = false;  ///< needed cells lie in a buffer of the layer's own
    bool overlap = false;
    Box interior;
    Box notes_held;
  };

  Shape output_shape(Shape const& in) const {
    Shape out = in;
    out.depth = windows_.axis[0].outputs(in.depth);
    out.height = windows_.axis[1].outputs(in.height);
    out.width = windows_.axis[2].outputs(in.width);
    if constexpr (requires { op_.channels(in.channel); }) out.channel = op_.channels(in.channel);
    return out;
  }

  Region input_region(Partition const& input) const {
    Region needs(output(input));
    for (AxisId axis : spatial_axes)
      needs.map(axis, [&](Interval out) {
        Interval const all = windows_[axis].required(out);
        return detail::border_of<Op>() == Border::clipped ? intersect(all, {0, input.shape()[axis]}) : all;
      });
    if constexpr (detail::mixes_channels<Op>())
      needs.map(AxisId::channel, [&](Interval) { return Interval{0, input.shape().channel}; });
    return needs;
  }

  Region error_region(Partition const& input) const {
    Shape const out = output_shape(input.shape());
    Region needs(input);
    for (AxisId axis : spatial_axes)
      needs.map(axis, [&](Interval in) {
        Interval const all = windows_[axis].touch(in);
        return detail::border_of<Op>() == Border::clipped ? intersect(all, {0, out[axis]}) : all;
      });
    if constexpr (detail::mixes_channels<Op>())
      needs.map(AxisId::channel, [&](Interval) { return Interval{0, out.channel}; });
    return needs;
  }

  ExchangePlan input_plan(Partition const& input, Placement placement) const {
    return make_plan(input, input_region(input), ranks_.rank(), Padding::zeros, placement);
  }
  ExchangePlan error_plan(Partition const& input, Placement placement) const {
    return make_plan(output(input), error_region(input), ranks_.rank(), Padding::zeros, placement);
  }

  Bound& bind(Partition const& input) {
    auto [place, is_new] = bound_.try_emplace(input.shape().sample);
    Bound& bound = place->second;
    if (!is_new) return bound;
    if constexpr (!never_moves) {
      int const rank = ranks_.rank();
      Box const owned = input.owned(rank), out = output(input).owned(rank);
      Box const need = input_region(input).box(rank), error = error_region(input).box(rank);
      bound.x_apart = detail::much_larger(hull(owned, need), owned, need);
      bound.dy_apart = detail::much_larger(hull(out, error), out, error);
      bound.x_plan = input_plan(input, bound.x_apart ? Placement::elsewhere : Placement::around_owned);
      bound.dy_plan = error_plan(input, bound.dy_apart ? Placement::elsewhere : Placement::around_owned);
      bound.interior = out;
      for (AxisId axis : spatial_axes)
        bound.interior[axis] = intersect(out[axis], windows_[axis].interior(owned[axis]));
      // Thin rims may cost more than they hide: overlap only what is mostly interior.
      bound.overlap = bound.x_plan.messages_received() > 0 && !bound.x_apart &&
                      2 * bound.interior.volume() > out.volume();
      if constexpr (detail::keeps_notes<Op>()) {
        bound.notes_held = hull(out, error);
        bound.notes_plan = error_plan(input, Placement::around_owned);
      }
    }
    return bound;
  }

  /// x with all that the owned outputs read: the tensor itself, or the buffer.
  Tile<T const> input_view(Bound const& bound, Shard<T, Space> const& x) const { return input_target(bound, x); }
  Tile<T> input_target(Bound const& bound, Shard<T, Space> const& x) const {
    return bound.x_apart ? dense_tile(x_buffer_.data(), bound.x_plan.needs) : x.tile();
  }

  Tile<std::int32_t> notes_tile(Bound const& bound) {
    if constexpr (detail::keeps_notes<Op>()) {
      notes_.grow(bound.notes_held.volume());
      return dense_tile(notes_.data(), bound.notes_held);
    } else {
      return {};
    }
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

  RankGrid<Policy> ranks_;
  Op op_;
  std::string name_;
  Windows windows_;
  Space space_;
  std::vector<Parameter<T, Space>> parameters_;
  std::optional<Exchange<T, Space>> x_exchange_, dy_exchange_;
  std::optional<Exchange<std::int32_t, Space>> notes_exchange_;
  Storage<T, Space> x_buffer_, dy_buffer_;
  Storage<std::int32_t, Space> notes_;
  std::map<std::int64_t, Bound> bound_;
};

}  // namespace tessera
