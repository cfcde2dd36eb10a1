// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/op/norm.hpp"
#include "tessera/op/reduce.hpp"
#include "tessera/tensor/shard.hpp"

namespace tessera {

/// Adds the sums of an error over positions, in double, to the gradient of a bias.
template <class T, class Space>
class BiasGradient {
 public:
  /// The gradient is that of the owned channels.
  void operator()(Space const& space, Shard<T, Space> const& dy, T* gradient) {
    std::int64_t const channels = dy.owned().axis[4].size();
    double const* const sums = sums_.over(space, dy.owned(), channels, op::ChannelSum<T>{dy.tile()});
    if (!dy.owned().empty()) add_(space, gradient, sums, channels);
  }

 private:
  op::Sums<Space> sums_;
  op::AddFromHost<T, Space> add_;
};

}  // namespace tessera
