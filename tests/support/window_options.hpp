// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "tessera/layer/window_spec.hpp"
#include "tessera/partition/window.hpp"

namespace tessera::test {

/// Gives a spec the windows of depth, height and width as options; the pads too, unless they are left to `same`.
template <class Spec>
void set_windows(Spec& spec, std::array<Window, 3> const& windows, bool same_padding = false) {
  auto const& [d, h, w] = windows;
  spec.set(kernel(d.kernel, h.kernel, w.kernel));
  spec.set(stride(d.stride, h.stride, w.stride));
  spec.set(dilation(d.dilation, h.dilation, w.dilation));
  if (same_padding) return spec.set(same);
  spec.set(padding_low(d.low, h.low, w.low));
  spec.set(padding_high(d.high, h.high, w.high));
}

}  // namespace tessera::test
