// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>

#include "tessera/partition/axis.hpp"
#include "tessera/partition/box.hpp"

namespace tessera {

/// The global extents of a tensor. Axes that a 1-D or 2-D problem lacks have extent 1.
struct Shape {
  std::int64_t sample = 1;
  std::int64_t depth = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channel = 1;

  constexpr std::int64_t operator[](AxisId axis) const {
    return std::array{sample, depth, height, width, channel}[static_cast<std::size_t>(axis)];
  }

  constexpr std::int64_t volume() const { return sample * depth * height * width * channel; }

  constexpr Box box() const { return {{{0, sample}, {0, depth}, {0, height}, {0, width}, {0, channel}}}; }

  constexpr Shape with_samples(std::int64_t n) const { return {n, depth, height, width, channel}; }
  constexpr Shape with_channels(std::int64_t c) const { return {sample, depth, height, width, c}; }

  friend constexpr bool operator==(Shape const&, Shape const&) = default;
  friend std::ostream& operator<<(std::ostream& out, Shape const& s) {
    return out << '(' << s.sample << ", " << s.depth << ", " << s.height << ", " << s.width << ", " << s.channel << ')';
  }
};

/// The shape of a tensor of `Rank` spatial axes: the last ones are in use, width for 1-D, height and width for 2-D.
template <std::size_t Rank>
constexpr Shape shape_of(std::int64_t samples, std::array<std::int64_t, Rank> const& space, std::int64_t channels) {
  static_assert(1 <= Rank && Rank <= 3, "tessera: there are 1, 2 or 3 spatial axes");
  std::array<std::int64_t, 3> full{1, 1, 1};
  for (std::size_t i = 0; i < Rank; ++i) full[3 - Rank + i] = space[i];
  return {samples, full[0], full[1], full[2], channels};
}

}  // namespace tessera
