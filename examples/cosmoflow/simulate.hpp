// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>

#include "universe.hpp"

namespace CLI {
class App;
}

namespace cosmoflow {

struct SimulateOptions {
  std::string out;
  std::int64_t count = 0;
  UniverseShape shape;
  std::uint64_t seed = 1;
  std::uint64_t first_index = 0;
};

/// Adds the subcommand `simulate`, which fills `options`, and returns it (its parsed() tells whether it was given).
CLI::App* add_simulate(CLI::App& app, SimulateOptions& options);

/// Simulates universes first_index ... first_index + count - 1 into one file. Collective; the file does not depend on
/// how many ranks share the work. A rank holds one universe at a time; rank 0 reports progress.
/// Fails: on every rank with the same std::runtime_error.
void simulate(SimulateOptions const& options, MPI_Comm comm);

}  // namespace cosmoflow
