// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/core/error.hpp"
#include "tessera/io/checkpoint.hpp"
#include "tessera/io/training_state.hpp"

namespace tessera::io {

/// Which value of a metric is the better one.
enum class Better { lower, higher };

/// The loss on the validation source; without one, the loss of training.
inline double loss_of(EpochReport const& report) {
  return std::isnan(report.validation_loss) ? report.train_loss : report.validation_loss;
}

struct CheckpointOptions {
  std::int64_t every = 0;     ///< optimizer steps between two checkpoints; 0: at the ends of epochs alone
  std::int64_t keep = 3;      ///< how many of the newest stay, besides the best
  bool resume = false;        ///< go on from the newest checkpoint, if there is one
  bool use_previous = false;  ///< where the newest one cannot be used, go on from the newest that can
  bool finite = false;        ///< refuse checkpoints with values that are infinite, or not a number
  std::function<double(EpochReport const&)> metric = loss_of;
  Better better = Better::lower;
};

/// What a training goes on from: a file, or nothing if it begins; and why newer files could not be used.
struct Resumed {
  std::string path, refused;
};

/// What a training must show to have checkpoints: Trainer does.
template <class R>
concept Resumable = requires(R& run) {
  run.model().input_ranks();
  run.optimizer().steps();
};

/// A folder of checkpoints of one training, `checkpoint-<optimizer steps>.h5`: the newest ones, and the one at the end
/// of the best epoch.
class CheckpointFolder {
 public:
  /// Makes the folder if it is not there. Collective over `ranks`, the ranks of the training.
  /// Fails: on every rank, if the folder cannot be made or written to.
  CheckpointFolder(Communicator<Mpi> const& ranks, std::string folder, CheckpointOptions options = {})
      : ranks_(ranks), folder_(std::move(folder)), options_(std::move(options)) {
    require(options_.keep >= 1, "CheckpointFolder", "at least 1 checkpoint must be kept, not ", options_.keep);
    agreed(ranks_, [&] {
      if (ranks_.rank() != 0) return;
      std::error_code failed;
      std::filesystem::create_directories(folder_, failed);
      require(!failed, "CheckpointFolder", "the folder '", folder_, "' must be there, or creatable (", failed.message(),
              "); choose another");
      check_place("CheckpointFolder", path_of(0));
      detail::sync_folder_of("CheckpointFolder", folder_);
      for (auto const& entry : std::filesystem::directory_iterator(folder_))  // left by a job that was ended
        if (std::string const name = entry.path().filename().string();
            name.starts_with("checkpoint-") && name.ends_with(".h5.part"))
          std::filesystem::remove(entry.path());
    });
  }

  /// Lets fit(options) write checkpoints of `run` here, and begin where the newest one ends if it shall resume. `run`
  /// and this folder must outlive the fit. Collective.
  ///
  /// Fails: on every rank, if there is something to resume but that was not asked for, or the newest checkpoint cannot
  /// be used: with its name, the reason, and the newest one that can.
  template <Resumable Run, class FitOptions>
  Resumed attach(Run& run, FitOptions& options) {
    require(!options.on_checkpoint && options.checkpoint_every == 0, "CheckpointFolder",
            "fit is given on_checkpoint and checkpoint_every already; leave them to the folder");
    if (run.model().capacity() == 0) run.model().allocate(1, options.seed);  // as a training that begins would
    options.checkpoint_every = options_.every;
    options.on_checkpoint = [this, &run](TrainingState const& state) { save(run, state); };
    std::vector<std::int64_t> const there = steps();
    require(there.empty() || options_.resume, "CheckpointFolder", "the folder '", folder_,
            "' holds checkpoints of an earlier training, '", there.empty() ? "" : path_of(there.back()),
            "' is the newest; resume it, or choose another folder");
    if (there.empty()) return {};
    auto [resumed, state] = load_newest(run, there);
    options.start = std::move(state);
    return resumed;
  }

