// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/rank_grid.hpp"
#include "tessera/exchange/exchange.hpp"
#include "tessera/layer/layer.hpp"

namespace tessera {

/// Moves a tensor to another decomposition of the same ranks.
///
/// Moves: forward every cell whose owner changes; backward the same cells of dy, by the exact adjoint.
template <class T, class Space>
class Redistribute : public Layer<T, Space> {
 public:
  Redistribute(Ranks const& from, Ranks const& to) : from_(from), to_(to), exchange_(from) {}

  Partition output(Partition const& input) const override { return Partition(to_.grid(), input.shape()); }
  void allocate(Partition const&) override { plans_.clear(); }
  void forward(Pass const&, Shard<T, Space> const& x, Shard<T, Space> const& y) override {
    exchange_(plan(x.partition()), x, y);
  }
  void backward(Pass const&, Shard<T, Space> const& x, Shard<T, Space> const&, Shard<T, Space> const& dy,
                Shard<T, Space> const* dx, Accumulate accumulate) override {
    if (dx == nullptr) return;
    exchange_.start_add(plan(x.partition()), dy.tile());
    if (accumulate == Accumulate::write) fill(space_, dx->tile(), dx->owned(), T(0));
    exchange_.finish_add(dx->tile());
  }
  void describe(Partition const& input, bool needs_dx, std::vector<LayerInfo>& out) const override {
    auto const there = make(input);
    LayerInfo info{"", "redistribute", output(input), 0, there.received_cells(), 0, 0.0, needs_dx};
    if (needs_dx) info.halo_cells_back = there.sent_cells();
    out.push_back(std::move(info));
  }

 private:
  ExchangePlan make(Partition const& input) const { return make_plan(input, Region(output(input)), from_.rank()); }
  ExchangePlan const& plan(Partition const& input) {
    auto const [place, is_new] = plans_.try_emplace(input.shape().sample);
    if (is_new) place->second = make(input);
    return place->second;
  }

  Ranks from_, to_;
  Space space_;
  Exchange<T, Space> exchange_;
  std::map<std::int64_t, ExchangePlan> plans_;
};

/// A change of decomposition as a value; see redistribute.
template <PartitionPolicy To>
struct RedistributeSpec {
  static constexpr char const* kind = "redistribute";
  Counts counts;
  bool counts_given = false;

  template <PartitionPolicy From>
  RankGrid<To> next(RankGrid<From> const& ranks) const {
    if constexpr (To::dynamic_axes <= 1)  // more of them always come with counts
      if (!counts_given) return RankGrid<To>::spread(ranks);
    return RankGrid<To>(ranks, counts);
  }

  template <class T, class Space, PartitionPolicy From>
  std::unique_ptr<Layer<T, Space>> bind(RankGrid<From> const& ranks, Shape const&, std::string) const {
    return std::make_unique<Redistribute<T, Space>>(ranks, next(ranks));
  }
};

/// The rest of the model works under another decomposition: all ranks on To's single dynamic axis.
template <PartitionPolicy To>
RedistributeSpec<To> redistribute() {
  static_assert(To::dynamic_axes <= 1,
                "tessera::redistribute: a Distribution with several dynamic axes needs counts by name: "
                "redistribute<P>({.sample = 2, .depth = 2})");
  return {};
}

/// The same with counts by name.
template <PartitionPolicy To>
RedistributeSpec<To> redistribute(Counts const& counts) {
  return {counts, true};
}

}  // namespace tessera
