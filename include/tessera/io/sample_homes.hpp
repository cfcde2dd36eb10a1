// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"

namespace tessera::io {

/// Which sample block of the ranks keeps which sample, within a budget for each of its ranks. Follows from the order in
/// which samples are settled: ranks that do it alike agree.
class SampleHomes {
 public:
  static constexpr std::int64_t nowhere = -1;
  using Owner = std::function<std::int64_t(std::int64_t sample)>;

  SampleHomes() = default;
  /// `sample_bytes` is what one rank keeps of a sample, at most; `owner` chooses blocks, unless null.
  SampleHomes(std::int64_t samples, std::int64_t blocks, std::int64_t sample_bytes, std::int64_t budget, Owner owner)
      : home_(static_cast<std::size_t>(samples), nowhere),
        used_(static_cast<std::size_t>(blocks), 0),
        sample_bytes_(sample_bytes),
        budget_(budget),
        owner_(std::move(owner)) {}

  std::int64_t operator[](std::int64_t sample) const { return home_[static_cast<std::size_t>(sample)]; }
  std::int64_t kept() const { return kept_; }

  /// Gives a sample a home, if it has none and there is room: where the owner function says, else in the block that
  /// needs it first, or in the emptiest. Returns whether it came to one just now.
  bool settle(std::int64_t sample, std::int64_t needed_by) {
    std::int64_t& home = home_[static_cast<std::size_t>(sample)];
    if (home != nowhere) return false;
    auto const blocks = static_cast<std::int64_t>(used_.size());
    std::int64_t at = owner_ ? owner_(sample) : needed_by;
    require(0 <= at && at < blocks, "SampleStore", "the owner of sample ", sample, " must be one of the ", blocks,
            " sample blocks, but is ", at);
    if (!owner_ && !has_room(at)) at = std::min_element(used_.begin(), used_.end()) - used_.begin();
    if (!has_room(at)) return false;
    used_[static_cast<std::size_t>(at)] += sample_bytes_;
    home = at;
    ++kept_;
    return true;
  }

  void forget() {
    std::fill(home_.begin(), home_.end(), nowhere);
    std::fill(used_.begin(), used_.end(), 0);
    kept_ = 0;
  }

 private:
  bool has_room(std::int64_t block) const { return sample_bytes_ <= budget_ - used_[static_cast<std::size_t>(block)]; }

  std::vector<std::int64_t> home_;  ///< of each sample
  std::vector<std::int64_t> used_;  ///< bytes on each rank of a block, at most
  std::int64_t sample_bytes_ = 0, budget_ = 0, kept_ = 0;
  Owner owner_;
};

}  // namespace tessera::io
