// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <string_view>

namespace tessera {

/// The five axes in the order in which a tensor stores them (slowest first): channels-last.
enum class AxisId : int { sample = 0, depth = 1, height = 2, width = 3, channel = 4 };

inline constexpr int axis_count = 5;

/// The axes in the order in which ranks are numbered: sample slowest, width fastest.
inline constexpr std::array<AxisId, axis_count> rank_order{AxisId::sample, AxisId::channel, AxisId::depth,
                                                           AxisId::height, AxisId::width};

constexpr int index(AxisId axis) { return static_cast<int>(axis); }

constexpr std::string_view name(AxisId axis) {
  switch (axis) {
    case AxisId::sample: return "sample";
    case AxisId::depth: return "depth";
    case AxisId::height: return "height";
    case AxisId::width: return "width";
    case AxisId::channel: break;
  }
  return "channel";
}

/// Tags that name an axis in a Distribution.
namespace axes {
struct Sample {
  static constexpr AxisId id = AxisId::sample;
};
struct Channel {
  static constexpr AxisId id = AxisId::channel;
};
struct Depth {
  static constexpr AxisId id = AxisId::depth;
};
struct Height {
  static constexpr AxisId id = AxisId::height;
};
struct Width {
  static constexpr AxisId id = AxisId::width;
};
}  // namespace axes

template <class Tag>
concept AxisTag = requires {
  { Tag::id } -> std::same_as<AxisId const&>;
};

}  // namespace tessera
