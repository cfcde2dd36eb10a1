// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>

/// The one place where the version is written; CMake reads these three lines.
#define TESSERA_VERSION_MAJOR 0
#define TESSERA_VERSION_MINOR 1
#define TESSERA_VERSION_PATCH 0

namespace tessera {

/// A semantic version; versions compare in their natural order.
struct Version {
  int major_number;
  int minor_number;
  int patch_number;

  friend constexpr auto operator<=>(Version const&, Version const&) = default;
};

/// The version of these headers.
inline constexpr Version version{TESSERA_VERSION_MAJOR, TESSERA_VERSION_MINOR, TESSERA_VERSION_PATCH};

}  // namespace tessera
