// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "support/layer_cases.hpp"
#include "support/oracle/pool.hpp"

namespace tessera::test {

/// Whether a pool of n cells along one axis is sound.
inline bool is_sound_pool(Window const& w, std::int64_t n, bool ceil) {
  oracle::Pool const pool{{Window{}, Window{}, w}, ceil};
  return pool.outputs(2, n) >= 1 && !pool.misses_all(2, n);
}

/// A window of one axis; as a rule not all that is drawn is sound: then the kernel shrinks.
inline Window draw_pool_window(std::int64_t n, bool ceil, bool same_padding, bool largest) {
  Window w;
  w.kernel = draw_one_in(2, "a wide kernel") ? draw(3, 7, "kernel") : draw(1, 4, "kernel");
  w.stride = draw(0, 1, "strided") == 0 ? 1 : draw(2, 4, "stride");
  if (largest && !same_padding) w.dilation = draw(0, 1, "dilated") == 0 ? 1 : draw(2, 3, "dilation");
  std::int64_t const low = draw(0, 3, "low"), high = draw(0, 3, "high");
  for (;; --w.kernel) {
    w.low = smaller(low, w.kernel / 2);
    w.high = smaller(high, w.kernel / 2);
    if (same_padding) {
      std::int64_t const total = larger(0, (ceil_div(n, w.stride) - 1) * w.stride + w.kernel - n);
      w.low = total / 2;
      w.high = total - w.low;
    }
    if (w.kernel == 1 || is_sound_pool(w, n, ceil)) return w;
  }
}

}  // namespace tessera::test
