// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What replay.py looks at: properties that hold, or in which TESSERA_PLANT plants a fault.

#include <doctest/doctest.h>
#include <mpi.h>
#include <rapidcheck.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"

using namespace tessera::test;

namespace {

std::string const plant = std::getenv("TESSERA_PLANT") != nullptr ? std::getenv("TESSERA_PLANT") : "";

/// Fails on the last rank, for lists with an element above 100 that have two elements at least.
bool holds(std::vector<int> const& list) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (plant != "large" || rank != ranks - 1 || list.size() < 2) return true;
  for (int const element : list)
    if (element > 100) return false;
  return true;
}

void note(char const* what) { std::printf("ran: %s\n", what); }

}  // namespace

TEST_CASE("planted, on \"all\" ranks: lists\\and more") {
  distributed_property(
      "before", [] { note("before"); }, MPI_COMM_WORLD);
  distributed_property(
      "lists: no element is large",
      [] { return holds(*rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1000)).as("list")); },
      MPI_COMM_WORLD);
  distributed_property(
      plant == "twice" ? "before" : "after", [] { note("after"); }, MPI_COMM_WORLD);
}

TEST_CASE("planted, on one rank") {
  property("alone: no element is large", [](std::vector<int> const& list) { return holds(list); });
}

TEST_CASE("no property") { note("no property"); }
