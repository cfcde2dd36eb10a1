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

struct PredictOptions {
  std::string data, weights, out;
  std::string split, network = "paper";
  std::int64_t batch = 16;
  bool norm = true, log_input = true;
};

/// Adds the subcommand `predict`, which fills `options`.
CLI::App* add_predict(CLI::App& app, PredictOptions& options);

/// Predicts the parameters of every universe in a file with trained weights. Collective.
void predict(PredictOptions const& options, tessera::Communicator<tessera::Mpi> const& world);

}  // namespace cosmoflow
