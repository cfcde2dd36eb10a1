// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The main program of every test: doctest on every rank at once. A line of output names its rank; rank 0 prints the
// summary, the others only what failed. All ranks agree on the verdict.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <mpi.h>

#include "tessera/comm/environment.hpp"

#include "support/replay.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <sstream>
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

/// Tells properties which test case they are in.
struct CaseNames : doctest::IReporter {
  explicit CaseNames(doctest::ContextOptions const&) {}
  void test_case_start(doctest::TestCaseData const& test) override {
    tessera::test::this_run().test_case = test.m_name;
  }
  void report_query(doctest::QueryData const&) override {}
  void test_run_start() override {}
  void test_run_end(doctest::TestRunStats const&) override {}
  void test_case_reenter(doctest::TestCaseData const&) override {}
  void test_case_end(doctest::CurrentTestCaseStats const&) override {}
  void test_case_exception(doctest::TestCaseException const&) override {}
  void subcase_start(doctest::SubcaseSignature const&) override {}
  void subcase_end() override {}
  void log_assert(doctest::AssertData const&) override {}
  void log_message(doctest::MessageData const&) override {}
  void test_case_skipped(doctest::TestCaseData const&) override {}
};
REGISTER_LISTENER("case names", 0, CaseNames);

/// The environment variable of the first rank, on every rank.
std::string from_first_rank(char const* variable, int rank) {
  char const* const given = rank == 0 ? std::getenv(variable) : nullptr;
  std::string text = given != nullptr ? given : "";
  int length = static_cast<int>(text.size());
  MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD);
  text.resize(static_cast<std::size_t>(length));
  MPI_Bcast(text.data(), length, MPI_CHAR, 0, MPI_COMM_WORLD);
  return text;
}

/// <folder>/<file>.<ranks>, as ctest says, or as the program's path below tests/ does.
std::string program_name(std::string const& given, std::string path, int ranks) {
  if (!given.empty()) return given;
  if (auto const tests = path.rfind("/tests/"); tests != std::string::npos) path = path.substr(tests + 7);
  return path + "." + std::to_string(ranks);
}

/// A filter for the test case with this hash.
std::string filter_for(std::uint32_t hash) {
  std::stringstream list;
  doctest::Context names;
  names.setCout(&list);
  char const* const arguments[] = {"tests", "--list-test-cases", "--no-colors=true"};
  names.applyCommandLine(3, arguments);
  names.run();
  for (std::string name; std::getline(list, name);)
    if (tessera::test::hash_of(name) == hash) {
      for (char& c : name)
        if (c == ',' || c == '"' || c == '*' || c == '\\') c = '?';  // what a filter would take for its own
      return name;
    }
  throw tessera::Error("TESSERA_REPLAY: the test case must be there, but it is not; was it renamed since?");
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

  auto& run = tessera::test::this_run();
  run.program = program_name(from_first_rank("TESSERA_TEST", rank), argv[0], ranks);
  if (std::string const line = from_first_rank("TESSERA_REPLAY", rank); !line.empty()) {
    run.replay = tessera::test::parse_replay(line);
    context.addFilter("test-case", filter_for(run.replay->test_case).c_str());
  }
  int const result = agree(context.run(), rank);
  if (rank == 0 && run.replay)
    std::printf("replay: %s\n", run.verdict.empty() ? "the property is no more" : run.verdict.c_str());
  else if (rank == 0 && run.cases > 0)
    std::printf("random cases: %lld\n", static_cast<long long>(run.cases));
  return result;
}
