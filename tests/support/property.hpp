// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <rapidcheck.h>
#include <rapidcheck/detail/TestListenerAdapter.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "support/replay.hpp"
#include "tessera/core/error.hpp"

namespace tessera::test {

/// How many random cases a property runs, and the seed they are drawn from.
struct Trials {
  int cases = 300;
  std::uint64_t seed = 20260101;
};

namespace detail {

template <class Number>
Number from_environment(char const* variable, Number otherwise, Number least) {
  char const* const given = std::getenv(variable);
  if (given == nullptr) return otherwise;
  std::string_view const digits = given;
  Number number{};
  auto const [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  require(failure == std::errc{} && end == digits.data() + digits.size() && number >= least, variable,
          "must be a whole number of at least ", least, ", it is '", digits, "'");
  return number;
}

}  // namespace detail

/// TESSERA_CASES and TESSERA_SEED from the environment, else the defaults, so that a run can always be repeated.
inline Trials trials_from_environment() {
  Trials const standard;
  return {detail::from_environment("TESSERA_CASES", standard.cases, 1),
          detail::from_environment("TESSERA_SEED", standard.seed, std::uint64_t{0})};
}

/// Runs `testable` on random cases, or on the one of `replay`. Returns an empty text if it holds on all, else the
/// report with the shrunken counterexample, and with a line for tests/replay if the property has a name.
template <class F>
std::string counterexample(F testable, Trials const& trials, std::string const& name = {},
                           Replay const* replay = nullptr) {
  rc::detail::TestParams params;
  params.seed = trials.seed;
  params.maxSuccess = trials.cases;
  rc::detail::TestListenerAdapter silent;
  std::unordered_map<std::string, rc::detail::Reproduce> again;
  if (replay != nullptr) again.emplace(name, replay->random_case);
  auto const result = rc::detail::checkProperty(rc::detail::toProperty(std::move(testable)),
                                                rc::detail::TestMetadata{name, name}, params, silent, again);
  if (result.template is<rc::detail::SuccessResult>()) {
    this_run().cases += result.template get<rc::detail::SuccessResult>().numSuccess;
    return {};
  }
  if (replay != nullptr && result.template is<rc::detail::Error>() &&
      result.template get<rc::detail::Error>().description == "Reproduced result is not a failure")
    return {};
  std::ostringstream report;
  rc::detail::printResultMessage(result, report);
  if (replay == nullptr) report << "\n\nRepeat with TESSERA_SEED=" << trials.seed << " TESSERA_CASES=" << trials.cases;
  if (!name.empty() && result.template is<rc::detail::FailureResult>()) {
    auto const& failure = result.template get<rc::detail::FailureResult>();
    report << "\nreplay: "
           << replay_line(replay != nullptr ? *replay : Replay{name, hash_of(this_run().test_case), failure.reproduce});
  }
  return report.str();
}

namespace detail {

inline std::set<std::string>& names_in_use() {
  static std::set<std::string> names;
  return names;
}

/// Checks a property under its name, which no other of the program may have, with run(trials, what to replay), unless
/// another one is to be replayed.
template <class Run>
void check_property(std::string const& name, Run run) {
  require(names_in_use().insert(name).second, "property",
          "its name must be unique within a program, but there are two '", name, "'; name the case that it is for");
  auto const& replay = this_run().replay;
  if (replay && replay->property != name) return;
  std::string const report = run(replay ? &*replay : nullptr);
  if (replay) this_run().verdict = report.empty() ? "passes" : "fails";
  CHECK_MESSAGE(report.empty(), name << "\n" << report);
}

}  // namespace detail

/// Fails the doctest case unless `testable` holds on TESSERA_CASES random cases. `testable` draws its case by
/// `*generator.as("name")` or takes it as arguments, and returns a bool, or throws (RC_ASSERT does, and RC_PRE
/// discards the case). doctest's own macros must stay outside, because shrinking runs failing cases on purpose. The
/// name must be the only one of its kind in the program.
template <class F>
void property(std::string const& name, F testable) {
  detail::check_property(name, [&](Replay const* replay) {
    return counterexample(std::move(testable), trials_from_environment(), name, replay);
  });
}

}  // namespace tessera::test
