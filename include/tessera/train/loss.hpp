// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/core/error.hpp"
#include "tessera/op/loss.hpp"
#include "tessera/train/loss_pass.hpp"

namespace tessera {

namespace detail {

/// The sum of a measure of each difference, and the number of elements.
template <class T, class Space, class Measure>
LossPart difference_loss(LossPass<T, Space> const& pass, Measure const& measure) {
  Shard<T, Space> const& prediction = pass.prediction;
  double const sum = pass.memory.sums.over(pass.space, prediction.owned(), 1,
                                           op::LossSum<T, Measure>{measure, prediction.tile(), pass.target})[0];
  if (pass.error != nullptr) {
    for_each_position(
        "tessera::loss", pass.space, pass.error->owned(),
        op::LossError<T, Measure>{measure, prediction.tile(), pass.target, pass.error->tile(), pass.divisor});
    pass.space.fence("tessera::loss");
  }
  return {sum, static_cast<double>(prediction.owned().volume())};
}

}  // namespace detail

/// Mean of (prediction - target)^2 over all elements of the whole batch.
///
/// Shape: the target has the prediction's. Moves: nothing.
struct MeanSquaredError {
  LossTarget target(Shape const& prediction) const { return {prediction}; }

  template <class T, class Space>
  LossPart operator()(LossPass<T, Space> const& pass) const {
    return detail::difference_loss(pass, op::SquaredDifference{});
  }
};

/// Mean of |prediction - target| over all elements of the whole batch; derivative 0 where they are equal.
///
/// Shape: the target has the prediction's. Moves: nothing.
struct MeanAbsoluteError {
  LossTarget target(Shape const& prediction) const { return {prediction}; }

  template <class T, class Space>
  LossPart operator()(LossPass<T, Space> const& pass) const {
    return detail::difference_loss(pass, op::AbsoluteDifference{});
  }
};

/// Mean over all elements of the whole batch of d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), with
/// d = prediction - target; as PyTorch's HuberLoss.
///
/// Shape: the target has the prediction's. Moves: nothing. Fails: if delta is not positive.
/// Source: Huber, "Robust Estimation of a Location Parameter", 1964.
struct HuberError {
  double delta = 1.0;

  LossTarget target(Shape const& prediction) const { return {prediction}; }

  template <class T, class Space>
  LossPart operator()(LossPass<T, Space> const& pass) const {
    require(delta > 0.0, "HuberError", "delta must be positive, it is ", delta);
    return detail::difference_loss(pass, op::HuberDifference{delta});
  }
};

}  // namespace tessera
