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
  /// The input's global depth, height and width, where all cells beyond them are zeros that kernels may leave out; 0
  /// where that is not known. A sum's order stays a function of its place, not of the box.
  std::int64_t extent[3] = {};
  /// Elements between the weights of neighbouring input channels, where they are columns of a larger array; 0 if dense.
  std::int64_t weight_step = 0;

  TESSERA_HD constexpr std::int64_t row_step() const { return weight_step == 0 ? out_channels : weight_step; }
  TESSERA_HD constexpr std::int64_t weights() const { return windows.taps() * in_channels * out_channels; }
};

}  // namespace tessera::op
