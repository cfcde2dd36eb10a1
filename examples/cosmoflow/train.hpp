// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "tessera/comm/environment.hpp"

namespace CLI {
class App;
}

namespace cosmoflow {

struct TrainOptions {
  std::string data, validation, metrics, weights, checkpoint;
  std::string split, network = "paper";
  std::int64_t batch = 16, micro_batch = 0, epochs = 30, every = 0, keep = 3, memory = -1, ahead = 2;
  double rate = 1e-3;
  std::uint64_t seed = 1;
  bool norm = true, flips = true, rotations = false, preload = false, decay = true, log_input = true, resume = false, use_previous = false;
};

/// Adds the subcommand `train`, which fills `options`.
CLI::App* add_train(CLI::App& app, TrainOptions& options);

/// Trains, validates and writes metrics and weights. Collective.
void train(TrainOptions const& options, tessera::Communicator<tessera::Mpi> const& world);

}  // namespace cosmoflow
