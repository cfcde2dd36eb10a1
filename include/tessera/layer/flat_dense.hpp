// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/comm/rank_grid.hpp"
#include "tessera/core/error.hpp"
#include "tessera/exchange/exchange.hpp"
#include "tessera/layer/bias_gradient.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/layer.hpp"
#include "tessera/op/conv_block.hpp"

namespace tessera {

/// A dense layer on all cells of a sample, wherever they lie: each rank multiplies the cells that it owns with their
/// columns of the weights. The ranks that share a sample sum the partial outputs, each of them a share (a
/// reduce-scatter), and the shares go to the owners of the outputs.
///
/// Moves: forward partial outputs, backward their errors: of `outputs` numbers per sample each rank sends all but its
/// share and receives its share from every other, and the owners receive what they own; never cells of the input.
template <class T, class Space>
class FlatDense : public Layer<T, Space> {
 public:
  FlatDense(Ranks const& ranks, Partition const& input, DenseSpec const& spec, std::string name)
      : ranks_(ranks), outputs_(spec.outputs), name_(std::move(name)), sums_(ranks), gather_(ranks) {
    require(outputs_ >= 1, name_, "the number of outputs must be at least 1, it is ", outputs_);
    Shape const in = input.shape();
    Box const own = input.owned(ranks.rank());
    share_ = shares(input).owned(ranks.rank()).axis[4];
    cells_ = own.axis[1].size() * own.axis[2].size() * own.axis[3].size() * own.axis[4].size();
    std::int64_t const inputs = in.channel * in.depth * in.height * in.width;
    Communicator<Mpi> const& replicas = ranks.group({AxisId::sample});
    parameters_.emplace_back(name_ + ".weight",
                             ParameterSpec{"weight",
                                           {outputs_, in.channel, in.depth, in.height, in.width},
                                           {2, 3, 4, 1, 0},
                                           Initial::glorot(inputs, outputs_),
                                           {outputs_, inputs}},
                             std::vector<Interval>{{0, outputs_}, own.axis[4], own.axis[1], own.axis[2], own.axis[3]},
                             replicas);
    if (spec.bias)
      parameters_.emplace_back(name_ + ".bias", ParameterSpec{"bias", {outputs_}, {0}, Initial::value(spec.bias_start)},
                               std::vector<Interval>{share_}, replicas);
  }

  Partition output(Partition const& input) const override {
    return input.scaled_to({input.shape().sample, 1, 1, 1, outputs_});
  }

  void allocate(Partition const& input) override {
    plans_.clear();
    partial_.grow(plans(input).sums.needs.volume());
    share_of_batch(plans(input));
  }

  void forward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y) override {
    Plans const& p = plans(x.partition());
    Tile<T> const partial = dense_tile(partial_.data(), p.sums.needs);
    if (!p.sums.needs.empty())
      op::conv_forward(space_, geometry(), op::with_samples_along_width(gathered(x).as_const()), weight(), nullptr,
                       op::with_samples_along_width(partial), op::with_samples_along_width(p.sums.needs), workspace_,
                       PollPass{pass});
    Shard<T, Space> const& shared = share_of_batch(p);
    sums_.start_add(p.sums, partial);
    op::fill_bias(space_, shared.tile(), shared.owned(), bias(), share_.begin);
    sums_.finish_add(shared.tile());
    gather_.start(p.gather, shared.tile());
    gather_.finish(y.tile());
  }

