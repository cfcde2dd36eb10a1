// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/layer_harness.hpp"

namespace tessera::test {

/// What a layer without parameters last made of x and dy must have the bits that it makes on one rank. Collective.
template <class T, class Spec>
void expect_bits_of_one_rank(Driver<T> const& driver, Spec const& spec, HostTensor const& x, HostTensor const& dy,
                             HostTensor const* start = nullptr) {
  Partition const whole(Grid(Counts{}), x.shape);
  Driver<T> alone(self_ranks(), whole, spec);
  alone.forward(whole, x);
  alone.backward(dy, {}, start);
  together([&] {
    alone.expect_clean();
    expect_same_bits("y", driver.y(), alone.y());
    expect_same_bits("dx", driver.dx(), alone.dx());
  });
}

}  // namespace tessera::test
