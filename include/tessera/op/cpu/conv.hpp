// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/op/conv_geometry.hpp"
#include "tessera/op/cpu/correlation.hpp"
#include "tessera/op/workspace.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op::cpu {

/// Forward weights: rows are [tap][input channel], as the caller stores them, and are copied into a dense block unless
/// they lie so, or are read too seldom.
template <class T>
struct ForwardWeights {
  T const* weights = nullptr;  ///< the first output channel of the box
  std::int64_t step = 0;       ///< between rows
  std::int64_t depth = 0;
  ChannelBlocks blocks;
  bool in_place = false;  ///< whether full blocks are read where they are
  T* packed = nullptr;

  std::int64_t width(std::int64_t block) const { return blocks.vectors(block) * blocks.lanes; }
  bool reads_in_place(std::int64_t block) const {
    return blocks.columns(block) == width(block) && (step == width(block) || (in_place && blocks.vectors(block) == 2));
  }

  PackedBlock<T> rows(std::int64_t block) const {
    if (reads_in_place(block)) return {weights + blocks.begin(block), step};
    return {packed + blocks.begin(block) * depth, width(block)};
  }

  void prepare(std::int64_t block) const {
    if (reads_in_place(block)) return;
    std::int64_t const columns = blocks.columns(block), padded = width(block);
    T const* from = weights + blocks.begin(block);
    T* to = packed + blocks.begin(block) * depth;
    for (std::int64_t row = 0; row < depth; ++row, from += step, to += padded) {
      std::copy_n(from, columns, to);
      std::fill_n(to + columns, padded - columns, T(0));
    }
  }
};

/// What a stride phase of the data gradient is along one axis: the inputs i = first + stride * q, q < count, and the
/// taps that reach them, which form a dense correlation over the output (geometry: i + low = d j + s o).
struct PhaseAxis {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t taps = 0;
  std::int64_t last_tap = 0;  ///< taps are taken in descending order from here, so that outputs ascend
  std::int64_t tap_step = 1;
  std::int64_t output = 0;  ///< the output that the first input reads through last_tap
  std::int64_t dilation = 1;

  PhaseAxis(Window const& window, Interval in, std::int64_t phase) {
    std::int64_t const s = window.stride, d = window.dilation;
    std::int64_t const q = ceil_div(in.begin + window.low - phase, s);
    first = phase - window.low + s * q;
    count = larger(0, ceil_div(in.end + window.low - phase, s) - q);
    while (floor_mod(d * tap_step, s) != 0) ++tap_step;
    dilation = d * tap_step / s;
    std::int64_t tap = 0;
    while (tap < tap_step && floor_mod(phase - d * tap, s) != 0) ++tap;
    if (tap == tap_step || tap >= window.kernel) return;
    taps = ceil_div(window.kernel - tap, tap_step);
    last_tap = tap + (taps - 1) * tap_step;
    output = q + (phase - d * last_tap) / s;
  }
};

/// to[j][i] = from[i][j] for i < rows and j < columns, where rows of `from` lie `from_step` apart and those of `to`
/// `step`; to[j][i] = 0 for rows <= i < step. In squares that two registers' worth of shuffles turn over.
template <class T>
void transpose(T const* from, std::int64_t from_step, std::int64_t rows, std::int64_t columns, T* to,
               std::int64_t step) {
  using Register = Simd<Isa::baseline, T>;
  constexpr std::int64_t side = Register::lanes;
  std::int64_t const whole_rows = rows / side * side, whole_columns = columns / side * side;
  for (std::int64_t j = 0; j < whole_columns; j += side)
    for (std::int64_t i = 0; i < whole_rows; i += side) {
      typename Register::Vector square[side];
      for (std::int64_t k = 0; k < side; ++k) square[k] = Register::load(from + (i + k) * from_step + j);
      Register::transpose(square);
      for (std::int64_t k = 0; k < side; ++k) Register::store(to + (j + k) * step + i, square[k]);
    }
  for (std::int64_t j = 0; j < columns; ++j) {
    for (std::int64_t i = j < whole_columns ? whole_rows : 0; i < rows; ++i) to[j * step + i] = from[i * from_step + j];
    std::fill_n(to + j * step + rows, step - rows, T(0));
  }
}

/// Weights of a phase with the roles of the channels exchanged: rows are [tap][output channel].
template <class T>
struct TransposedWeights {
  T const* weights = nullptr;  ///< the first input channel of the box
  ConvGeometry const& geometry;
  PhaseAxis const (&axis)[3];
  ChannelBlocks blocks;  ///< of input channels
  T* packed = nullptr;

  std::int64_t width(std::int64_t block) const { return blocks.vectors(block) * blocks.lanes; }
  std::int64_t depth() const { return axis[0].taps * axis[1].taps * axis[2].taps * geometry.out_channels; }

  PackedBlock<T> rows(std::int64_t block) const { return {packed + blocks.begin(block) * depth(), width(block)}; }

  void prepare(std::int64_t block) const {
    std::int64_t const columns = blocks.columns(block), padded = width(block), outs = geometry.out_channels,
                       step = geometry.row_step();
    Window const* const window = geometry.windows.axis;
    T* to = packed + blocks.begin(block) * depth();
    auto const tap = [&](int a, std::int64_t t) { return axis[a].last_tap - t * axis[a].tap_step; };
    for (std::int64_t d = 0; d < axis[0].taps; ++d)
      for (std::int64_t h = 0; h < axis[1].taps; ++h)
        for (std::int64_t w = 0; w < axis[2].taps; ++w, to += outs * padded) {
          std::int64_t const index = (tap(0, d) * window[1].kernel + tap(1, h)) * window[2].kernel + tap(2, w);
          T const* const from = weights + (index * geometry.in_channels + blocks.begin(block)) * step;
          transpose(from, step, columns, outs, to, padded);
        }
  }
};

