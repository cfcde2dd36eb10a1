// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/op/random.hpp"
#include "tessera/partition/box.hpp"
#include "tessera/partition/shape.hpp"

namespace cosmoflow {

/// Mirrors whole samples along random axes, anew in each epoch: the universe has no preferred direction. A rank reads
/// the mirrored box of its own and turns it round, so that the result does not depend on the split.
template <class Source>
class Flipped {
 public:
  Flipped(Source& source, std::uint64_t seed) : source_(source), seed_(seed) {}

  void set_epoch(std::int64_t epoch) { epoch_ = static_cast<std::uint64_t>(epoch); }
  std::int64_t size() const { return source_.size(); }
  tessera::Shape input_shape() const { return source_.input_shape(); }
  tessera::Shape target_shape() const { return source_.target_shape(); }

  template <class T>
  void read_input(std::int64_t sample, tessera::Box const& box, T* cells) {
    std::uint32_t const word = tessera::random_stream(seed_, "flip", epoch_).word(sample);
    tessera::Box mirrored = box;
    for (int axis = 1; axis <= 3; ++axis)
      if (flips(word, axis)) {
        std::int64_t const n = input_shape()[static_cast<tessera::AxisId>(axis)];
        mirrored.axis[axis] = {n - box.axis[axis].end, n - box.axis[axis].begin};
      }
    source_.read_input(sample, mirrored, cells);
    for (int axis = 1; axis <= 3; ++axis)
      if (flips(word, axis)) reverse(box, axis, cells);
  }
  template <class T>
  void read_target(std::int64_t sample, tessera::Box const& box, T* cells) {
    source_.read_target(sample, box, cells);
  }

 private:
  static bool flips(std::uint32_t word, int axis) { return (word >> axis & 1u) != 0; }

  /// Turns dense cells over the box round along one axis.
  template <class T>
  static void reverse(tessera::Box const& box, int axis, T* cells) {
    std::int64_t inner = 1, outer = 1;
    for (int a = 1; a < axis; ++a) outer *= box.axis[a].size();
    for (int a = axis + 1; a < tessera::axis_count; ++a) inner *= box.axis[a].size();
    std::int64_t const n = box.axis[axis].size();
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t i = 0; i < n / 2; ++i) {
        T* const a = cells + (o * n + i) * inner;
        std::swap_ranges(a, a + inner, cells + (o * n + n - 1 - i) * inner);
      }
  }

  Source& source_;
  std::uint64_t seed_;
  std::uint64_t epoch_ = 0;
};

}  // namespace cosmoflow
