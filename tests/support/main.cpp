// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The main program of every test: doctest on every rank at once. A line of output names its rank; rank 0 prints the
// summary, the others only what failed. All ranks agree on the verdict.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <mpi.h>

#include "tessera/comm/environment.hpp"

#include <chrono>
#include <cstdio>
#include <ostream>
#include <streambuf>
#include <string>
#include <thread>

namespace {

/// Writes whole lines to stdout at once, each behind the rank's number, so that ranks do not cut each other short and
/// nothing is lost when the job is aborted.
class RankLines : public std::streambuf {
 public:
  explicit RankLines(std::string prefix) : prefix_(std::move(prefix)) {}
  ~RankLines() override {
    if (!line_.empty()) overflow('\n');
  }

 protected:
  int overflow(int next) override {
    if (next == traits_type::eof()) return 0;
    line_ += static_cast<char>(next);
    if (next == '\n') {
      std::string const whole = prefix_ + line_;
      std::fwrite(whole.data(), 1, whole.size(), stdout);
      std::fflush(stdout);
      line_.clear();
    }
    return next;
  }

 private:
  std::string prefix_;
  std::string line_;
};

/// The worst result of all ranks. A rank that failed may have left the others inside a collective call that it will
/// never join: it waits for them a while, then ends the job.
int agree(int result, int rank) {
  int worst = result;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);
  auto const deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (int done = 0;;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done != 0) return worst;
    if (result != 0 && std::chrono::steady_clock::now() > deadline) {
      std::fprintf(stderr, "[%d] tests: this rank failed and the others did not arrive within 10 s; aborting\n", rank);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  tessera::Environment environment{argc, argv};
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  RankLines lines(ranks == 1 ? "" : "[" + std::to_string(rank) + "] ");
  std::ostream out(&lines);
  doctest::Context context;
  context.setCout(&out);
  context.setOption("no-intro", true);
  context.setOption("no-colors", true);
  context.setOption("minimal", rank != 0);
  if (ranks > 1) context.setOption("abort-after", 1);  // after a failure the ranks are no longer in step
  context.applyCommandLine(argc, argv);
  return agree(context.run(), rank);
}
