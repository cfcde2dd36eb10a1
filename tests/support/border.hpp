// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/exchange/plan.hpp"

namespace tessera::test {

/// The cell of an axis of n cells that cell g, anywhere, takes its value from: nothing beyond the border for zeros.
inline std::optional<std::int64_t> source_of(Padding padding, std::int64_t g, std::int64_t n) {
  if (g >= 0 && g < n) return g;
  if (n == 0) return std::nullopt;
  switch (padding) {
    case Padding::zeros: return std::nullopt;
    case Padding::circular:
      while (g < 0) g += n;
      while (g >= n) g -= n;
      return g;
    case Padding::reflect:
      if (g < 0) g = -g;
      return g < n ? g : 2 * (n - 1) - g;
    case Padding::replicate: return g < 0 ? 0 : n - 1;
  }
  return std::nullopt;
}

}  // namespace tessera::test
