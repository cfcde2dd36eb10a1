// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tessera/io/stored.hpp"
#include "tessera/io/stored_copy.hpp"
#include "tessera/io/symmetry.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/storage.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::io {

/// Stored cells of a box to cells of a tile. The value is computed in double and rounded once, but for the logarithm of
/// a number that T holds exactly, which is taken in T.
template <class T>
struct ConvertCells {
  Tile<T> target;
  std::byte const* source;      ///< the cell at the box's lowest indices
  std::int64_t stride[5];       ///< in stored cells, along (sample, depth, height, width, channel)
  Rows rows;                    ///< of the box
  Transform const* transforms;  ///< of each channel of the sample; null: `all` is every channel's
  Transform all;
  CellType type;

  TESSERA_HD void operator()(std::int64_t row) const {
    std::int64_t at[4];
    rows.position(row, at);
    line(at, 1);
  }

  /// Rows begin to end, as long as they are neighbours along width in one go.
  void range(std::int64_t begin, std::int64_t end) const {
    for (std::int64_t row = begin; row < end;) {
      std::int64_t at[4];
      rows.position(row, at);
      std::int64_t const count = smaller(end - row, rows.box.axis[3].end - at[3]);
      line(at, count);
      row += count;
    }
  }

 private:
  /// `count` positions along width.
  TESSERA_HD void line(std::int64_t const at[4], std::int64_t count) const {
    switch (type) {
      case CellType::int8: return line_of<std::int8_t>(at, count);
      case CellType::uint8: return line_of<std::uint8_t>(at, count);
      case CellType::int16: return line_of<std::int16_t>(at, count);
      case CellType::uint16: return line_of<std::uint16_t>(at, count);
      case CellType::int32: return line_of<std::int32_t>(at, count);
      case CellType::float32: return line_of<float>(at, count);
      case CellType::float64: return line_of<double>(at, count);
    }
  }

  template <class S>
  TESSERA_HD void line_of(std::int64_t const at[4], std::int64_t count) const {
    Interval const channels = rows.box.axis[4];
    S const* from = reinterpret_cast<S const*>(source);
    for (int a = 0; a < 4; ++a) from += (at[a] - rows.box.axis[a].begin) * stride[a];
    T* const to = target.position(at[0], at[1], at[2], at[3]) + channels.begin;
    if (transforms == nullptr && stride[4] == 1 && stride[3] == channels.size() && target.stride[3] == channels.size())
      return cells(from, 1, to, 1, count * channels.size(), all);
    for (std::int64_t c = 0; c < channels.size(); ++c)
      cells(from + c * stride[4], stride[3], to + c, target.stride[3], count,
            transforms == nullptr ? all : transforms[channels.begin + c]);
  }

  template <class S>
  TESSERA_HD static void cells(S const* from, std::int64_t from_step, T* to, std::int64_t to_step, std::int64_t count,
                               Transform const& transform) {
    double const scale = transform.scale, shift = transform.shift;
    if (transform.logarithm) {
      using Exact = std::conditional_t<std::is_same_v<S, double> || std::is_same_v<S, std::int32_t>, double, T>;
      for (std::int64_t i = 0; i < count; ++i)
        to[i * to_step] =
            static_cast<T>(static_cast<double>(Kokkos::log1p(static_cast<Exact>(from[i * from_step]))) * scale + shift);
    } else if (scale != 1.0 || shift != 0.0) {
      TESSERA_INDEPENDENT
      for (std::int64_t i = 0; i < count; ++i)
        to[i * to_step] = static_cast<T>(static_cast<double>(from[i * from_step]) * scale + shift);
    } else if (from_step == 1 && to_step == 1) {
      TESSERA_INDEPENDENT
      for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i]);
    } else {
      TESSERA_INDEPENDENT
      for (std::int64_t i = 0; i < count; ++i) to[i * to_step] = static_cast<T>(from[i * from_step]);
    }
  }
};

/// Converts stored cells on an execution space, which they are copied to as bytes. Keeps its memory from call to call.
template <class T, class Space>
class Converter {
 public:
  /// Fills `box` of a tile from cells on the host: those of the box, or of its original under a symmetry, sample by
  /// sample in the field's type and order. Returns when that is done.
  void operator()(StoredField const& field, Box const& box, std::byte const* cells, Tile<T> const& target,
                  Symmetry const& symmetry = {}) {
    if (box.empty()) return;
    if constexpr (!host_can_access<Space>) {
      bytes_.grow(field.bytes(box));
      copy_flat<Space, Kokkos::DefaultHostExecutionSpace, std::byte>(bytes_.data(), cells, field.bytes(box));
      cells = bytes_.data();
    }
    on_device(field, box, cells, target, symmetry);
    space_.fence("tessera::Converter");
  }

  /// The same from cells that the execution space can read. Returns when that is under way.
  void on_device(StoredField const& field, Box const& box, std::byte const* cells, Tile<T> const& target,
                 Symmetry const& symmetry = {}) {
    if (box.empty()) return;
    check_transforms("Converter", field);
    ConvertCells<T> convert{target, cells, {}, {box}, nullptr, Transform::none, field.type};
    Box const original = symmetry.original(box, field.shape);
    std::int64_t lies[axis_count] = {}, step = 1;
    auto const order = stored_axes(field.order);
    for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
      lies[*axis] = step;
      step *= original.axis[*axis].size();
    }
    lies[0] = step;
    for (int axis = 0; axis < axis_count; ++axis) convert.stride[axis] = lies[axis];
    for (std::size_t a = 0; a < 3; ++a) {
      std::int64_t& along = convert.stride[a + 1];
      along = lies[symmetry.from[a] + 1];
      if (!symmetry.mirrored[a]) continue;
      convert.source += (box.axis[a + 1].size() - 1) * along * size_of(field.type);
      along = -along;
    }
    if (field.transforms.size() > 1)
      convert.transforms = each(field.transforms);
    else if (!field.transforms.empty())
      convert.all = field.transforms.front();
    run("tessera::convert", space_, convert.rows.count(), convert, 4 * box.axis[4].size());
  }

 private:
  /// The transforms of each channel, where the execution space can read them.
  Transform const* each(std::vector<Transform> const& transforms) {
    if (transforms != known_) {
      space_.fence("tessera::Converter");  // a kernel may still read the old ones
      known_ = transforms;
      auto const count = static_cast<std::int64_t>(known_.size());
      transforms_.grow(count);
      copy_flat<Space, Kokkos::DefaultHostExecutionSpace, Transform>(transforms_.data(), known_.data(), count);
    }
    return transforms_.data();
  }

  Space space_;
  Storage<std::byte, Space> bytes_;
  Storage<Transform, Space> transforms_;
  std::vector<Transform> known_;
};

}  // namespace tessera::io
