// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/host_tensor.hpp"
#include "tessera/partition/shape.hpp"

/// Linear maps that act on each spatial axis by a matrix: pools and resampling, from their definitions, without the
/// library's formulas.
namespace tessera::test::oracle {

/// The matrix of one axis: m outputs of n inputs.
struct AxisMap {
  std::int64_t n = 1, m = 1;
  std::vector<double> weights{1.0};  ///< row by row

  AxisMap() = default;
  AxisMap(std::int64_t inputs, std::int64_t outputs)
      : n(inputs), m(outputs), weights(static_cast<std::size_t>(inputs * outputs), 0.0) {}

  double& at(std::int64_t o, std::int64_t i) { return weights[static_cast<std::size_t>(o * n + i)]; }
  double at(std::int64_t o, std::int64_t i) const { return weights[static_cast<std::size_t>(o * n + i)]; }

  /// The most inputs of one output, and the most outputs of one input, that have a weight.
  std::int64_t widest_row() const {
    std::int64_t most = 0;
    for (std::int64_t o = 0; o < m; ++o) {
      std::int64_t count = 0;
      for (std::int64_t i = 0; i < n; ++i) count += at(o, i) != 0 ? 1 : 0;
      most = count > most ? count : most;
    }
    return most;
  }
  std::int64_t widest_column() const {
    AxisMap turned(m, n);
    for (std::int64_t o = 0; o < m; ++o)
      for (std::int64_t i = 0; i < n; ++i) turned.at(i, o) = at(o, i);
    return turned.widest_row();
  }
};

inline AxisMap identity_axis(std::int64_t n) {
  AxisMap map(n, n);
  for (std::int64_t i = 0; i < n; ++i) map.at(i, i) = 1.0;
  return map;
}

/// Cut into m equal lengths, the axis shows each output the cells that lie in its length, be it in part.
inline AxisMap adaptive_axis(std::int64_t n, std::int64_t m) {
  AxisMap map(n, m);
  for (std::int64_t o = 0; o < m; ++o) {
    double count = 0;
    for (std::int64_t i = 0; i < n; ++i)
      if ((i + 1) * m > o * n && i * m < (o + 1) * n) count += 1;
    for (std::int64_t i = 0; i < n; ++i)
      if ((i + 1) * m > o * n && i * m < (o + 1) * n) map.at(o, i) = 1.0 / count;
  }
  return map;
}

/// The cell that holds the point o n / m or, if exact, (o + 1/2) n / m.
inline AxisMap nearest_axis(std::int64_t n, std::int64_t m, bool exact) {
  AxisMap map(n, m);
  for (std::int64_t o = 0; o < m; ++o)
    for (std::int64_t i = 0; i < n; ++i) {
      std::int64_t const point = exact ? (2 * o + 1) * n : 2 * o * n;
      if (2 * i * m <= point && point < 2 * (i + 1) * m) map.at(o, i) = 1.0;
    }
  return map;
}

/// Hats of width 1 around the cells' centres, read at the outputs' centres; beyond the outermost centres the values
/// stay as there. If aligned, the first and last centres coincide.
inline AxisMap linear_axis(std::int64_t n, std::int64_t m, bool aligned) {
  AxisMap map(n, m);
  for (std::int64_t o = 0; o < m; ++o) {
    std::int64_t const below = aligned ? (m > 1 ? m - 1 : 1) : 2 * m;
    std::int64_t above = aligned ? (m > 1 ? o * (n - 1) : 0) : (2 * o + 1) * n - m;
    if (above < 0) above = 0;
    if (above > (n - 1) * below) above = (n - 1) * below;
    for (std::int64_t i = 0; i < n; ++i) {
      std::int64_t const distance = above > i * below ? above - i * below : i * below - above;
      if (distance < below) map.at(o, i) = static_cast<double>(below - distance) / static_cast<double>(below);
    }
  }
  return map;
}

/// Depth, height and width.
struct Separable {
  std::array<AxisMap, 3> axis;

  Shape output(Shape const& x) const { return {x.sample, axis[0].m, axis[1].m, axis[2].m, x.channel}; }
  std::int64_t terms() const { return axis[0].widest_row() * axis[1].widest_row() * axis[2].widest_row(); }
  std::int64_t readers() const { return axis[0].widest_column() * axis[1].widest_column() * axis[2].widest_column(); }

  /// Calls visit(output d, h, w, input d, h, w, weight) for every pair with a weight.
  template <class Visit>
  void for_each_pair(Visit visit) const {
    struct Pair {
      std::int64_t o, i;
      double weight;
    };
    std::array<std::vector<Pair>, 3> pairs;
    for (std::size_t a = 0; a < 3; ++a)
      for (std::int64_t o = 0; o < axis[a].m; ++o)
        for (std::int64_t i = 0; i < axis[a].n; ++i)
          if (axis[a].at(o, i) != 0) pairs[a].push_back({o, i, axis[a].at(o, i)});
    for (Pair const& d : pairs[0])
      for (Pair const& h : pairs[1])
        for (Pair const& w : pairs[2]) visit(d.o, h.o, w.o, d.i, h.i, w.i, d.weight * h.weight * w.weight);
  }

  /// With `magnitude`, of absolute values.
  HostTensor apply(HostTensor const& x, bool magnitude = false) const {
    HostTensor y(output(x.shape));
    for_each_pair([&](auto d, auto h, auto w, auto i, auto j, auto k, double weight) {
      for (std::int64_t n = 0; n < x.shape.sample; ++n)
        for (std::int64_t c = 0; c < x.shape.channel; ++c) {
          double const value = x.at(n, i, j, k, c);
          y.at(n, d, h, w, c) += weight * (magnitude ? std::abs(value) : value);
        }
    });
    return y;
  }
  HostTensor transpose(Shape const& x, HostTensor const& dy, bool magnitude = false) const {
    HostTensor dx(x);
    for_each_pair([&](auto d, auto h, auto w, auto i, auto j, auto k, double weight) {
      for (std::int64_t n = 0; n < x.sample; ++n)
        for (std::int64_t c = 0; c < x.channel; ++c) {
          double const value = dy.at(n, d, h, w, c);
          dx.at(n, i, j, k, c) += weight * (magnitude ? std::abs(value) : value);
        }
    });
    return dx;
  }
};

}  // namespace tessera::test::oracle
