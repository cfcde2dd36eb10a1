// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/optim/schedule.hpp"

#include <doctest/doctest.h>

#include <cstdint>

using namespace tessera;

TEST_CASE("constant is 1 at every step") {
  Schedule const factor = constant();
  CHECK(factor(0) == 1.0);
  CHECK(factor(1'000'000'000'000) == 1.0);
}

TEST_CASE("linear decay falls along a line between its two steps and is constant outside") {
  Schedule const factor = linear_decay(4, 12, 0.25);
  for (std::int64_t step : {0, 3, 4}) CHECK(factor(step) == 1.0);
  CHECK(factor(6) == 0.8125);
  CHECK(factor(8) == 0.625);
  CHECK(factor(11) == 0.34375);
  for (std::int64_t step : {12, 13, 1000}) CHECK(factor(step) == 0.25);
  CHECK(linear_decay(0, 4)(4) == 0.0);
  CHECK(linear_decay(0, 4)(3) == 0.25);
}

TEST_CASE("warm-up rises to 1 at its last step, never from 0, and goes on with what follows") {
  Schedule const factor = warm_up(4);
  CHECK(factor(0) == 0.25);
  CHECK(factor(1) == 0.5);
  CHECK(factor(3) == 1.0);
  CHECK(factor(4) == 1.0);
  CHECK(warm_up(0)(0) == 1.0);

  Schedule const both = warm_up(4, linear_decay(0, 8));
  CHECK(both(0) == 0.25);
  CHECK(both(1) == 0.5 * 0.875);
  CHECK(both(3) == 0.625);
  CHECK(both(4) == 0.5);
  CHECK(both(8) == 0.0);
}

TEST_CASE("step decay holds the factor of the last step passed") {
  Schedule const factor = step_decay({{3, 0.25}, {6, 0.125}});
  CHECK(factor(0) == 1.0);
  CHECK(factor(2) == 1.0);
  CHECK(factor(3) == 0.25);
  CHECK(factor(5) == 0.25);
  CHECK(factor(6) == 0.125);
  CHECK(factor(600) == 0.125);
  CHECK(step_decay({})(7) == 1.0);
}

TEST_CASE("schedules say what is wrong with their numbers") {
  CHECK_THROWS_WITH_AS(linear_decay(5, 5),
                       "linear_decay: the first step must come before the last one, but they are 5 and 5", Error);
  CHECK_THROWS_WITH_AS(warm_up(-1), "warm_up: the number of steps must not be negative, it is -1", Error);
  CHECK_THROWS_WITH_AS(step_decay({{3, 0.5}, {9, 0.4}, {6, 0.3}}), "step_decay: the steps must ascend, but 6 follows 9",
                       Error);
}
