// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tessera/io/stored.hpp"

namespace tessera::io {

/// The axes of a Box, slowest first, as the cells of one sample lie.
constexpr std::array<int, 4> stored_axes(CellOrder order) {
  return order == CellOrder::channels_first ? std::array<int, 4>{4, 1, 2, 3} : std::array<int, 4>{1, 2, 3, 4};
}

/// Copies the cells of `box`, which both boxes contain, between dense cells over two boxes of one sample.
inline void copy_stored(StoredField const& field, std::byte const* from, Box const& from_box, std::byte* to,
                        Box const& to_box, Box const& box) {
  std::int64_t run = size_of(field.type), lines[4] = {}, from_step[4] = {}, to_step[4] = {};
  std::array<int, 4> const axes = stored_axes(field.order);
  int outer = 0;  // axes that are walked
  std::int64_t from_size = run, to_size = run;
  bool together = true;  // whether the cells so far lie together in both
  for (int i = 3; i >= 0; --i) {
    int const axis = axes[static_cast<std::size_t>(i)];
    Interval const part = box.axis[axis], in = from_box.axis[axis], out = to_box.axis[axis];
    if (part.empty()) return;
    from += (part.begin - in.begin) * from_size;
    to += (part.begin - out.begin) * to_size;
    if (together) {
      run *= part.size();
      together = part == in && part == out;
    } else {
      lines[outer] = part.size();
      from_step[outer] = from_size;
      to_step[outer] = to_size;
      ++outer;
    }
    from_size *= in.size();
    to_size *= out.size();
  }
  for (; outer < 3; ++outer) lines[outer] = 1;
  for (std::int64_t a = 0; a < lines[2]; ++a)
    for (std::int64_t b = 0; b < lines[1]; ++b)
      for (std::int64_t c = 0; c < lines[0]; ++c)
        std::memcpy(to + a * to_step[2] + b * to_step[1] + c * to_step[0],
                    from + a * from_step[2] + b * from_step[1] + c * from_step[0], static_cast<std::size_t>(run));
}

}  // namespace tessera::io
