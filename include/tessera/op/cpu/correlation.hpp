// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/op/cpu/register_tile.hpp"
#include "tessera/op/cpu/tasks.hpp"
#include "tessera/partition/interval.hpp"

namespace tessera::op::cpu {

/// A dense correlation on a grid of positions, to which both the forward convolution and every stride phase of its data
/// gradient reduce:
///
///     y[position][c] (+)= start[c] + sum over taps, then channels, of x[position + tap][channel] * w[tap][channel][c]
///
/// Positions are numbered in row-major order and cut into tiles without regard to rows, so that a box one or two cells
/// wide along any axis fills the registers as well as a cube does.
template <class T>
struct Correlation {
  T const* x = nullptr;  ///< what the first position reads at offset 0
  T* y = nullptr;        ///< the first output channel of the first position
  std::int64_t extent[4] = {};  ///< positions along sample, depth, height, width
  std::int64_t x_step[4] = {};  ///< elements of x between neighbouring positions
  std::int64_t y_step[4] = {};
  Segment const* segments = nullptr;  ///< where the taps are, relative to a position, in the order of summation
  std::int64_t segment_count = 0;
  std::int64_t depth = 0;     ///< products per output: the segments' lengths together
  std::int64_t channels = 0;  ///< output channels
  T const* start = nullptr;   ///< channels values, padded to full registers
  bool add = false;           ///< whether y is added to

  std::int64_t positions() const { return extent[0] * extent[1] * extent[2] * extent[3]; }
  std::int64_t work() const { return positions() * depth * channels; }
};

/// Output channels in blocks of full registers: block b holds columns [begin(b), begin(b) + columns(b)).
struct ChannelBlocks {
  std::int64_t channels = 0;
  std::int64_t lanes = 1;

  std::int64_t width() const { return lanes * max_tile_vectors; }
  std::int64_t count() const { return ceil_div(channels, width()); }
  std::int64_t begin(std::int64_t block) const { return block * width(); }
  std::int64_t columns(std::int64_t block) const { return smaller(width(), channels - begin(block)); }
  int vectors(std::int64_t block) const { return static_cast<int>(ceil_div(columns(block), lanes)); }
  /// The columns that all blocks have with their padding.
  std::int64_t padded() const { return ceil_div(channels, lanes) * lanes; }
};

/// The weights of one block of output channels: rows of full registers, one row per product.
template <class T>
struct PackedBlock {
  T const* rows = nullptr;
  std::int64_t step = 0;  ///< elements between rows
};

/// Computes positions [first, last) for one block of output channels.
template <class T>
void correlate(TileKernels<T> const& kernels, Correlation<T> const& problem, ChannelBlocks const& blocks,
               std::int64_t block, PackedBlock<T> const& weights, std::int64_t first, std::int64_t last) {
  int const vectors = blocks.vectors(block), tallest = kernels.rows(vectors);
  T const* x[max_tile_rows];
  T* y[max_tile_rows];
  TileJob<T> job;
  job.x = x;
  job.y = y;
  job.segments = problem.segments;
  job.segment_count = problem.segment_count;
  job.packed = weights.rows;
  job.packed_step = weights.step;
  job.start = problem.start + blocks.begin(block);
  job.columns = static_cast<int>(blocks.columns(block));
  job.add = problem.add;

  std::int64_t at[4], rest = first;
  for (int a = 3; a >= 0; --a) {
    at[a] = rest % problem.extent[a];
    rest /= problem.extent[a];
  }
  while (first < last) {
    job.live = static_cast<int>(smaller(tallest, last - first));
    for (int row = 0; row < job.live;) {
      std::int64_t x_at = 0, y_at = blocks.begin(block);
      for (int a = 0; a < 4; ++a) {
        x_at += at[a] * problem.x_step[a];
        y_at += at[a] * problem.y_step[a];
      }
      std::int64_t const taken = smaller(job.live - row, problem.extent[3] - at[3]);
      for (std::int64_t i = 0; i < taken; ++i, ++row) {
        x[row] = problem.x + x_at + i * problem.x_step[3];
        y[row] = problem.y + y_at + i * problem.y_step[3];
      }
      at[3] += taken;
      for (int a = 3; a > 0 && at[a] == problem.extent[a]; --a) {
        at[a] = 0;
        ++at[a - 1];
      }
    }
    auto const& kernel = kernels.fitting(vectors, job.live);
    for (int row = job.live; row < kernel.rows; ++row) x[row] = x[job.live - 1];
    kernel.run(job);
    first += job.live;
  }
}

/// The multiply-adds after which a task ends, so that several workers share a box and one worker polls often.
inline constexpr std::int64_t task_work = 4'000'000;

/// Runs the whole problem. `weights.prepare(block)` is called once for each block before that is used, for different
/// blocks possibly at a time; `weights.rows(block)` is where its rows then are.
template <class T, class Weights>
void correlate(TileKernels<T> const& kernels, Correlation<T> const& problem, Weights const& weights,
               Tasks const& tasks) {
  ChannelBlocks const blocks{problem.channels, kernels.lanes};
  std::int64_t const positions = problem.positions(), work = problem.work();
  std::int64_t const position_work = larger(1, problem.depth * blocks.width());
  std::int64_t const chunk = larger(1, task_work / position_work / max_tile_rows) * max_tile_rows;
  std::int64_t const chunks = ceil_div(positions, chunk);
  auto const run = [&](std::int64_t block, std::int64_t i) {
    correlate(kernels, problem, blocks, block, weights.rows(block), i * chunk, smaller(positions, (i + 1) * chunk));
  };
  if (tasks.workers(blocks.count() * chunks, work) == 1) {
    for (std::int64_t block = 0; block < blocks.count(); ++block) {
      weights.prepare(block);
      tasks.run(chunks, 0, [&](std::int64_t, std::int64_t i) { run(block, i); });
    }
  } else {
    tasks.run(blocks.count(), work, [&](std::int64_t, std::int64_t block) { weights.prepare(block); });
    tasks.run(blocks.count() * chunks, work, [&](std::int64_t, std::int64_t i) { run(i / chunks, i % chunks); });
  }
}

}  // namespace tessera::op::cpu
