// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "support/property.hpp"

namespace tessera::test {

namespace detail {

/// The verdict of one rank on one case. The smallest one of all ranks counts.
enum Verdict : int { fails = 0, discarded = 1, holds = 2 };

struct Opinion {
  Verdict verdict = holds;
  std::string reason;
};

inline Opinion opinion_of(rc::detail::CaseResult const& thrown) {
  switch (thrown.type) {
    case rc::detail::CaseResult::Type::Success: return {holds, {}};
    case rc::detail::CaseResult::Type::Discard: return {discarded, thrown.description};
    case rc::detail::CaseResult::Type::Failure: break;
  }
  return {fails, thrown.description};
}

/// Runs the case on this rank alone; nothing that it throws leaves this function.
template <class F>
Opinion opinion_on(F const& testable) {
  try {
    if constexpr (std::is_void_v<decltype(testable())>)
      testable();
    else if (!testable())
      return {fails, "returned false"};
    return {};
  } catch (rc::detail::CaseResult const& result) {
    return opinion_of(result);
  } catch (rc::GenerationFailure const& failure) {
    return {discarded, failure.what()};
  } catch (std::exception const& error) {
    return {fails, error.what()};
  } catch (...) {
    return {fails, "threw something that is no std::exception"};
  }
}

/// Makes the smallest verdict everybody's, with the reason that the lowest rank of that verdict gives. Collective.
inline Opinion agreed(Opinion opinion, MPI_Comm comm) {
  struct {
    int verdict, rank;
  } mine{opinion.verdict, 0}, worst{holds, 0};
  MPI_Comm_rank(comm, &mine.rank);
  MPI_Allreduce(&mine, &worst, 1, MPI_2INT, MPI_MINLOC, comm);
  if (worst.verdict == holds) return {};
  int length = static_cast<int>(opinion.reason.size());
  MPI_Bcast(&length, 1, MPI_INT, worst.rank, comm);
  opinion.reason.resize(static_cast<std::size_t>(length));
  MPI_Bcast(opinion.reason.data(), length, MPI_CHAR, worst.rank, comm);
  return {static_cast<Verdict>(worst.verdict), "on rank " + std::to_string(worst.rank) + ": " + opinion.reason};
}

}  // namespace detail

/// counterexample() of a collective property: the same report on every rank of `comm`.
template <class F>
std::string distributed_counterexample(F testable, Trials const& trials, MPI_Comm comm, std::string const& name = {},
                                       Replay const* replay = nullptr) {
  return counterexample(
      [&testable, comm] {
        detail::Opinion const all = detail::agreed(detail::opinion_on(testable), comm);
        using Type = rc::detail::CaseResult::Type;
        if (all.verdict != detail::holds)
          throw rc::detail::CaseResult(all.verdict == detail::fails ? Type::Failure : Type::Discard, all.reason);
      },
      trials, name, replay);
}

/// property() for code that all ranks of `comm` run together. Every rank draws the same cases, because rank 0's seed
/// and number of cases are everybody's. After each case, tries of shrinking included, the ranks agree on the verdict:
/// it holds if it holds on all, fails if it returns false or throws on any, and is discarded if a rank discards it and
/// none fails it. So all shrink in step, and report the same counterexample with the reason of the lowest failing rank.
///
/// `testable` takes no arguments. It must draw its whole case before it does anything that may differ between ranks or
/// throw on some of them only: what a rank draws decides what it shrinks. A rank that throws leaves the others waiting
/// in any collective that it has not reached; check what only some ranks see after the last one.
template <class F>
void distributed_property(std::string const& name, F testable, MPI_Comm comm) {
  Trials trials = trials_from_environment();
  MPI_Bcast(&trials.cases, 1, MPI_INT, 0, comm);
  MPI_Bcast(&trials.seed, 1, MPI_UINT64_T, 0, comm);
  detail::check_property(name, [&](Replay const* replay) {
    return distributed_counterexample(std::move(testable), trials, comm, name, replay);
  });
}

}  // namespace tessera::test
