// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/op/geometry.hpp"
#include "tessera/op/readers.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// Where outputs look for their values.
enum class Resample {
  nearest,        ///< at o n / m, rounded down
  nearest_exact,  ///< at the cell that the output's centre lies in
  linear,         ///< between the two cells around its centre
  linear_aligned  ///< the same where the centres of the first and last cells coincide
};

/// One axis brought from n cells to m, in whole numbers alone (geometry.md, resampling).
struct ResampledAxis {
  Resample rule = Resample::nearest;
  std::int64_t n = 1;
  std::int64_t m = 1;

  /// Where an output looks: part / whole of the way from a cell to the next one.
  struct Place {
    std::int64_t cell;
    std::int64_t part;
    std::int64_t whole;

    /// How much of a cell the output takes.
    TESSERA_HD constexpr double weight(std::int64_t at) const {
      std::int64_t const share = at == cell ? whole - part : at == cell + 1 ? part : 0;
      return static_cast<double>(share) / static_cast<double>(whole);
    }
  };

  TESSERA_HD constexpr bool linear() const { return rule == Resample::linear || rule == Resample::linear_aligned; }

  TESSERA_HD constexpr Place place(std::int64_t o) const {
    std::int64_t above = o * n, below = m;  // the place is above / below
    if (rule == Resample::nearest_exact) {
      above = (2 * o + 1) * n;
      below = 2 * m;
    } else if (rule == Resample::linear) {
      above = larger(0, (2 * o + 1) * n - m);
      below = 2 * m;
    } else if (rule == Resample::linear_aligned) {
      above = m == 1 ? 0 : o * (n - 1);
      below = m == 1 ? 1 : m - 1;
    }
    std::int64_t const cell = above / below;
    return {cell, linear() && cell + 1 < n ? above % below : 0, below};
  }

  /// The cells that outputs take values from.
  TESSERA_HD constexpr Interval required(Interval out) const {
    if (out.empty()) return {};
    Place const last = place(out.end - 1);
    return {place(out.begin).cell, last.cell + (last.part > 0 ? 2 : 1)};
  }

  /// The outputs that take values from cells, and perhaps neighbours that give them no weight.
  TESSERA_HD constexpr Interval touch(Interval in) const {
    if (in.empty()) return {};
    Interval out{};
    switch (rule) {
      case Resample::nearest: out = {ceil_div(in.begin * m, n), ceil_div(in.end * m, n)}; break;
      case Resample::nearest_exact:
        out = {ceil_div(2 * in.begin * m - n, 2 * n), ceil_div(2 * in.end * m - n, 2 * n)};
        break;
      case Resample::linear:
        out = {floor_div((2 * in.begin - 1) * m - n, 2 * n) + 1, ceil_div((2 * in.end + 1) * m - n, 2 * n)};
        break;
      case Resample::linear_aligned:
        if (n == 1) return {0, m};
        if (m == 1) return {0, in.begin == 0 ? 1 : 0};
        out = {floor_div((in.begin - 1) * (m - 1), n - 1) + 1, ceil_div(in.end * (m - 1), n - 1)};
        break;
    }
    return intersect(out, Interval{0, m});
  }
};

/// Depth, height and width.
struct ResampleGeometry {
  ResampledAxis axis[3];
};

/// y = the weighted sum of the (at most eight) cells around an output's place.
template <class T>
struct Interpolate {
  ResampleGeometry geometry;
  Tile<T const> x;
  Tile<T> y;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    ResampledAxis::Place place[3];
    Interval cells[3];
    for (int i = 0; i < 3; ++i) {
      place[i] = geometry.axis[i].place(at[i + 1]);
      cells[i] = {place[i].cell, place[i].cell + (place[i].part > 0 ? 2 : 1)};
    }
    T* sum = y.position(at[0], at[1], at[2], at[3]);
    bool first = true;
    for (std::int64_t d = cells[0].begin; d < cells[0].end; ++d)
      for (std::int64_t h = cells[1].begin; h < cells[1].end; ++h) {
        double const plane = place[0].weight(d) * place[1].weight(h);
        for (std::int64_t w = cells[2].begin; w < cells[2].end; ++w) {
          T const weight = static_cast<T>(plane * place[2].weight(w));
          T const* in = x.position(at[0], d, h, w);
          if (first) {  // no sum of a zero: a cell alone keeps its sign
            TESSERA_INDEPENDENT
            for (std::int64_t c = channels.begin; c < channels.end; ++c) sum[c] = weight * in[c];
          } else {
            TESSERA_INDEPENDENT
            for (std::int64_t c = channels.begin; c < channels.end; ++c) sum[c] += weight * in[c];
          }
          first = false;
        }
      }
  }
};

/// Its adjoint: an output hands dy to its cells, by the same weights.
template <class T>
struct InterpolateAdjoint {
  struct Link {
    double weight;
    bool reads;
  };

  ResampleGeometry geometry;
  Tile<T const> dy;

  TESSERA_HD Interval readers(int i, std::int64_t at) const { return geometry.axis[i].touch({at, at + 1}); }
  TESSERA_HD Link link(int i, std::int64_t at, std::int64_t o) const {
    double const weight = geometry.axis[i].place(o).weight(at);
    return {weight, weight != 0.0};
  }
  TESSERA_HD void add(std::int64_t sample, std::int64_t const o[3], Link const by[3], T* sum, Interval channels) const {
    T const weight = static_cast<T>(by[0].weight * by[1].weight * by[2].weight);
    T const* error = dy.position(sample, o[0], o[1], o[2]);
    TESSERA_INDEPENDENT
    for (std::int64_t c = channels.begin; c < channels.end; ++c) sum[c] += weight * error[c];
  }
};

}  // namespace tessera::op
