// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/op/product.hpp"

#include <doctest/doctest.h>

#include <cstdint>

#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/oracle/branch.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

Shard<float, Host> shard_of(HostTensor const& tensor) {
  Shard<float, Host> shard(Partition(Grid(Counts{}), tensor.shape), 0);
  for_each_cell(shard.owned(), [&](auto... at) { shard(at...) = static_cast<float>(tensor.at(at...)); });
  return shard;
}

/// The gradient of a factor of shape `part` in a product of shape `whole`, against the oracle's; the sums are exact.
void check_sums(Shape const& part, Shape const& whole, Accumulate accumulate) {
  CAPTURE(part.depth);
  CAPTURE(part.height);
  CAPTURE(part.width);
  HostTensor const dy = whole_numbers(whole, 1, 2), other = whole_numbers(whole, 2, 3),
                   start = whole_numbers(part, 3, 9);
  HostTensor const expected = oracle::multiply_backward(part, other, dy);
  Shard<float, Host> const a = shard_of(dy), b = shard_of(other), gradient = shard_of(start);
  bool repeats[4] = {};
  for (AxisId axis : spatial_axes) repeats[static_cast<int>(axis)] = part[axis] == 1 && whole[axis] > 1;
  Storage<double, Host> partial;
  op::multiply_sums<float>(Host(), a.tile(), b.tile(), gradient.tile(), whole.box(), part.box(), repeats, accumulate,
                           partial);
  for_each_cell(part.box(), [&](auto... at) {
    double const before = accumulate == Accumulate::add ? start.at(at...) : 0.0;
    REQUIRE(static_cast<double>(gradient(at...)) == before + expected.at(at...));
  });
}

}  // namespace

TEST_CASE("product: the gradient of a repeated factor, in one chunk and in many") {
  for (Accumulate const accumulate : {Accumulate::write, Accumulate::add}) {
    check_sums({2, 1, 1, 1, 3}, {2, 17, 18, 19, 3}, accumulate);   // five chunks per sample
    check_sums({1, 1, 1, 1, 40}, {1, 64, 64, 5, 40}, accumulate);  // as many chunks as there may be
    check_sums({1, 3, 1, 1, 5}, {1, 3, 40, 37, 5}, accumulate);
    check_sums({2, 1, 4, 1, 2}, {2, 6, 4, 5, 2}, accumulate);
    check_sums({1, 5, 4, 1, 2}, {1, 5, 4, 3, 2}, accumulate);
  }
}
