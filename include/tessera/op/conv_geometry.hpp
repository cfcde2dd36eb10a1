// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/op/geometry.hpp"

namespace tessera::op {

/// A convolution (cross-correlation) as the whole network sees it. Weights are dense, [depth tap][height tap]
/// [width tap][input channel][output channel], so that the output channels of a tap are one SIMD run.
struct ConvGeometry {
  Windows windows;
  std::int64_t in_channels = 1;
  std::int64_t out_channels = 1;

  TESSERA_HD constexpr std::int64_t weights() const { return windows.taps() * in_channels * out_channels; }
};

}  // namespace tessera::op
