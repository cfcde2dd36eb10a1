// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/op/geometry.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// dx of a cell = what its readers, the outputs that read it, hand back, in their row-major order whatever the box. An
/// adjoint says which they are along each axis, and how they read:
///   Interval readers(int axis, std::int64_t at)             all outputs that may read the input
///   Link link(int axis, std::int64_t at, std::int64_t o)    how output o reads it; not at all unless `reads`
///   void add(std::int64_t sample, std::int64_t const o[3], Link const by[3], T* sum, Interval channels)
template <class T, class Adjoint>
struct SumOverReaders {
  Adjoint adjoint;
  Tile<T> dx;
  Accumulate accumulate;

  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    Interval readers[3];
    for (int i = 0; i < 3; ++i) readers[i] = adjoint.readers(i, at[i + 1]);
    T* sum = dx.position(at[0], at[1], at[2], at[3]);
    if (accumulate == Accumulate::write) {
      TESSERA_INDEPENDENT
      for (std::int64_t c = channels.begin; c < channels.end; ++c) sum[c] = T(0);
    }
    std::int64_t o[3];
    typename Adjoint::Link by[3];
    for (o[0] = readers[0].begin; o[0] < readers[0].end; ++o[0]) {
      by[0] = adjoint.link(0, at[1], o[0]);
      if (!by[0].reads) continue;
      for (o[1] = readers[1].begin; o[1] < readers[1].end; ++o[1]) {
        by[1] = adjoint.link(1, at[2], o[1]);
        if (!by[1].reads) continue;
        for (o[2] = readers[2].begin; o[2] < readers[2].end; ++o[2]) {
          by[2] = adjoint.link(2, at[3], o[2]);
          if (by[2].reads) adjoint.add(at[0], o, by, sum, channels);
        }
      }
    }
  }
};

}  // namespace tessera::op
