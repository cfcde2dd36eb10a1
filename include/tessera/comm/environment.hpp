// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tessera/comm/mpi.hpp"
#include "tessera/core/error.hpp"

namespace tessera {

namespace detail {

/// Ends every rank with one line. Ranks that fail together (the same check fails on all) let the lowest one speak: the
/// others wait a moment, in which its MPI_Abort ends them.
[[noreturn]] inline void end_job(std::string const& message) {
  int initialized = 0, finalized = 0, rank = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  bool const running = initialized != 0 && finalized == 0;
  if (running) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank > 0) std::this_thread::sleep_for(std::chrono::milliseconds(600 + 100 * (rank < 20 ? rank : 20)));
  // In one piece: printf gives stderr pieces of 128 bytes (glibc 2.37), and what mpirun says may come between them.
  std::string const line = "tessera: error: " + message + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  if (running) MPI_Abort(MPI_COMM_WORLD, 3);
  std::_Exit(3);
}

[[noreturn]] inline void end_on_uncaught() {
  std::string message = "terminated without an exception";
  if (std::exception_ptr const thrown = std::current_exception()) {
    try {
      std::rethrow_exception(thrown);
    } catch (std::exception const& error) {
      message = error.what();
    } catch (...) {
      message = "an exception of unknown type was thrown";
    }
  }
  end_job(message);
}

inline int local_ranks(MPI_Comm comm) {
  MPI_Comm node = MPI_COMM_NULL;
  int count = 1;
  MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &count);
  MPI_Comm_free(&node);
  return count;
}

}  // namespace detail

/// Starts MPI and Kokkos where they are not running yet, and ends only what it started. Every rank of the job makes
/// one, unless the application has started both. An exception that nobody catches ends the whole job with one line,
/// instead of leaving the other ranks to wait.
///
/// Threads per rank: OMP_NUM_THREADS or --kokkos-num-threads if given, else cores of the node / ranks on the node.
class Environment {
 public:
  Environment(int& argc, char**& argv) : unwinding_(std::uncaught_exceptions()) {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized == 0) {
      int provided = 0;
      MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
      started_mpi_ = true;
    }
    previous_ = std::set_terminate(detail::end_on_uncaught);
    if (!Kokkos::is_initialized()) {
      start_kokkos(argc, argv);
      started_kokkos_ = true;
    }
  }

  Environment(Environment const&) = delete;
  Environment& operator=(Environment const&) = delete;

  ~Environment() {
    if (std::uncaught_exceptions() > unwinding_)
      detail::end_job(
          "an exception left the scope of tessera::Environment on this rank; catch it inside, or let it end "
          "the program");
    if (started_kokkos_) Kokkos::finalize();
    std::set_terminate(previous_);
    if (started_mpi_) MPI_Finalize();
  }

  /// All ranks of the job.
  Communicator<Mpi> world() const { return Communicator<Mpi>::borrow(MPI_COMM_WORLD); }

  /// Standard output on the first rank; what the others write goes nowhere.
  std::ostream& out() const {
    static std::ostream nowhere(nullptr);
    return world().rank() == 0 ? std::cout : nowhere;
  }

  /// Runs main's body: an exception is printed in one line, and ends all ranks with a non-zero exit.
  template <class Body>
  int guard(Body body) const {
    try {
      return body();
    } catch (std::exception const& error) {
      detail::end_job(error.what());
    }
  }

 private:
  /// Kokkos is given the arguments that are meant for it, which leave argv, and no others: it would answer --help.
  static void start_kokkos(int& argc, char** argv) {
    std::vector<std::string> words{argc > 0 ? argv[0] : "tessera"};
    int kept = argc > 0 ? 1 : 0;
    for (int i = 1; i < argc; ++i) {
      if (std::string_view(argv[i]).starts_with("--kokkos-"))
        words.emplace_back(argv[i]);
      else
        argv[kept++] = argv[i];
    }
    if (kept < argc) argv[kept] = nullptr;
    argc = kept;

    bool const chosen = std::getenv("OMP_NUM_THREADS") != nullptr || std::getenv("KOKKOS_NUM_THREADS") != nullptr ||
                        std::any_of(words.begin(), words.end(),
                                    [](std::string const& word) { return word.starts_with("--kokkos-num-threads"); });
    if (!chosen) {
      int const ranks = detail::local_ranks(MPI_COMM_WORLD);
      int const cores = static_cast<int>(std::thread::hardware_concurrency());
      int const threads = cores > ranks ? cores / ranks : 1;
      words.push_back("--kokkos-num-threads=" + std::to_string(threads));
      words.emplace_back("--kokkos-disable-warnings");
      int rank = 0;
      MPI_Comm_rank(MPI_COMM_WORLD, &rank);
      if (rank == 0)
        std::clog << "tessera: " << threads << (threads == 1 ? " thread" : " threads") << " on each of " << ranks
                  << (ranks == 1 ? " rank" : " ranks") << " of this node (OMP_NUM_THREADS chooses another number)\n";
    }
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    int count = static_cast<int>(words.size());
    Kokkos::initialize(count, pointers.data());
  }

  int unwinding_;
  bool started_mpi_ = false;
  bool started_kokkos_ = false;
  std::terminate_handler previous_ = nullptr;
};

/// A check that may come out differently on different ranks (a file, a folder): if it failed anywhere, every rank
/// throws the message of the lowest rank that failed. Collective; `failure` is empty where the check held.
inline void agree(Communicator<Mpi> const& ranks, std::string const& failure) {
  int const first = ranks.all_reduce(failure.empty() ? ranks.size() : ranks.rank(), Reduce::min);
  if (first == ranks.size()) return;
  std::int64_t length = static_cast<std::int64_t>(failure.size());
  ranks.broadcast(&length, 1, first);
  std::string message = failure;
  message.resize(static_cast<std::size_t>(length));
  ranks.broadcast(reinterpret_cast<std::uint8_t*>(message.data()), length, first);
  throw Error(message);
}

/// Runs `action` on every rank; if it throws on any of them, all throw that message. Collective.
template <class Action>
void agreed(Communicator<Mpi> const& ranks, Action action) {
  std::string failure;
  try {
    action();
  } catch (std::exception const& error) {
    failure = error.what();
    if (failure.empty()) failure = "an error without a message";
  }
  agree(ranks, failure);
}

}  // namespace tessera
