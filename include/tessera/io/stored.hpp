// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/partition/box.hpp"
#include "tessera/partition/shape.hpp"

namespace tessera::io {

/// The element types of data files.
enum class CellType { int8, uint8, int16, uint16, int32, float32, float64 };

constexpr std::int64_t size_of(CellType type) {
  switch (type) {
    case CellType::int8:
    case CellType::uint8: return 1;
    case CellType::int16:
    case CellType::uint16: return 2;
    case CellType::int32:
    case CellType::float32: return 4;
    case CellType::float64: break;
  }
  return 8;
}

constexpr char const* name(CellType type) {
  switch (type) {
    case CellType::int8: return "int8";
    case CellType::uint8: return "uint8";
    case CellType::int16: return "int16";
    case CellType::uint16: return "uint16";
    case CellType::int32: return "int32";
    case CellType::float32: return "float32";
    case CellType::float64: break;
  }
  return "float64";
}
inline std::ostream& operator<<(std::ostream& out, CellType type) { return out << name(type); }

/// How the cells of a sample follow each other in memory.
enum class CellOrder {
  channels_last,  ///< (depth, height, width, channel)
  channels_first  ///< (channel, depth, height, width)
};

/// What becomes of a stored value v: scale * f(v) + shift, where f(v) is log(1 + v) if `logarithm` is set, else v.
struct Transform {
  double scale = 1.0;
  double shift = 0.0;
  bool logarithm = false;

  static Transform const none;
  static Transform const log1p;  ///< for counts that span decades

  friend constexpr bool operator==(Transform const&, Transform const&) = default;
};
inline constexpr Transform Transform::none{};
inline constexpr Transform Transform::log1p{.logarithm = true};

/// A sample's input or target as it is stored.
struct StoredField {
  Shape shape;  ///< of one sample
  CellType type = CellType::float32;
  CellOrder order = CellOrder::channels_last;
  std::vector<Transform> transforms = {};  ///< none, one for all channels, or one for each

  std::int64_t bytes(Box const& box) const { return box.volume() * size_of(type); }

  friend bool operator==(StoredField const&, StoredField const&) = default;
};

/// What a sample consists of.
enum class Part { input, target };
inline constexpr Part parts[] = {Part::input, Part::target};
constexpr std::size_t index(Part part) { return part == Part::input ? 0 : 1; }

/// Where samples come from, as they are stored: `read_stored` gives the cells of a box (depth, height, width, channel)
/// of one sample densely, in the field's type and order; the box's sample axis is not looked at. The box may be any
/// within the sample, and may be empty. It may be called from a thread of its own, one call at a time, and uses neither
/// MPI nor Kokkos. The cells are converted where the model computes.
template <class S>
concept StoredSource = requires(S& source, Part part, std::int64_t sample, Box const& box, std::byte* cells) {
  { source.size() } -> std::convertible_to<std::int64_t>;
  { source.field(part) } -> std::convertible_to<StoredField>;
  source.read_stored(part, sample, box, cells);
};

/// Fails: unless a field has no transform, one, or as many as channels.
inline void check_transforms(char const* who, StoredField const& field) {
  auto const given = static_cast<std::int64_t>(field.transforms.size());
  require(given <= 1 || given == field.shape.channel, who,
          "the transforms must be none, one for all channels, or one for each of ", field.shape.channel,
          ", but there are ", given);
}

}  // namespace tessera::io
