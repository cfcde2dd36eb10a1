// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "support/host_tensor.hpp"
#include "support/layer_harness.hpp"

namespace tessera::test {

/// Compares the gradients of a layer in double with central differences of L = sum of dy y, for a few cells of x and
/// for every element of the parameters named: relative 1e-6 of the largest gradient of that kind. `pass` must be such
/// that a second forward pass computes the same.
inline void expect_finite_differences(Driver<double>& driver, Ranks const& ranks, Partition const& input,
                                      HostTensor const& x, HostTensor const& dy, Pass const& pass,
                                      std::vector<std::pair<std::string, std::vector<double>>> parameters = {},
                                      double step = 1e-5) {
  auto const loss = [&](HostTensor const& at) {
    driver.forward(input, at, pass);
    double sum = 0.0;
    auto const& y = driver.y();
    for_each_cell(y.owned(),
                  [&](auto n, auto d, auto h, auto w, auto c) { sum += y(n, d, h, w, c) * dy.at(n, d, h, w, c); });
    return ranks.world().all_reduce(sum);
  };
  driver.forward(input, x, pass);
  driver.backward(dy, pass);
  std::vector<double> dx(x.values.size(), 0.0);
  for_each_cell(driver.dx().owned(), [&](auto n, auto d, auto h, auto w, auto c) {
    dx[x.index(n, d, h, w, c)] = driver.dx()(n, d, h, w, c);
  });
  ranks.world().all_reduce(dx.data(), static_cast<std::int64_t>(dx.size()));
  std::vector<std::vector<double>> gradients;
  for (auto const& parameter : parameters) gradients.push_back(driver.gradient(parameter.first));

  auto const compare = [](std::string const& what, double found, double difference, double largest) {
    together([&] {
      expect(std::abs(found - difference) <= 1e-6 * largest,
             tessera::detail::text(what, " is ", found, ", by differences ", difference));
    });
  };
  auto const largest = [](std::vector<double> const& values) {
    double most = 0.0;
    for (double const value : values) most = std::max(most, std::abs(value));
    return most;
  };
  HostTensor moved = x;
  for (std::size_t i = 0; i < x.values.size(); i += std::max<std::size_t>(1, x.values.size() / 11)) {
    moved.values[i] = x.values[i] + step;
    double const above = loss(moved);
    moved.values[i] = x.values[i] - step;
    double const below = loss(moved);
    moved.values[i] = x.values[i];
    compare("dx[" + std::to_string(i) + "]", dx[i], (above - below) / (2 * step), largest(dx));
  }
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    auto& [name, values] = parameters[p];
    for (std::size_t i = 0; i < values.size(); ++i) {
      double const value = values[i];
      values[i] = value + step;
      driver.set(name, values);
      double const above = loss(x);
      values[i] = value - step;
      driver.set(name, values);
      double const below = loss(x);
      values[i] = value;
      driver.set(name, values);
      compare(name + "[" + std::to_string(i) + "]", gradients[p][i], (above - below) / (2 * step),
              largest(gradients[p]));
    }
  }
}

}  // namespace tessera::test
