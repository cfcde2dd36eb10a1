// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

#include "tessera/comm/ranks.hpp"
#include "tessera/op/reduce.hpp"
#include "tessera/partition/shape.hpp"
#include "tessera/tensor/shard.hpp"

namespace tessera {

/// What a loss averages over.
enum class Reduction {
  batch,   ///< the whole batch at once
  samples  ///< each sample by itself, then the mean over samples
};

/// The target that a loss compares a prediction with.
struct LossTarget {
  Shape shape;  ///< samples and space as the prediction
  /// Whether each rank reads all channels of the target at its own positions. Else the target's channels are cut as the
  /// prediction's are.
  bool all_channels = false;
};

/// One rank's part of a loss, which is the global sum / the global count over all ranks and micro-batches of a batch. A
/// loss of count 0 is 0, and so is its gradient.
struct LossPart {
  double sum = 0.0;
  double count = 0.0;

  LossPart& operator+=(LossPart const& other) {
    sum += other.sum;
    count += other.count;
    return *this;
  }
};

/// Memory that a loss uses anew in each pass.
template <class Space>
struct LossMemory {
  op::Sums<Space> sums;
  Storage<double, Space> positions;     ///< numbers per position
  Storage<double, Space> coefficients;  ///< numbers that the host computed
  std::vector<double> host;

  /// The coefficients on the device, a copy of `values`.
  double const* upload(std::vector<double> const& values) {
    auto const count = static_cast<std::int64_t>(values.size());
    coefficients.grow(count);
    copy_flat<Space, Kokkos::DefaultHostExecutionSpace>(coefficients.data(), values.data(), count);
    return coefficients.data();
  }

  /// Combines numbers in the memory of the execution space over ranks.
  void all_reduce(Communicator<Mpi> const& ranks, double* values, std::int64_t count, Reduce reduce) {
    if (ranks.size() == 1) return;
    if constexpr (host_can_access<Space>) {
      ranks.all_reduce(values, count, reduce);
    } else {
      using Host = Kokkos::DefaultHostExecutionSpace;
      host.resize(static_cast<std::size_t>(count));
      copy_flat<Host, Space, double>(host.data(), values, count);
      ranks.all_reduce(host.data(), count, reduce);
      copy_flat<Space, Host, double>(values, host.data(), count);
    }
  }
};

/// What a loss is given: this rank's part of a prediction and of its target.
template <class T, class Space>
struct LossPass {
  Space space;
  Ranks const& ranks;  ///< of the prediction; whatever a loss asks of them, every rank asks it in the same order
  Shard<T, Space> const& prediction;
  Tile<T const> target;
  Box targets;                   ///< the cells of `target` that are there
  Shard<T, Space> const* error;  ///< to be written on all that the rank owns, unless it is null
  double divisor;                ///< the error is the derivative of the global sum / divisor
  std::int64_t first_sample;     ///< of a micro-batch within the batch
  std::int64_t samples;          ///< of the whole batch
  LossMemory<Space>& memory;
};

/// A loss says which target it wants, and computes its rank's part of sum and count. It writes the error, the
/// derivative of the global *sum* by the prediction over `divisor`; the optimizer's step multiplies gradients by
/// divisor / count, when the count is known. Every rank calls it, with an empty box too. It is a value: copies compute
/// the same.
template <class L, class T, class Space>
concept Loss = requires(L const& loss, Shape const& prediction, LossPass<T, Space> const& pass) {
  { loss.target(prediction) } -> std::convertible_to<LossTarget>;
  { loss(pass) } -> std::convertible_to<LossPart>;
};

}  // namespace tessera
