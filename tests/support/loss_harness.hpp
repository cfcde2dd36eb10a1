// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "support/host_tensor.hpp"
#include "support/layer_harness.hpp"
#include "tessera/comm/rank_grid.hpp"
#include "tessera/train/loss_pass.hpp"

namespace tessera::test {

/// One loss on this rank's parts of whole tensors, fed as Trainer feeds it.
template <class T>
class LossDriver {
 public:
  using Tensor = Shard<T, Host>;

  LossDriver(RankGrid<AnySplit> const& ranks, Partition const& partition)
      : ranks_(ranks), partition_(partition), own_(partition.owned(ranks.rank())) {}

  /// Value and error; the whole loss, and the derivative of the whole loss, follow from the count of all ranks.
  template <class L>
  LossDriver& run(L const& loss, HostTensor const& prediction, HostTensor const& target, bool with_error = true) {
    static_assert(Loss<L, T, Host>);
    LossTarget const wanted = loss.target(partition_.shape());
    expect(wanted.shape == target.shape, tessera::detail::text("the loss wants a target of ", wanted.shape));
    Box targets = own_;
    if (wanted.all_channels) targets[AxisId::channel] = {0, wanted.shape.channel};
    Tensor const x(partition_, ranks_.rank(), widened(own_));
    Tensor const t(partition_.scaled_to(wanted.shape), ranks_.rank(), widened(targets));
    error_ = Tensor(partition_, ranks_.rank(), widened(own_));
    for (Tensor const& shard : {x, t, error_})
      for_each_cell(shard.held(), [&](auto n, auto d, auto h, auto w, auto c) { shard(n, d, h, w, c) = nan; });
    fill(x, own_, prediction);
    fill(t, targets, target);
    LossPass<T, Host> const pass{.space = {},
                                 .ranks = ranks_,
                                 .prediction = x,
                                 .target = t.tile(),
                                 .targets = targets,
                                 .error = with_error ? &error_ : nullptr,
                                 .divisor = divisor_,
                                 .first_sample = 0,
                                 .samples = partition_.shape().sample,
                                 .memory = memory_};
    LossPart const here = loss(pass);
    double totals[2] = {here.sum, here.count};
    ranks_.world().all_reduce(totals, 2);
    sum_ = totals[0];
    count_ = totals[1];
    return *this;
  }

  double sum() const { return sum_; }
  double count() const { return count_; }
  double value() const { return count_ != 0.0 ? sum_ / count_ : 0.0; }
  Tensor const& error() const { return error_; }
  /// The derivative of the whole loss by a cell that this rank owns.
  double slope(std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t c) const {
    double const written = static_cast<double>(error_(n, d, h, w, c));
    return written * (count_ != 0.0 ? divisor_ / count_ : 0.0);
  }

  /// Throws if cells were written that are not this rank's.
  void expect_clean() const {
    for_each_cell(error_.held(), [&](auto n, auto d, auto h, auto w, auto c) {
      Box const cell{{{n, n + 1}, {d, d + 1}, {h, h + 1}, {w, w + 1}, {c, c + 1}}};
      if (!own_.contains(cell) && !std::isnan(error_(n, d, h, w, c)))
        throw Error(tessera::detail::text("the error was written outside the owned box, at ", cell));
    });
  }

 private:
  static constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  static constexpr double divisor_ = 12.0;  // any number must do

  /// Tensors in a network hold more than what is owned. What is empty has no position to hold more around.
  static Box widened(Box box) {
    if (box.empty()) return {};
    for (int a = 0; a < axis_count; ++a) box.axis[a] = {box.axis[a].begin - 1, box.axis[a].end + 1};
    return box;
  }
  static void fill(Tensor const& shard, Box const& box, HostTensor const& from) {
    for_each_cell(box, [&](auto n, auto d, auto h, auto w, auto c) {
      shard(n, d, h, w, c) = static_cast<T>(from.at(n, d, h, w, c));
    });
  }

  RankGrid<AnySplit> ranks_;
  Partition partition_;
  Box own_;
  Tensor error_;
  LossMemory<Host> memory_;
  double sum_ = 0.0, count_ = 0.0;
};

}  // namespace tessera::test
