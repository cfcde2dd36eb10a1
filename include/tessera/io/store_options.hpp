// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include "tessera/io/symmetry.hpp"

namespace tessera::io {

/// What a SampleStore keeps, and how it reads.
struct StoreOptions {
  /// How much each rank keeps in memory. What does not fit is read again each time; 0: nothing is kept. Give one where
  /// the samples may be more than the memory.
  std::int64_t budget_bytes = std::numeric_limits<std::int64_t>::max();
  bool preload = false;            ///< read everything that fits at once, when the store is made
  int ahead = 2;                   ///< micro-batches whose files are read behind the ones before; 0: none
  Augmentation augmentation = {};  ///< of training samples; labels of cells follow
  /// Which sample block of the ranks keeps a sample; without it the one that first needs it, or one with room.
  std::function<std::int64_t(std::int64_t sample)> owner = nullptr;
};

}  // namespace tessera::io
