// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"

namespace tessera::test {

/// <A x, y> = <x, A' y> for a layer A without parameters that is linear in x. Both sides are sums of A's weights, which
/// are not negative, times x times y: they may differ by roundings of the same with magnitudes. Collective.
template <class Spec>
void check_adjoint(RankGrid<AnySplit> const& ranks, Partition const& input, Spec const& spec, std::uint64_t seed) {
  Driver<double> driver(ranks, input, spec);
  auto const product = [&](Shard<double, Host> const& a, HostTensor const& b) {
    double sum = 0.0;
    for_each_cell(a.owned(),
                  [&](auto n, auto d, auto h, auto w, auto c) { sum += a(n, d, h, w, c) * b.at(n, d, h, w, c); });
    return ranks.world().all_reduce(sum);
  };
  HostTensor x = random_tensor(input.shape(), seed), y = random_tensor(driver.layer().output(input).shape(), seed + 1);
  driver.forward(input, x);
  double const forward = product(driver.y(), y);
  driver.backward(y);
  double const backward = product(driver.dx(), x);
  for (HostTensor* t : {&x, &y})
    for (double& value : t->values) value = std::abs(value);
  driver.forward(input, x);
  double const most = product(driver.y(), y);
  auto const terms = static_cast<std::int64_t>(x.values.size() + y.values.size());
  together([&] {
    driver.expect_clean();
    if (!near(forward, backward, gamma_n<double>(terms + 16) * most))
      throw Error(tessera::detail::text("<A x, y> is ", forward, ", but <x, A' y> is ", backward));
  });
}

}  // namespace tessera::test
