// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/partition/shape.hpp"

namespace tessera::test {

/// A whole tensor in double precision, dense and row-major: what the oracles compute on.
struct HostTensor {
  Shape shape;
  std::vector<double> values;

  HostTensor() = default;
  explicit HostTensor(Shape const& extents) : shape(extents), values(static_cast<std::size_t>(extents.volume())) {}

  std::size_t index(std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t c) const {
    return static_cast<std::size_t>((((n * shape.depth + d) * shape.height + h) * shape.width + w) * shape.channel + c);
  }

  double& at(std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t c) {
    return values[index(n, d, h, w, c)];
  }
  double at(std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t c) const {
    return values[index(n, d, h, w, c)];
  }

  bool holds(std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t w) const {
    return 0 <= n && n < shape.sample && 0 <= d && d < shape.depth && 0 <= h && h < shape.height && 0 <= w &&
           w < shape.width;
  }

  /// The cell, or zero outside the tensor.
  double padded(std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t c) const {
    return holds(n, d, h, w) ? at(n, d, h, w, c) : 0.0;
  }
};

}  // namespace tessera::test
