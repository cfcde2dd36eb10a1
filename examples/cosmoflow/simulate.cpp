// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "simulate.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "universe.hpp"
#include "universe_file.hpp"

namespace cosmoflow {
namespace {

void require(bool holds, std::string const& message) {
  if (!holds) throw std::runtime_error("simulate: " + message);
}

std::string text(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%g", value);
  return buffer.data();
}

void validate(SimulateOptions const& options) {
  UniverseShape const& shape = options.shape;
  require(!options.out.empty(), "--out must name a file; give one such as universes.h5");
  require(options.count >= 1,
          "--count must be at least 1, it is " + std::to_string(options.count) + "; ask for one universe or more");
  require(shape.size >= 4 && shape.size <= 4096, "--size must lie between 4 and 4096 voxels, it is " +
                                                     std::to_string(shape.size) + "; choose for example 32 or 64");
  require(shape.voxel >= 0.1 && shape.voxel <= 1000,
          "--voxel must lie between 0.1 and 1000 Mpc/h, it is " + text(shape.voxel) + "; choose for example 4");
  require(!shape.redshifts.empty(), "--redshifts must hold at least one redshift; give for example 0,0.5,1.5,3");
  for (double const z : shape.redshifts)
    require(z >= 0 && z <= 1000,
            "--redshifts must lie between 0 and 1000, one is " + text(z) + "; give for example 0,0.5,1.5,3");
  require(options.first_index <= std::numeric_limits<std::uint64_t>::max() - static_cast<std::uint64_t>(options.count),
          "--first-index plus --count must stay below 2^64; choose a smaller --first-index");
}

/// The failure of the lowest rank that has one, on all ranks; empty when none has. Collective.
std::string agreed(std::string failure, MPI_Comm comm) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  int who = failure.empty() ? ranks : rank;
  MPI_Allreduce(MPI_IN_PLACE, &who, 1, MPI_INT, MPI_MIN, comm);
  if (who == ranks) return {};
  int length = static_cast<int>(failure.size());
  MPI_Bcast(&length, 1, MPI_INT, who, comm);
  failure.resize(static_cast<std::size_t>(length));
  MPI_Bcast(failure.data(), length, MPI_CHAR, who, comm);
  return failure;
}

/// The text of what `work` throws; empty when it does not.
template <class Work>
std::string failure_of(Work work) {
  try {
    work();
  } catch (std::bad_alloc const&) {
    return "simulate: a rank's universe must fit in memory; lower --size or use fewer ranks per node";
  } catch (std::exception const& error) {
    return error.what();
  }
  return {};
}

/// A line on standard output at every tenth of the work, but not more than one each second.
class Progress {
 public:
  explicit Progress(std::int64_t count) : count_{count} {}

  void done(std::int64_t universes) {
    double const now = seconds();
    if (now - reported_ < 1 || 10 * universes / count_ == tenths_) return;
    reported_ = now;
    tenths_ = 10 * universes / count_;
    double const rate = static_cast<double>(universes) / now;
    std::printf("simulate: %lld of %lld universes, %.1f per second, %.0f s left\n", static_cast<long long>(universes),
                static_cast<long long>(count_), rate, static_cast<double>(count_ - universes) / rate);
    std::fflush(stdout);
  }

  void end(SimulateOptions const& options) const {
    std::printf("simulate: wrote '%s', %lld universes of %lld^3 voxels at %lld redshifts, in %.1f s\n",
                options.out.c_str(), static_cast<long long>(count_), static_cast<long long>(options.shape.size),
                static_cast<long long>(options.shape.channels()), seconds());
    std::fflush(stdout);
  }

