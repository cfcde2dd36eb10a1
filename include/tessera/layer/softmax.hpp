// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/rank_grid.hpp"
#include "tessera/layer/layer.hpp"
#include "tessera/op/softmax.hpp"

namespace tessera {

/// Softmax over channels, or its logarithm, bound to its ranks.
///
/// Moves: where the channels are cut, per position the largest cell and a double forward, and a double backward.
template <class T, class Space>
class Softmax : public Layer<T, Space> {
 public:
  Softmax(Ranks const& ranks, bool logarithm, std::string name)
      : ranks_(ranks), logarithm_(logarithm), name_(std::move(name)) {
    if (merges()) ranks.group({AxisId::channel});  // made here, in the order of binding
  }

  Partition output(Partition const& input) const override { return input; }
  bool reads_output() const override { return true; }

  void allocate(Partition const& input) override { grow(positions(input.owned(ranks_.rank()))); }

  void forward(Pass const&, Shard<T, Space> const& x, Shard<T, Space> const& y) override {
    Box const& own = x.owned();
    Box const places = positions(own);
    grow(places);
    Tile<T> const largest = dense_tile(largest_.data(), places);
    Tile<double> const sum = dense_tile(sum_.data(), places);
    op::SoftmaxLargest<T> const find{x.tile(), largest};
    op::SoftmaxTerms<T> const add{x.tile(), y.tile(), largest, sum};
    op::SoftmaxResult<T> const divide{x.tile(), y.tile(), largest, sum, logarithm_};
    if (!merges()) {
      for_each_position(
          "tessera::softmax", space_, own,
          op::InTurn<op::SoftmaxLargest<T>, op::SoftmaxTerms<T>, op::SoftmaxResult<T>>{find, {add, {divide}}});
      return;
    }
    if (own.empty()) {  // no channels perhaps, but the positions of those who have some
      fill_flat(space_, largest_.data(), places.volume(), -std::numeric_limits<T>::infinity());
      fill_flat(space_, sum_.data(), places.volume(), 0.0);
    }
    for_each_position("tessera::softmax", space_, own, find);
    merge(largest_.data(), largest_on_host_, places.volume(), Reduce::max);
    for_each_position("tessera::softmax", space_, own, add);
    merge(sum_.data(), sum_on_host_, places.volume(), Reduce::sum);
    for_each_position("tessera::softmax", space_, own, divide);
  }

  void backward(Pass const&, Shard<T, Space> const&, Shard<T, Space> const& y, Shard<T, Space> const& dy,
                Shard<T, Space> const* dx, Accumulate accumulate) override {
    if (dx == nullptr) return;
    Box const& own = y.owned();
    Box const places = positions(own);
    Tile<double> const share = dense_tile(sum_.data(), places);
    op::SoftmaxShare<T> const add{y.tile(), dy.tile(), share, logarithm_};
    op::SoftmaxBackward<T> const take{y.tile(), dy.tile(), dx->tile(), share, logarithm_, accumulate};
    if (!merges()) {
      for_each_position("tessera::softmax", space_, own,
                        op::InTurn<op::SoftmaxShare<T>, op::SoftmaxBackward<T>>{add, {take}});
      return;
    }
    if (own.empty()) fill_flat(space_, sum_.data(), places.volume(), 0.0);
    for_each_position("tessera::softmax", space_, own, add);
    merge(sum_.data(), sum_on_host_, places.volume(), Reduce::sum);
    for_each_position("tessera::softmax", space_, own, take);
  }

  void describe(Partition const& input, bool needs_dx, std::vector<LayerInfo>& out) const override {
    out.push_back({name_, logarithm_ ? "log_softmax" : "softmax", input, 0, 0, 0, 0.0, needs_dx});
  }

 private:
  using Host = Kokkos::DefaultHostExecutionSpace;

  bool merges() const { return ranks_.grid().counts().channel > 1; }

  static Box positions(Box own) {
    own[AxisId::channel] = {0, 1};
    return own;
  }

  void grow(Box const& places) {
    largest_.grow(places.volume());
    sum_.grow(places.volume());
  }

  /// Combines numbers per position over the ranks that share the positions.
  template <class U>
  void merge(U* cells, std::vector<U>& on_host, std::int64_t count, Reduce reduce) const {
    space_.fence("tessera::Softmax");
    Communicator<Mpi> const& group = ranks_.group({AxisId::channel});
    if constexpr (host_can_access<Space>) {
      group.all_reduce(cells, count, reduce);
    } else {
      on_host.resize(static_cast<std::size_t>(count));
      copy_flat<Host, Space, U>(on_host.data(), cells, count);
      group.all_reduce(on_host.data(), count, reduce);
      copy_flat<Space, Host, U>(cells, on_host.data(), count);
    }
  }

  Ranks ranks_;
  bool logarithm_;
  std::string name_;
  Space space_;
  Storage<T, Space> largest_;
  Storage<double, Space> sum_;
  std::vector<T> largest_on_host_;
  std::vector<double> sum_on_host_;
};

struct SoftmaxSpec {
  bool logarithm;
  std::string kind;

  template <class T, class Space, PartitionPolicy Policy>
  std::unique_ptr<Layer<T, Space>> bind(RankGrid<Policy> const& ranks, Shape const&, std::string name) const {
    return std::make_unique<Softmax<T, Space>>(ranks, logarithm, std::move(name));
  }
};

/// exp(x) over the sum of exp(x) of a position's channels; the largest x is subtracted first.
/// Shape: unchanged. Moves: where the channels are cut, a maximum and a double per position forward, a double backward,
/// among the ranks that share the position. Fails: never.
inline SoftmaxSpec softmax() { return {false, "softmax"}; }

/// The logarithm of softmax, without its rounding to 0 where a channel is far from the largest.
/// Shape, Moves, Fails: as softmax.
inline SoftmaxSpec log_softmax() { return {true, "log_softmax"}; }

}  // namespace tessera
