// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace tessera {

/// What fit reports after an epoch; the same on every rank.
struct EpochReport {
  std::int64_t epoch = 0;  ///< from 1
  double train_loss = 0.0;
  double validation_loss = 0.0;  ///< NaN without a validation source
  double seconds = 0.0;          ///< of this epoch
  std::int64_t step = 0;         ///< optimizer steps at its end
};

/// Where a training stands, apart from the numbers in network and optimizer: with those, all that fit needs in order to
/// go on as if it had not stopped. Random streams and schedules follow from the seed, the optimizer's step and the
/// sample, so that they need no state of their own.
struct TrainingState {
  std::int64_t epoch = 0;         ///< epochs that are over
  std::int64_t samples_done = 0;  ///< of the epoch under way
  double loss_sum = 0.0;          ///< over these samples
  double seconds = 0.0;           ///< since the training began
  double epoch_seconds = 0.0;     ///< since the epoch began
  std::vector<EpochReport> reports = {};

  /// What must be the same when the training goes on; `samples` are those of the source.
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::int64_t batch = 0;
  std::int64_t samples = 0;

  /// Whether nothing was done yet.
  bool is_new() const { return epoch == 0 && samples_done == 0; }
};

}  // namespace tessera
