// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The plan that docs/explanation/boxes.md draws, and what the library says of it.

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "tessera/exchange/plan.hpp"
#include "tessera/partition/window.hpp"

using namespace tessera;

TEST_CASE("explain: the halo of a 5 x 5 window on six ranks") {
  // [plan]
  // A field of 10 x 12 cells on six ranks, three along height and two along width.
  Grid const grid(Counts{.height = 3, .width = 2});
  Partition const has(grid, Shape{.height = 10, .width = 12});

  // Output cells are owned as the input cells are, and each reads a window of 5 x 5 of them.
  Window const five{.kernel = 5, .low = 2, .high = 2};
  Region needs(has);
  for (AxisId axis : {AxisId::height, AxisId::width})
    needs.map(axis, [&](Interval outputs) { return five.required(outputs); });

  // What rank 2 sends and receives: computed from the formulas alone, on any machine, without MPI.
  ExchangePlan const plan = make_plan(has, needs, 2, Padding::zeros, Placement::around_owned);
  std::ostringstream text;
  explain(text, plan);
  // [end]

  char const* const tests = std::getenv("TESSERA_TESTS");
  REQUIRE(tests != nullptr);
  std::stringstream said;
  said << std::ifstream(std::string(tests) + "/exchange/explain.txt").rdbuf();
  CHECK(text.str() == said.str());
}
