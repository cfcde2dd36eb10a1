// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/op/binary_cross_entropy.hpp"
#include "tessera/train/loss_pass.hpp"
#include "tessera/train/target_check.hpp"

namespace tessera {

/// Sigmoid of each cell, and the cross entropy with a probability: the mean over all elements of the whole batch of
/// -(q t log s + (1 - t) log(1 - s)), as PyTorch's BCEWithLogitsLoss. The count is that of elements, whatever q.
///
/// Shape: the target has the prediction's. Moves: one number for the check of the target.
/// Fails: on every rank, for a target outside [0, 1]; for a pos_weight that is not one number, or one for each channel,
/// of at least 0.
struct BinaryCrossEntropy {
  std::vector<double> pos_weight = {};  ///< q: one for all channels, or one for each; none: 1

  LossTarget target(Shape const& prediction) const { return {prediction}; }

  template <class T, class Space>
  LossPart operator()(LossPass<T, Space> const& pass) const {
    Shard<T, Space> const& prediction = pass.prediction;
    double const* const weights = pass.memory.upload(weights_of(prediction.shape().channel));
    detail::check_targets(pass, op::ProbabilityRule{}, "BinaryCrossEntropy: a target must be within [0, 1]",
                          "; check the source");
    double const sum = pass.memory.sums.over(pass.space, prediction.owned(), 1,
                                             op::LogitLossSum<T>{prediction.tile(), pass.target, weights})[0];
    if (pass.error != nullptr) {
      for_each_position(
          "tessera::loss", pass.space, pass.error->owned(),
          op::LogitLossError<T>{prediction.tile(), pass.target, pass.error->tile(), weights, pass.divisor});
      pass.space.fence("tessera::loss");
    }
    return {sum, static_cast<double>(prediction.owned().volume())};
  }

 private:
  std::vector<double> weights_of(std::int64_t channels) const {
    auto const given = static_cast<std::int64_t>(pos_weight.size());
    require(given <= 1 || given == channels, "BinaryCrossEntropy",
            "pos_weight must be one number, or one for each of the ", channels, " channels, but there are ", given);
    for (double const q : pos_weight)
      require(q >= 0.0 && std::isfinite(q), "BinaryCrossEntropy",
              "pos_weight must be finite and not negative, but one is ", q);
    if (given == channels && given > 1) return pos_weight;
    return std::vector<double>(static_cast<std::size_t>(channels), given == 0 ? 1.0 : pos_weight[0]);
  }
};

}  // namespace tessera