 private:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  std::int64_t count_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double reported_ = 0;
  std::int64_t tenths_ = 0;
};

/// Makes and writes universe i of a file on rank i % ranks. Returns the agreed failure, if any.
std::string fill(SimulateOptions const& options, UniverseOffsets offsets, int rank, int ranks, MPI_Comm comm) {
  std::optional<UniverseFile> file;
  std::optional<UniverseSimulator> simulator;
  std::vector<std::int16_t> counts;
  std::string failure = failure_of([&] {
    file.emplace(options.out, offsets);
    if (rank >= options.count) return;
    simulator.emplace(options.shape);
    counts.resize(static_cast<std::size_t>(options.shape.values()));
  });
  failure = agreed(std::move(failure), comm);
  if (!failure.empty()) return failure;

  // Whether anybody failed is known one round late, so that nobody waits for the slowest rank of the present round.
  Progress progress{options.count};
  MPI_Request request = MPI_REQUEST_NULL;
  int failed = 0;
  int anyone_failed = 0;
  for (std::int64_t round = 0; round * ranks < options.count; ++round) {
    std::int64_t const i = round * ranks + rank;
    if (i < options.count && failure.empty())
      failure = failure_of([&] {
        auto const index = options.first_index + static_cast<std::uint64_t>(i);
        file->write(i, simulator->simulate(options.seed, index, counts), counts);
      });
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (anyone_failed != 0) break;
    if (rank == 0) progress.done(round * ranks);
    failed = failure.empty() ? 0 : 1;
    MPI_Iallreduce(&failed, &anyone_failed, 1, MPI_INT, MPI_MAX, comm, &request);
  }
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (failure.empty()) failure = failure_of([&] { file->finish(); });
  failure = agreed(std::move(failure), comm);
  if (!failure.empty()) return failure;

  if (rank == 0) failure = failure_of([&] { UniverseFile::commit(options.out); });
  failure = agreed(std::move(failure), comm);
  if (failure.empty() && rank == 0) progress.end(options);
  return failure;
}

/// Returns the agreed failure, if any; then nothing is left of the file.
std::string make_file(SimulateOptions const& options, MPI_Comm comm) {
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  UniverseOffsets offsets;
  std::string failure;
  if (rank == 0)
    failure = failure_of([&] {
      offsets = UniverseFile::create(options.out, options.shape, options.seed, options.first_index, options.count);
    });
  failure = agreed(std::move(failure), comm);
  if (!failure.empty()) return failure;
  MPI_Bcast(&offsets, static_cast<int>(sizeof offsets), MPI_BYTE, 0, comm);

  failure = fill(options, offsets, rank, ranks, comm);
  if (!failure.empty()) {
    if (rank == 0) UniverseFile::discard(options.out);
    MPI_Barrier(comm);
  }
  return failure;
}

}  // namespace

CLI::App* add_simulate(CLI::App& app, SimulateOptions& options) {
  auto* command = app.add_subcommand(
      "simulate",
      "Simulate universes of random cosmological parameters by second-order Lagrangian perturbation theory.\n"
      "The file holds x (universe, depth, height, width, redshift), particles per voxel as int16,\n"
      "and y (universe, 4), the parameters Omega_m, sigma_8, n_s and h scaled to [-1, 1].");
  auto& shape = options.shape;
  command->add_option("--out", options.out, "HDF5 file to write; replaces one of that name only when complete")
      ->type_name("FILE")
      ->required();
  command->add_option("--count", options.count, "how many universes")->type_name("N")->required();
  command->add_option("--size", shape.size, "voxels along each side of a universe, 4 or more; any number, even or odd")
      ->type_name("VOXELS")
      ->capture_default_str();
  command->add_option("--voxel", shape.voxel, "side of one voxel in Mpc/h")->type_name("LENGTH")->capture_default_str();
  command->add_option("--redshifts", shape.redshifts, "redshifts to look at, one channel of x each")
      ->type_name("Z,Z,...")
      ->delimiter(',')
      ->capture_default_str();
  // CLI11 2.1 reads -1 into an unsigned number as 2^64 - 1.
  auto const not_negative = [](std::string const& given) {
    return given.starts_with('-') ? "must not be negative, it is " + given : std::string{};
  };
  command->add_option("--seed", options.seed, "seed of the random numbers")
      ->type_name("N")
      ->check(not_negative)
      ->capture_default_str();
  command
      ->add_option("--first-index", options.first_index,
                   "number of the first universe; each depends on the seed and its number alone, so files with\n"
                   "ranges of numbers that do not overlap share no universe")
      ->type_name("N")
      ->check(not_negative)
      ->capture_default_str();
  return command;
}

void simulate(SimulateOptions const& options, MPI_Comm comm) {
  validate(options);
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm_dup(comm, &own);
  std::string const failure = make_file(options, own);
  MPI_Comm_free(&own);
  if (!failure.empty()) throw std::runtime_error(failure);
}

}  // namespace cosmoflow
