// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "tessera/partition/axis.hpp"

namespace tessera {

namespace detail {

/// Stands before the named counts, so that a positional list such as {2, 2, 2} or {{}, 2} does not compile.
class CountsAreGivenByName {
 public:
  constexpr explicit CountsAreGivenByName() = default;
};

}  // namespace detail

/// How many blocks each axis is cut into. Written by name only: `{.sample = 2, .depth = 4}`.
struct Counts {
  detail::CountsAreGivenByName by_name = detail::CountsAreGivenByName();
  std::int64_t sample = 1;
  std::int64_t channel = 1;
  std::int64_t depth = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;

  constexpr std::int64_t operator[](AxisId axis) const {
    switch (axis) {
      case AxisId::sample: return sample;
      case AxisId::depth: return depth;
      case AxisId::height: return height;
      case AxisId::width: return width;
      case AxisId::channel: break;
    }
    return channel;
  }

  constexpr std::int64_t& operator[](AxisId axis) {
    switch (axis) {
      case AxisId::sample: return sample;
      case AxisId::depth: return depth;
      case AxisId::height: return height;
      case AxisId::width: return width;
      case AxisId::channel: break;
    }
    return channel;
  }

  /// The number of ranks that the counts make together; the largest number if it is larger than that.
  constexpr std::int64_t product() const {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    std::int64_t ranks = 1;
    for (std::int64_t const count : {sample, channel, depth, height, width}) {
      if (count > 0 && ranks > most / count) return most;
      ranks *= count;
    }
    return ranks;
  }

  friend constexpr bool operator==(Counts const& a, Counts const& b) {
    return a.sample == b.sample && a.channel == b.channel && a.depth == b.depth && a.height == b.height &&
           a.width == b.width;
  }
};

}  // namespace tessera
