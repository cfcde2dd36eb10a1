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
#include "tessera/partition/window.hpp"

/// Pooling and its gradients as plain loops over whole tensors, tap by tap. Independent of the library but for its
/// Window and Shape.
namespace tessera::test::oracle {

struct Pool {
  std::array<Window, 3> window;  ///< depth, height, width
  bool ceil = false;
  double divisor = 0;  ///< of averages, unless 0

  /// Windows count as long as they end within the padded input; in ceil mode also one more, if those before it left a
  /// rest of the padded input and it begins before the input's end.
  std::int64_t outputs(std::size_t axis, std::int64_t n) const {
    Window const& w = window[axis];
    auto const begin = [&](std::int64_t o) { return o * w.stride - w.low; };
    auto const end = [&](std::int64_t o) { return begin(o) + w.dilation * (w.kernel - 1) + 1; };
    std::int64_t m = 0;
    while (end(m) <= n + w.high) ++m;
    if (ceil && end(m - 1) < n + w.high && begin(m) < n) ++m;
    return m;
  }

  Shape output(Shape const& x) const {
    return {x.sample, outputs(0, x.depth), outputs(1, x.height), outputs(2, x.width), x.channel};
  }

  /// Whether some output along an axis has no tap on a cell.
  bool misses_all(std::size_t axis, std::int64_t n) const {
    for (std::int64_t o = 0; o < outputs(axis, n); ++o) {
      bool hits = false;
      for (std::int64_t tap = 0; tap < window[axis].kernel; ++tap) {
        std::int64_t const at = place(axis, o, tap);
        hits = hits || (0 <= at && at < n);
      }
      if (!hits) return true;
    }
    return false;
  }

  /// The place that a tap of an output reads along one axis.
  std::int64_t place(std::size_t axis, std::int64_t o, std::int64_t tap) const {
    return o * window[axis].stride - window[axis].low + tap * window[axis].dilation;
  }
};

namespace detail {

/// Calls visit(n, output d, h, w) for every output.
template <class Visit>
void for_each_output(Shape const& y, Visit visit) {
  for (std::int64_t n = 0; n < y.sample; ++n)
    for (std::int64_t d = 0; d < y.depth; ++d)
      for (std::int64_t h = 0; h < y.height; ++h)
        for (std::int64_t w = 0; w < y.width; ++w) visit(n, d, h, w);
}

/// Calls visit(input d, h, w) for every tap of an output in row-major order, outside the tensor too.
template <class Visit>
void for_each_pool_tap(Pool const& pool, std::int64_t d, std::int64_t h, std::int64_t w, Visit visit) {
  for (std::int64_t i = 0; i < pool.window[0].kernel; ++i)
    for (std::int64_t j = 0; j < pool.window[1].kernel; ++j)
      for (std::int64_t k = 0; k < pool.window[2].kernel; ++k)
        visit(pool.place(0, d, i), pool.place(1, h, j), pool.place(2, w, k));
}

/// What the mean of an output divides by: the number of taps in the tensor, or in the tensor and its padding, unless it
/// is given.
inline double mean_divisor(Pool const& pool, Shape const& x, bool count_padding, std::int64_t d, std::int64_t h,
                           std::int64_t w) {
  if (pool.divisor != 0) return pool.divisor;
  double count = 0;
  auto const inside = [&](std::size_t axis, std::int64_t at, std::int64_t n) {
    if (!count_padding) return 0 <= at && at < n;
    return -pool.window[axis].low <= at && at < n + pool.window[axis].high;
  };
  for_each_pool_tap(pool, d, h, w, [&](std::int64_t a, std::int64_t b, std::int64_t c) {
    count += inside(0, a, x.depth) && inside(1, b, x.height) && inside(2, c, x.width) ? 1 : 0;
  });
  return count;
}

}  // namespace detail

/// The mean over windows; with `magnitude`, of absolute values.
inline HostTensor average_pool(Pool const& pool, HostTensor const& x, bool count_padding, bool magnitude = false) {
  HostTensor y(pool.output(x.shape));
  detail::for_each_output(y.shape, [&](auto n, auto d, auto h, auto w) {
    double const count = detail::mean_divisor(pool, x.shape, count_padding, d, h, w);
    for (std::int64_t c = 0; c < x.shape.channel; ++c) {
      double sum = 0;
      detail::for_each_pool_tap(pool, d, h, w, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
        double const value = x.padded(n, i, j, k, c);
        sum += magnitude ? std::abs(value) : value;
      });
      y.at(n, d, h, w, c) = sum / count;
    }
  });
  return y;
}

inline HostTensor average_pool_backward(Pool const& pool, Shape const& x, HostTensor const& dy, bool count_padding,
                                        bool magnitude = false) {
  HostTensor dx(x);
  detail::for_each_output(dy.shape, [&](auto n, auto d, auto h, auto w) {
    double const count = detail::mean_divisor(pool, x, count_padding, d, h, w);
    detail::for_each_pool_tap(pool, d, h, w, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
      if (!dx.holds(n, i, j, k)) return;
      for (std::int64_t c = 0; c < x.channel; ++c) {
        double const share = dy.at(n, d, h, w, c) / count;
        dx.at(n, i, j, k, c) += magnitude ? std::abs(share) : share;
      }
    });
  });
  return dx;
}

/// The largest cell of each window, and the number of the cell of x that it is. PyTorch's rule: going through the
/// window in row-major order, a cell takes over if it is larger than the best so far or NaN; the first cell always
/// does.
struct Largest {
  HostTensor y;
  std::vector<std::size_t> winner;  ///< for every cell of y
};

inline Largest max_pool(Pool const& pool, HostTensor const& x) {
  Largest result{HostTensor(pool.output(x.shape)), {}};
  result.winner.resize(result.y.values.size());
  detail::for_each_output(result.y.shape, [&](auto n, auto d, auto h, auto w) {
    for (std::int64_t c = 0; c < x.shape.channel; ++c) {
      bool any = false;
      double best = 0;
      std::size_t which = 0;
      detail::for_each_pool_tap(pool, d, h, w, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
        if (!x.holds(n, i, j, k)) return;
        double const value = x.at(n, i, j, k, c);
        if (any && !(value > best) && !std::isnan(value)) return;
        any = true;
        best = value;
        which = x.index(n, i, j, k, c);
      });
      result.y.at(n, d, h, w, c) = best;
      result.winner[result.y.index(n, d, h, w, c)] = which;
    }
  });
  return result;
}

inline HostTensor max_pool_backward(Largest const& forward, Shape const& x, HostTensor const& dy,
                                    bool magnitude = false) {
  HostTensor dx(x);
  for (std::size_t i = 0; i < dy.values.size(); ++i)
    dx.values[forward.winner[i]] += magnitude ? std::abs(dy.values[i]) : dy.values[i];
  return dx;
}

}  // namespace tessera::test::oracle
