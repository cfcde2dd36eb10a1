// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/host_tensor.hpp"
#include "support/linear_layer.hpp"

/// y = W x + b on the channels of every position, W as (outputs, inputs), and its gradients. With `magnitude`, every
/// product by its absolute value.
namespace tessera::test::oracle {

inline LinearResult dense(HostTensor const& x, std::vector<double> const& w, std::vector<double> const& b,
                          HostTensor const& dy, bool magnitude) {
  auto const size = [&](double value) { return magnitude ? std::abs(value) : value; };
  auto const in = static_cast<std::size_t>(x.shape.channel), out = static_cast<std::size_t>(dy.shape.channel);
  LinearResult result{HostTensor(dy.shape), HostTensor(x.shape), std::vector<double>(w.size()),
                      std::vector<double>(out)};
  for (std::size_t at = 0; at * out < dy.values.size(); ++at)
    for (std::size_t o = 0; o < out; ++o) {
      double const error = dy.values[at * out + o];
      result.db[o] += size(error);
      if (!b.empty()) result.y.values[at * out + o] += size(b[o]);
      for (std::size_t i = 0; i < in; ++i) {
        double const cell = x.values[at * in + i], weight = w[o * in + i];
        result.y.values[at * out + o] += size(weight * cell);
        result.dx.values[at * in + i] += size(weight * error);
        result.dw[o * in + i] += size(cell * error);
      }
    }
  return result;
}

}  // namespace tessera::test::oracle
