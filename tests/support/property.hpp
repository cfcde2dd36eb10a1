// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <rapidcheck.h>
#include <rapidcheck/detail/TestListenerAdapter.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

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

/// Runs `testable` on random cases. Returns an empty text if it holds on all, else the report with the shrunken
/// counterexample.
template <class F>
std::string counterexample(F testable, Trials const& trials) {
  rc::detail::TestParams params;
  params.seed = trials.seed;
  params.maxSuccess = trials.cases;
  rc::detail::TestListenerAdapter silent;
  auto const result =
      rc::detail::checkProperty(rc::detail::toProperty(std::move(testable)), rc::detail::TestMetadata{}, params, silent,
                                std::unordered_map<std::string, rc::detail::Reproduce>{});
  if (result.template is<rc::detail::SuccessResult>()) return {};
  std::ostringstream report;
  rc::detail::printResultMessage(result, report);
  report << "\n\nRepeat with TESSERA_SEED=" << trials.seed << " TESSERA_CASES=" << trials.cases;
  return report.str();
}

/// Fails the doctest case unless `testable` holds on TESSERA_CASES random cases. `testable` draws its case by
/// `*generator.as("name")` or takes it as arguments, and returns a bool, or throws (RC_ASSERT does, and RC_PRE
/// discards the case). doctest's own macros must stay outside, because shrinking runs failing cases on purpose.
template <class F>
void property(std::string const& name, F testable) {
  std::string const report = counterexample(std::move(testable), trials_from_environment());
  CHECK_MESSAGE(report.empty(), name << "\n" << report);
}

}  // namespace tessera::test