  /// Writes a checkpoint, then removes those that need not stay. Collective.
  template <Resumable Run>
  void save(Run& run, TrainingState const& state) {
    save_checkpoint(run.model(), run.optimizer(), state, path_of(run.optimizer().steps()));
    std::string const kept = best(state);
    agreed(ranks_, [&] {
      if (ranks_.rank() != 0) return;
      std::vector<std::int64_t> all = listed();
      auto const newest = static_cast<std::size_t>(options_.keep);
      for (std::size_t i = 0; i + newest < all.size(); ++i)
        if (path_of(all[i]) != kept) std::filesystem::remove(path_of(all[i]));
    });
  }

  /// The newest checkpoint, or nothing. Collective.
  std::string latest() const {
    auto const all = steps();
    return all.empty() ? std::string() : path_of(all.back());
  }

  /// The checkpoint at the end of the epoch whose metric is best, or nothing before the first epoch's end.
  std::string best(TrainingState const& state) const {
    EpochReport const* found = nullptr;
    double value = std::nan("");
    for (EpochReport const& report : state.reports) {
      double const other = options_.metric(report);
      bool const better = options_.better == Better::lower ? other < value : other > value;
      if (std::isnan(other) || (found != nullptr && !better)) continue;
      found = &report;
      value = other;
    }
    return found != nullptr ? path_of(found->step) : std::string();
  }

 private:
  std::string path_of(std::int64_t step) const {
    char name[48] = {};
    std::snprintf(name, sizeof name, "checkpoint-%010lld.h5", static_cast<long long>(step));
    return folder_ + "/" + name;
  }

  /// The steps of the checkpoints in the folder, ascending.
  std::vector<std::int64_t> listed() const {
    std::vector<std::int64_t> found;
    for (auto const& entry : std::filesystem::directory_iterator(folder_)) {
      long long step = 0;
      std::string const name = entry.path().filename().string();
      if (std::sscanf(name.c_str(), "checkpoint-%lld", &step) == 1 && folder_ + "/" + name == path_of(step))
        found.push_back(step);
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  /// The same, as the first rank sees them.
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> found;
    agreed(ranks_, [&] {
      if (ranks_.rank() == 0) found = listed();
    });
    auto count = static_cast<std::int64_t>(found.size());
    ranks_.broadcast(&count, 1, 0);
    found.resize(static_cast<std::size_t>(count));
    ranks_.broadcast(found.data(), count, 0);
    return found;
  }

  /// Loads the newest checkpoint that can be used, if it is the newest of all or use_previous allows it. Newer ones get
  /// names under which they are none.
  template <class Run>
  std::pair<Resumed, TrainingState> load_newest(Run& run, std::vector<std::int64_t> const& there) {
    std::string refusal;
    for (auto step = there.rbegin(); step != there.rend(); ++step) {
      std::string const path = path_of(*step);
      auto const found = usable(run, path, refusal);
      if (!found) continue;
      require(refusal.empty() || options_.use_previous, "CheckpointFolder", refusal,
              "; the previous good checkpoint is '", path, "': allow use-previous to go on from it");
      agreed(ranks_, [&] {
        for (std::int64_t const newer : there)
          if (newer > *step && ranks_.rank() == 0)
            std::filesystem::rename(path_of(newer), path_of(newer) + ".unusable");
      });
      return {{path, refusal}, found->set(run.model(), run.optimizer())};
    }
    require(there.size() < 2, "CheckpointFolder", refusal, "; nor can any other checkpoint in '", folder_, "' be used");
    throw Error(refusal);
  }

  /// The checkpoint, read and checked, or nothing; the first refusal is kept.
  template <class Run>
  auto usable(Run& run, std::string const& path, std::string& refusal) const {
    using Found = decltype(Checkpoint(run.model(), run.optimizer(), path));
    std::optional<Found> found;
    try {
      found.emplace(run.model(), run.optimizer(), path, CheckpointChecks{options_.finite});
    } catch (Error const& error) {
      if (refusal.empty()) refusal = error.what();
    }
    return found;
  }

  Communicator<Mpi> ranks_;
  std::string folder_;
  CheckpointOptions options_;
};

}  // namespace tessera::io
