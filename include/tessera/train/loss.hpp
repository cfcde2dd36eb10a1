// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/comm/mpi.hpp"
#include "tessera/op/loss.hpp"
#include "tessera/op/reduce.hpp"
#include "tessera/tensor/shard.hpp"

namespace tessera {

namespace detail {

/// A loss that is the global sum of a measure of each difference / the global number of elements.
template <class Measure>
struct DifferenceLoss {
  /// This rank's part of the sum. Writes the derivative by the prediction, of the loss over `count` elements, into the
  /// error unless it is null.
  template <class T, class Space>
  double operator()(Space const& space, op::Sums<Space>& sums, Shard<T, Space> const& prediction,
                    Tile<std::type_identity_t<T> const> const& target, Shard<T, Space> const* error,
                    double count) const {
    double const sum =
        sums.over(space, prediction.owned(), 1, op::LossSum<T, Measure>{Measure{}, prediction.tile(), target})[0];
    if (error != nullptr) {
      for_each_position("tessera::loss", space, error->owned(),
                        op::LossError<T, Measure>{Measure{}, prediction.tile(), target, error->tile(), count});
      space.fence("tessera::loss");
    }
    return sum;
  }
};

}  // namespace detail

/// Mean of (prediction - target)^2 over all elements of the whole batch.
struct MeanSquaredError : detail::DifferenceLoss<op::SquaredDifference> {};

/// Mean of |prediction - target| over all elements of the whole batch; derivative 0 where they are equal.
struct MeanAbsoluteError : detail::DifferenceLoss<op::AbsoluteDifference> {};

}  // namespace tessera
