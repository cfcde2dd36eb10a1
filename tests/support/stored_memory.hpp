// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tessera/io/stored.hpp"

namespace tessera::test {

/// A value that a cell type holds exactly, for each index; values of neighbours differ.
inline double coded(io::CellType type, std::int64_t index) {
  auto const cycle = [index](std::int64_t period) { return static_cast<double>(index % period); };
  switch (type) {
    case io::CellType::int8: return cycle(251) - 125;
    case io::CellType::uint8: return cycle(251);
    case io::CellType::int16: return cycle(65521) - 32760;
    case io::CellType::uint16: return cycle(65521);
    case io::CellType::int32: return 2147483000 - cycle(1 << 30);
    case io::CellType::float32: return cycle(1 << 23) / 8 - 1000;
    case io::CellType::float64: break;
  }
  return 0x1p-40 - cycle(1 << 30);
}

/// Writes a value as a cell of a type.
inline void store(io::CellType type, double value, std::byte* cell) {
  auto const put = [cell](auto v) { std::memcpy(cell, &v, sizeof v); };
  switch (type) {
    case io::CellType::int8: return put(static_cast<std::int8_t>(value));
    case io::CellType::uint8: return put(static_cast<std::uint8_t>(value));
    case io::CellType::int16: return put(static_cast<std::int16_t>(value));
    case io::CellType::uint16: return put(static_cast<std::uint16_t>(value));
    case io::CellType::int32: return put(static_cast<std::int32_t>(value));
    case io::CellType::float32: return put(static_cast<float>(value));
    case io::CellType::float64: return put(value);
  }
}

/// The number of a cell among all samples' cells, in the order (sample, d, h, w, c).
inline std::int64_t cell_index(Shape const& s, std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t w,
                               std::int64_t c) {
  return (((n * s.depth + d) * s.height + h) * s.width + w) * s.channel + c;
}

/// visit(d, h, w, c) for the cells of a box, in an order.
template <class Visit>
void for_each_stored(io::CellOrder order, Box const& box, Visit visit) {
  Interval const *a = box.axis, one{0, 1};
  bool const first = order == io::CellOrder::channels_first;
  Interval const outer = first ? a[4] : one, inner = first ? one : a[4];
  for (std::int64_t o = outer.begin; o < outer.end; ++o)
    for (std::int64_t d = a[1].begin; d < a[1].end; ++d)
      for (std::int64_t h = a[2].begin; h < a[2].end; ++h)
        for (std::int64_t w = a[3].begin; w < a[3].end; ++w)
          for (std::int64_t i = inner.begin; i < inner.end; ++i) visit(d, h, w, first ? o : i);
}

/// A StoredSource whose cells are coded(type, cell index).
struct StoredMemory {
  std::int64_t samples = 1;
  io::StoredField input, target;

  std::int64_t size() const { return samples; }
  io::StoredField const& field(io::Part part) const { return part == io::Part::input ? input : target; }
  void read_stored(io::Part part, std::int64_t sample, Box const& box, std::byte* cells) const {
    io::StoredField const& f = field(part);
    for_each_stored(f.order, box, [&](std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t c) {
      store(f.type, coded(f.type, cell_index(f.shape, sample, d, h, w, c)), cells);
      cells += io::size_of(f.type);
    });
  }
};
static_assert(io::StoredSource<StoredMemory>);

}  // namespace tessera::test