/// Elements rounded up to whole cache lines, so that what follows in a workspace is aligned.
constexpr std::int64_t aligned(std::int64_t elements) { return ceil_div(elements, 16) * 16; }

/// y (+)= x * w + bias on the box `out`. Every output sums its taps in the order (depth, height, width, input channel),
/// starting from the bias, wherever it is computed.
template <class T>
void host_conv_forward(TileKernels<T> const& kernels, ConvGeometry const& geometry, Tile<T const> const& x,
                       T const* weights, T const* bias, Tile<T> const& y, Box const& out, Accumulate accumulate,
                       Workspace<T>& workspace, Tasks const& tasks) {
  Window const* const window = geometry.windows.axis;
  std::int64_t const channels = out.axis[4].size(), begin = out.axis[4].begin;
  std::int64_t const depth = geometry.windows.taps() * geometry.in_channels;
  ChannelBlocks const blocks{channels, kernels.lanes};
  T* const start = workspace.values(aligned(blocks.padded()) + blocks.padded() * depth);
  std::fill_n(start, blocks.padded(), T(0));
  if (bias != nullptr) std::copy_n(bias + begin, channels, start);

  Correlation<T> problem;
  problem.samples = out.axis[0].size();
  for (int a = 0; a < 3; ++a) {
    Interval const o = out.axis[a + 1];
    Window const& w = window[a];
    problem.axis[a] = {o.size(), w.kernel, o.begin * w.stride - w.low, w.stride, w.dilation, geometry.extent[a]};
    problem.x_step[a + 1] = x.stride[a + 1] * w.stride;
    problem.y_step[a + 1] = y.stride[a + 1];
    problem.tap_step[a] = x.stride[a + 1] * w.dilation;
  }
  problem.x_step[0] = x.stride[0];
  problem.y_step[0] = y.stride[0];
  problem.x = x.position(out.axis[0].begin, problem.axis[0].first, problem.axis[1].first, problem.axis[2].first);
  problem.y = y.position(out.axis[0].begin, out.axis[1].begin, out.axis[2].begin, out.axis[3].begin) + begin;
  problem.inputs = geometry.in_channels;
  problem.channels = channels;
  problem.start = start;
  problem.add = accumulate == Accumulate::add;
  bool const in_place = problem.positions() <= max_tile_rows;  // then each weight is read once
  correlate(kernels, problem,
            ForwardWeights<T>{weights + begin, geometry.row_step(), depth, blocks, in_place,
                              start + aligned(blocks.padded())},
            workspace, tasks);
}

/// dx (+)= the adjoint of x -> y applied to dy, on the box `in`. Every input sums its taps in descending order (depth,
/// height, width), then output channels, wherever it is computed.
template <class T>
void host_conv_backward_data(TileKernels<T> const& kernels, ConvGeometry const& geometry, Tile<T const> const& dy,
                             T const* weights, Tile<T> const& dx, Box const& in, Accumulate accumulate,
                             Workspace<T>& workspace, Tasks const& tasks) {
  Window const* const window = geometry.windows.axis;
  std::int64_t const channels = in.axis[4].size(), begin = in.axis[4].begin;
  ChannelBlocks const blocks{channels, kernels.lanes};
  std::int64_t const taps_in_all = geometry.windows.taps();
  T* const start = workspace.values(aligned(blocks.padded()) + blocks.padded() * taps_in_all * geometry.out_channels);
  std::fill_n(start, blocks.padded(), T(0));

  for (std::int64_t phase = 0; phase < window[0].stride * window[1].stride * window[2].stride; ++phase) {
    PhaseAxis const axis[3] = {
        {window[0], in.axis[1], phase / window[2].stride / window[1].stride},
        {window[1], in.axis[2], phase / window[2].stride % window[1].stride},
        {window[2], in.axis[3], phase % window[2].stride},
    };
    Correlation<T> problem;
    problem.samples = in.axis[0].size();
    for (int a = 0; a < 3; ++a) {
      std::int64_t const bound = geometry.extent[a] == 0 ? 0 : window[a].outputs(geometry.extent[a]);
      problem.axis[a] = {axis[a].count, axis[a].taps, axis[a].output, 1, axis[a].dilation, bound};
      problem.x_step[a + 1] = dy.stride[a + 1];
      problem.y_step[a + 1] = dx.stride[a + 1] * window[a].stride;
      problem.tap_step[a] = dy.stride[a + 1] * axis[a].dilation;
    }
    problem.x_step[0] = dy.stride[0];
    problem.y_step[0] = dx.stride[0];
    if (problem.taps() > 0) {
      problem.x = dy.position(in.axis[0].begin, axis[0].output, axis[1].output, axis[2].output);
    } else {
      std::fill_n(problem.x_step, 4, 0);  // nothing is read, and dy may hold nothing
    }
    problem.y = dx.position(in.axis[0].begin, axis[0].first, axis[1].first, axis[2].first) + begin;
    problem.inputs = geometry.out_channels;
    problem.channels = channels;
    problem.start = start;
    problem.add = accumulate == Accumulate::add;
    if (problem.positions() == 0) continue;
    correlate(kernels, problem,
              TransposedWeights<T>{weights + begin * geometry.row_step(), geometry, axis, blocks,
                                   start + aligned(blocks.padded())},
              workspace, tasks);
  }
}

}  // namespace tessera::op::cpu
