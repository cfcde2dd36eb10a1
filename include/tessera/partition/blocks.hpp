// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/partition/interval.hpp"

namespace tessera {

/// Block i of n cells cut into `parts` balanced blocks: the first n % parts blocks hold one cell more. The only place
/// where remainders are decided. parts may exceed n; then the last blocks are empty.
constexpr Interval block_range(std::int64_t n, std::int64_t parts, std::int64_t i) {
  std::int64_t const each = n / parts, longer = n % parts;
  std::int64_t const begin = i * each + smaller(i, longer);
  return {begin, begin + each + (i < longer ? 1 : 0)};
}

/// The balanced block that owns cell g, 0 <= g < n.
constexpr std::int64_t block_owner(std::int64_t n, std::int64_t parts, std::int64_t g) {
  std::int64_t const each = n / parts, longer = n % parts, turn = longer * (each + 1);
  return g < turn ? g / (each + 1) : longer + (g - turn) / each;
}

/// One axis cut into consecutive blocks: balanced, or at boundaries that the application gives.
class Blocks {
 public:
  constexpr Blocks() = default;

  /// n cells in `parts` balanced blocks.
  constexpr Blocks(std::int64_t n, std::int64_t parts) : extent_(n), parts_(parts) {
    require(n >= 0, "Blocks", "the extent must not be negative, it is ", n);
    require(parts >= 1, "Blocks", "the number of blocks must be at least 1, it is ", parts);
  }

  /// Blocks [boundaries[i], boundaries[i+1]); must start at 0 and never decrease. Equal neighbours make an empty block.
  static constexpr Blocks at(std::vector<std::int64_t> boundaries) {
    require(boundaries.size() >= 2, "Blocks::at", "needs at least two boundaries, got ", boundaries.size());
    require(boundaries.front() == 0, "Blocks::at", "the first boundary must be 0, it is ", boundaries.front());
    for (std::size_t i = 1; i < boundaries.size(); ++i)
      require(boundaries[i - 1] <= boundaries[i], "Blocks::at", "boundaries must not decrease, but ", boundaries[i],
              " follows ", boundaries[i - 1]);
    Blocks blocks(boundaries.back(), static_cast<std::int64_t>(boundaries.size()) - 1);
    blocks.boundaries_ = std::move(boundaries);
    return blocks;
  }

  constexpr std::int64_t extent() const { return extent_; }
  constexpr std::int64_t parts() const { return parts_; }
  constexpr bool balanced() const { return boundaries_.empty(); }

  constexpr Interval operator[](std::int64_t i) const {
    if (balanced()) return block_range(extent_, parts_, i);
    auto const at = static_cast<std::size_t>(i);
    return {boundaries_[at], boundaries_[at + 1]};
  }

  /// The block that owns cell g, 0 <= g < extent.
  constexpr std::int64_t owner(std::int64_t g) const {
    if (balanced()) return block_owner(extent_, parts_, g);
    return std::upper_bound(boundaries_.begin(), boundaries_.end(), g) - boundaries_.begin() - 1;
  }

  /// The blocks [first, last) between which the cells of `cells` (within the extent) lie; blocks among them may be
  /// empty if the boundaries were given.
  constexpr Interval owners(Interval cells) const {
    if (cells.empty()) return {};
    return {owner(cells.begin), owner(cells.end - 1) + 1};
  }

  /// The blocks of an axis of m cells that is computed from this one: the same cut when m is the extent, balanced when
  /// this one is, else cut at proportional places, so that work stays where its input is.
  constexpr Blocks scaled_to(std::int64_t m) const {
    if (balanced()) return Blocks(m, parts_);
    if (m == extent_) return *this;
    std::vector<std::int64_t> cut(boundaries_.size(), 0);
    for (std::size_t i = 1; i < cut.size(); ++i) cut[i] = extent_ == 0 ? m : ceil_div(boundaries_[i] * m, extent_);
    return at(std::move(cut));
  }

  friend constexpr bool operator==(Blocks const& a, Blocks const& b) {
    if (a.extent_ != b.extent_ || a.parts_ != b.parts_) return false;
    if (a.balanced() && b.balanced()) return true;
    for (std::int64_t i = 0; i < a.parts_; ++i)
      if (a[i].begin != b[i].begin || a[i].end != b[i].end) return false;
    return true;
  }

 private:
  std::int64_t extent_ = 0;
  std::int64_t parts_ = 1;
  std::vector<std::int64_t> boundaries_;
};

}  // namespace tessera
