// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "tessera/core/config.hpp"
#include "tessera/partition/axis.hpp"
#include "tessera/partition/box.hpp"
#include "tessera/partition/window.hpp"

namespace tessera {

/// The windows of an operation along depth, height and width.
struct Windows {
  Window axis[3];

  /// The window along a tensor axis; sample and channel are passed through cell by cell.
  TESSERA_HD constexpr Window operator[](AxisId a) const {
    int const i = static_cast<int>(a) - 1;
    return 0 <= i && i < 3 ? axis[i] : Window{};
  }

  TESSERA_HD constexpr std::int64_t taps() const { return axis[0].kernel * axis[1].kernel * axis[2].kernel; }

  friend constexpr bool operator==(Windows const&, Windows const&) = default;
};

/// Whether a gradient is written or added to what is there (a tensor with several consumers).
enum class Accumulate { write, add };

/// The axes that windows slide along.
inline constexpr std::array<AxisId, 3> spatial_axes{AxisId::depth, AxisId::height, AxisId::width};

}  // namespace tessera
