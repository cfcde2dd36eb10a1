// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "tessera/partition/interval.hpp"
#include "tessera/partition/window.hpp"

namespace tessera {

/// How the outputs of an operation read its inputs along one axis: all that boxes and plans need to know of it. Both
/// maps give hulls, in global indices, which move up when their argument does.
struct Reach {
  std::int64_t outputs = 1;
  std::function<Interval(Interval)> required;  ///< the inputs that outputs read, perhaps beyond the border
  std::function<Interval(Interval)> touch;     ///< the outputs that read inputs, perhaps beyond the last one

  /// Those of the outputs `out` that read cells of `in` alone.
  Interval interior(Interval out, Interval in) const {
    if (out.empty() || in.empty()) return {};
    std::int64_t const first = first_where(out, [&](Interval reads) { return reads.begin >= in.begin; });
    return {first, first_where({first, out.end}, [&](Interval reads) { return reads.end > in.end; })};
  }

 private:
  /// The first of the outputs whose reads fulfil a condition that holds from there on.
  template <class Condition>
  std::int64_t first_where(Interval among, Condition condition) const {
    while (!among.empty()) {
      std::int64_t const middle = among.begin + (among.end - among.begin) / 2;
      if (condition(required({middle, middle + 1})))
        among.end = middle;
      else
        among.begin = middle + 1;
    }
    return among.begin;
  }
};

/// A reach per spatial axis: depth, height, width.
using Reaches = std::array<Reach, 3>;

/// What the outputs of a window read of n inputs, padding cells included.
inline Reach reach_of(Window const& window, std::int64_t n) {
  return {window.outputs(n), [window](Interval out) { return window.required(out); },
          [window](Interval in) { return window.touch(in); }};
}

/// The same with the roles of inputs and outputs exchanged: `outputs` cells that are made from those that `window`
/// would make of them (a transposed convolution).
inline Reach transposed_reach(Window const& window, std::int64_t outputs) {
  return {outputs, [window](Interval out) { return window.touch(out); },
          [window](Interval in) { return window.required(in); }};
}

/// A reach that stops at the borders of n inputs and of the outputs.
inline Reach clipped(Reach const& reach, std::int64_t n) {
  return {reach.outputs,
          [required = reach.required, n](Interval out) {
            return intersect(required(out), Interval{0, n});
          },
          [touch = reach.touch, m = reach.outputs](Interval in) {
            return intersect(touch(in), Interval{0, m});
          }};
}

}  // namespace tessera