  void backward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const&, Shard<T, Space> const& dy,
                Shard<T, Space> const* dx, Accumulate accumulate) override {
    bool const learns = parameters_[0].trainable();
    if (!learns && dx == nullptr) return;
    Plans const& p = plans(x.partition());
    Shard<T, Space> const& shared = share_of_batch(p);
    gather_.start_add(p.gather, dy.tile());
    fill(space_, shared.tile(), shared.owned(), T(0));
    gather_.finish_add(shared.tile());
    Tile<T> const error = dense_tile(partial_.data(), p.sums.needs);
    sums_.start(p.sums, shared.tile());
    if (learns && parameters_.size() > 1) bias_gradient_(space_, shared, parameters_[1].gradient());
    sums_.finish(error);
    if (p.sums.needs.empty()) return;
    Flat const flat = gathered(x);
    if (learns)
      op::conv_backward_filter(space_, geometry(), op::with_samples_along_width(flat.as_const()),
                               op::with_samples_along_width(error), op::with_samples_along_width(p.sums.needs),
                               parameters_[0].gradient(), nullptr, workspace_, PollPass{pass});
    if (dx == nullptr) return;
    bool const in_place = lies_flat(*dx);
    if (!in_place) dx_flat_.grow(dx->owned().volume());
    Flat const target{in_place ? dx->tile().data : dx_flat_.data(), flat.box};
    op::conv_backward_data(space_, geometry(), op::with_samples_along_width(error), weight(),
                           op::with_samples_along_width(target.tile()), op::with_samples_along_width(target.box),
                           in_place ? accumulate : Accumulate::write, workspace_, PollPass{pass});
    if (in_place) return;
    Tile<T const> const result = dense_tile<T const>(dx_flat_.data(), dx->owned());
    if (accumulate == Accumulate::add)
      add<T>(space_, result, dx->tile(), dx->owned());
    else
      copy<T, T>(space_, result, dx->tile(), dx->owned());
  }

  void for_each_parameter(std::function<void(Parameter<T, Space>&)> const& visit) override {
    for (auto& parameter : parameters_) visit(parameter);
  }

  void describe(Partition const& input, bool needs_dx, std::vector<LayerInfo>& out) const override {
    Plans const p = make(input);
    LayerInfo info{name_,   "dense, flattened, " + std::to_string(outputs_) + " outputs", output(input), 0, 0, 0, 0.0,
                   needs_dx};
    for (auto const& parameter : parameters_) info.parameters += parameter.whole_count();
    info.halo_cells = p.sums.sent_cells() + p.gather.received_cells();
    if (needs_dx || parameters_[0].trainable()) info.halo_cells_back = p.gather.sent_cells() + p.sums.received_cells();
    info.flops = 2.0 * static_cast<double>(input.shape().volume()) * static_cast<double>(outputs_);
    out.push_back(std::move(info));
  }

 private:
  /// The rank's cells of each sample side by side, as channels.
  struct Flat {
    T* cells;
    Box box;
    Tile<T> tile() const { return dense_tile(cells, box); }
    Tile<T const> as_const() const { return tile(); }
  };

  op::ConvGeometry geometry() const { return {{}, cells_, outputs_}; }
  T const* weight() const { return parameters_[0].value(); }
  T const* bias() const { return parameters_.size() > 1 ? parameters_[1].value() : nullptr; }

  /// Whether the owned cells of each sample lie side by side: nothing else is held, and it is no slice of channels.
  bool lies_flat(Shard<T, Space> const& shard) const {
    return shard.held() == shard.owned() && shard.tile().stride[0] == cells_;
  }

  Flat gathered(Shard<T, Space> const& x) {
    Box const box{{x.owned().axis[0], {0, 1}, {0, 1}, {0, 1}, {0, cells_}}};
    if (lies_flat(x)) return {x.tile().data, box};
    x_flat_.grow(x.owned().volume());
    copy<T, T>(space_, x.tile(), dense_tile(x_flat_.data(), x.owned()), x.owned());
    return {x_flat_.data(), box};
  }

  struct Plans {
    Partition shares;
    ExchangePlan sums;    ///< backwards: from whoever has cells of a sample, all outputs of it to the shares
    ExchangePlan gather;  ///< from the shares to the owners
  };

  /// Who sums what: the outputs in equal parts over all ranks that share samples, wherever these cut the input.
  Partition shares(Partition const& input) const {
    Counts const& counts = input.grid().counts();
    Counts const shared{.sample = counts.sample, .channel = counts.product() / counts.sample};
    Blocks const one(1, 1);
    return Partition(Grid(shared), {input.blocks(AxisId::sample), one, one, one, Blocks(outputs_, shared.channel)});
  }
  Shard<T, Space> const& share_of_batch(Plans const& p) {
    shared_.reform(p.shares, ranks_.rank());
    return shared_;
  }

  Plans make(Partition const& input) const {
    Partition const out = output(input);
    Region makes(out);
    for (AxisId axis : {AxisId::depth, AxisId::height, AxisId::width, AxisId::channel}) {
      Blocks const& blocks = input.blocks(axis);
      std::vector<Interval> all;
      for (std::int64_t i = 0; i < blocks.parts(); ++i)
        all.push_back(blocks[i].empty() ? Interval{} : Interval{0, out.shape()[axis]});
      makes.set(axis, std::move(all));
    }
    Plans p{shares(input), {}, {}};
    p.sums = make_plan(p.shares, makes, ranks_.rank());
    p.gather = make_plan(p.shares, Region(out), ranks_.rank());
    return p;
  }
  Plans const& plans(Partition const& input) {
    auto const [place, is_new] = plans_.try_emplace(input.shape().sample);
    if (is_new) place->second = make(input);
    return place->second;
  }

  Ranks ranks_;
  std::int64_t outputs_;
  std::string name_;
  Exchange<T, Space> sums_, gather_;
  Interval share_;          ///< the outputs that the rank sums
  std::int64_t cells_ = 0;  ///< of one sample, that the rank owns
  Space space_;
  std::vector<Parameter<T, Space>> parameters_;
  std::map<std::int64_t, Plans> plans_;
  Storage<T, Space> x_flat_, dx_flat_, partial_;
  Shard<T, Space> shared_;
  BiasGradient<T, Space> bias_gradient_;
  op::Workspace<T> workspace_;
};

/// Says that a dense layer takes all cells of a sample as its inputs.
struct Flattened {};
inline constexpr Flattened flattened{};

struct FlatDenseSpec {
  static constexpr char const* kind = "dense";
  DenseSpec dense;

  template <class T, class Space, PartitionPolicy Policy>
  std::unique_ptr<Layer<T, Space>> bind(RankGrid<Policy> const& ranks, Partition const& input, std::string name) const {
    return std::make_unique<FlatDense<T, Space>>(ranks, input, dense, std::move(name));
  }
};

/// flatten() and dense(outputs) in one, on an input that is cut in space and channels, without gathering it: a large
/// flatten stays where its cells are, and so do their weights.
///
/// Options: no_bias, bias(start).
/// Shape: (N, D, H, W, C) -> (N, 1, 1, 1, outputs); weights (outputs, C, D, H, W), in the order of PyTorch's (outputs,
///   C D H W).
/// Moves: partial outputs, which all ranks of a sample help to sum. The outputs then belong to the ranks that own the
///   first position in space; redistribute after it to share what follows.
template <class... Options>
FlatDenseSpec dense(std::int64_t outputs, Flattened, Options const&... options) {
  static_assert(!(false || ... || std::is_same_v<Options, Stationary>),
                "tessera::dense: with `flattened` every rank keeps its inputs; leave the choice of what stays out");
  return {dense(outputs, options...)};
}

}  // namespace tessera
