// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "tessera/exchange/exchange.hpp"
#include "tessera/exchange/plan.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {

/// Cells of halo below and above the owned box along one axis.
struct HaloWidth {
  std::int64_t low = 0;
  std::int64_t high = 0;
};

/// The halo of a tensor, for stencil codes: fills `width` cells around the owned box from whoever owns them, diagonal
/// neighbours and several blocks away included; cells beyond the global border as `padding` says.
///
/// Moves: every held halo cell once. Fails: if the tensor does not hold the halo.
template <class T, int SpatialRank, PartitionPolicy Policy, class Space>
class Halo {
 public:
  using Widths = std::array<HaloWidth, SpatialRank>;

  /// Every rank must make its exchanges in the same order.
  Halo(Tensor<T, SpatialRank, Policy, Space> const& tensor, Widths const& widths, Padding padding = Padding::zeros)
      : exchange_(tensor.ranks()) {
    Region needs(tensor.shard().partition());
    for (int i = 0; i < SpatialRank; ++i) {
      HaloWidth const width = widths[static_cast<std::size_t>(i)];
      needs.map(static_cast<AxisId>(4 - SpatialRank + i), [&](Interval owned) {
        return owned.empty() ? owned : Interval{owned.begin - width.low, owned.end + width.high};
      });
    }
    plan_ = make_plan(tensor.shard().partition(), needs, tensor.ranks().rank(), padding, Placement::around_owned);
    require(plan_.needs.empty() || tensor.held().contains(plan_.needs), "Halo", "the tensor must hold the halo ",
            plan_.needs, ", but holds ", tensor.held(), "; create it with a larger margin");
  }

  /// The same width on both sides of every spatial axis.
  Halo(Tensor<T, SpatialRank, Policy, Space> const& tensor, std::int64_t width, Padding padding = Padding::zeros)
      : Halo(tensor, same_everywhere(width), padding) {}

  /// Begins to send; the owned cells may be read meanwhile.
  void start(Tensor<T, SpatialRank, Policy, Space> const& tensor) { exchange_.start(plan_, tensor.tile()); }
  /// Defines every halo cell.
  void finish(Tensor<T, SpatialRank, Policy, Space> const& tensor) { exchange_.finish(tensor.tile()); }
  /// The adjoint: begins to send what lies on the halo back to its owners.
  void start_add(Tensor<T, SpatialRank, Policy, Space> const& tensor) { exchange_.start_add(plan_, tensor.tile()); }
  /// Adds what came back to the owned cells; the halo keeps its values.
  void finish_add(Tensor<T, SpatialRank, Policy, Space> const& tensor) { exchange_.finish_add(tensor.tile()); }

  void fill(Tensor<T, SpatialRank, Policy, Space> const& tensor) {
    start(tensor);
    finish(tensor);
  }

  ExchangePlan const& plan() const { return plan_; }

 private:
  static Widths same_everywhere(std::int64_t width) {
    Widths widths;
    widths.fill({width, width});
    return widths;
  }

  ExchangePlan plan_;
  Exchange<T, Space> exchange_;
};

/// Copies a tensor into one of another decomposition of the same shape, over the same ranks.
/// Moves: every cell whose owner changes, once. Fails: if the shapes differ.
template <class T, int SpatialRank, PartitionPolicy From, PartitionPolicy To, class Space>
void redistribute(Tensor<T, SpatialRank, From, Space> const& from, Tensor<T, SpatialRank, To, Space> const& to) {
  require(from.shape() == to.shape(), "redistribute", "both tensors must have the same shape, but they have ",
          from.shape(), " and ", to.shape());
  auto const plan = make_plan(from.shard().partition(), Region(to.shard().partition()), from.ranks().rank());
  Exchange<T, Space> exchange(from.ranks());
  exchange(plan, from.shard(), to.shard());
}

}  // namespace tessera
