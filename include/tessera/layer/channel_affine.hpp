// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/ranks.hpp"
#include "tessera/layer/parameter.hpp"
#include "tessera/op/reduce.hpp"
#include "tessera/tensor/run.hpp"

namespace tessera {

/// The learnt scale and shift per channel after a normalisation: 1 and 0 where they are not learnt. Every rank holds
/// them whole and adds to the gradients of the channels that it owns.
template <class T, class Space>
class ChannelAffine {
 public:
  ChannelAffine(Ranks const& ranks, std::string const& name, std::int64_t channels, bool learnt) : channels_(channels) {
    if (!learnt) return;
    for (auto const& [word, start] : {std::pair("weight", 1.0), std::pair("bias", 0.0)})
      learnt_.push_back(
          Parameter<T, Space>::replicated(name + "." + word, {word, {channels}, {0}, Initial::value(start)}, ranks));
  }

  void allocate() {
    staging_.resize(static_cast<std::size_t>(channels_));
    if (learns()) return;
    given_.grow(2 * channels_);
    fill_flat(space_, given_.data(), channels_, T(1));
    fill_flat(space_, given_.data() + channels_, channels_, T(0));
    space_.fence("tessera::ChannelAffine");
  }

  bool learns() const { return !learnt_.empty(); }
  std::int64_t count() const { return learns() ? 2 * channels_ : 0; }
  T const* scale() const { return learns() ? learnt_[0].value() : given_.data(); }
  T const* shift() const { return learns() ? learnt_[1].value() : given_.data() + channels_; }

  /// The scale of some channels, on the host, valid until the next call.
  T const* scale_of(Interval channels) {
    copy_flat<Host, Space, T>(staging_.data(), scale() + channels.begin, channels.size());
    return staging_.data();
  }

  /// Adds to the gradients of some channels: sums of dy times the normalised x, and of dy.
  void add_to_gradients(Interval channels, double const* scale_sums, double const* shift_sums) {
    if (!learns() || !learnt_[0].trainable()) return;
    add_(space_, learnt_[0].gradient() + channels.begin, scale_sums, channels.size());
    add_(space_, learnt_[1].gradient() + channels.begin, shift_sums, channels.size());
  }

  void for_each_parameter(std::function<void(Parameter<T, Space>&)> const& visit) {
    for (auto& parameter : learnt_) visit(parameter);
  }

 private:
  using Host = Kokkos::DefaultHostExecutionSpace;

  std::int64_t channels_;
  Space space_;
  std::vector<Parameter<T, Space>> learnt_;  ///< scale and shift, or nothing
  Storage<T, Space> given_;                  ///< what stands for them: ones, then zeros
  std::vector<T> staging_;
  op::AddFromHost<T, Space> add_;
};

}  // namespace tessera
