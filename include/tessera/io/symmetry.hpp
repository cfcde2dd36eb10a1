// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "tessera/op/random.hpp"
#include "tessera/partition/box.hpp"
#include "tessera/partition/shape.hpp"

namespace tessera::io {

/// A volume turned by quarters and mirrored: cell o along spatial axis a is the cell that lies, along axis `from[a]` of
/// the original, at o or, if mirrored, at n - 1 - o. Depth, height and width are axes 0, 1 and 2.
struct Symmetry {
  std::array<int, 3> from{0, 1, 2};
  std::array<bool, 3> mirrored{};

  bool is_identity() const { return *this == Symmetry{}; }

  /// The cells of an original of this shape that become those of `box`.
  Box original(Box const& box, Shape const& shape) const {
    Box cells = box;
    for (std::size_t a = 0; a < 3; ++a) {
      Interval const along = box.axis[a + 1];
      std::int64_t const n = shape[static_cast<AxisId>(from[a] + 1)];
      cells.axis[from[a] + 1] = mirrored[a] ? Interval{n - along.end, n - along.begin} : along;
    }
    return cells;
  }

  friend constexpr bool operator==(Symmetry const&, Symmetry const&) = default;
};

/// Which symmetries samples are given in training, at random for each sample and epoch.
struct Augmentation {
  bool flips = false;      ///< mirrors each axis or not
  bool rotations = false;  ///< turns by quarters, about axes around which the volume keeps its extents
  std::uint64_t seed = 0;

  /// The same on every rank, whatever the decomposition. All allowed symmetries are equally likely.
  Symmetry draw(std::uint64_t epoch, std::int64_t sample, Shape const& shape) const {
    Symmetry symmetry;
    if (!flips && !rotations) return symmetry;
    RandomStream const random = random_stream(seed, "augmentation", epoch);
    std::uint32_t const mirrors = random.word(2 * sample), order = random.word(2 * sample + 1);
    std::array<std::int64_t, 3> const extent{shape.depth, shape.height, shape.width};
    if (rotations) {
      constexpr std::array<std::array<int, 3>, 6> orders{
          {{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}, {1, 0, 2}, {2, 1, 0}}};
      std::array<std::array<int, 3>, 6> kept{};
      std::uint32_t count = 0;
      for (auto const& candidate : orders) {
        bool keeps = true;
        for (std::size_t a = 0; a < 3; ++a)
          keeps = keeps && extent[a] == extent[static_cast<std::size_t>(candidate[a])];
        // Axes of one cell each are not worth turning, and would only stand for mirrors of the third.
        for (std::size_t a = 0; a < 3; ++a) keeps = keeps && (extent[a] > 1 || candidate[a] == static_cast<int>(a));
        if (keeps) kept[count++] = candidate;
      }
      symmetry.from = kept[order % count];
    }
    int last = -1;
    bool odd = false;
    for (std::size_t a = 0; a < 3; ++a) {
      if (extent[a] == 1) continue;
      symmetry.mirrored[a] = (mirrors >> a & 1u) != 0;
      odd = odd != symmetry.mirrored[a];
      last = static_cast<int>(a);
    }
    if (flips && !rotations) return symmetry;
    if (flips || last < 0) return symmetry;
    // A turn alone has determinant 1.
    auto const& f = symmetry.from;
    bool const swapped = f[0] == 0 ? f[1] == 2 : f[0] == 1 ? f[1] == 0 : f[1] == 1;
    if (odd != swapped) {
      auto const a = static_cast<std::size_t>(last);
      symmetry.mirrored[a] = !symmetry.mirrored[a];
    }
    return symmetry;
  }
};

}  // namespace tessera::io
