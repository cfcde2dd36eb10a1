// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "tessera/op/cpu/register_tile.hpp"
#include "tessera/op/cpu/tasks.hpp"
#include "tessera/op/workspace.hpp"
#include "tessera/partition/interval.hpp"

namespace tessera::op::cpu {

/// The positions and taps of a correlation along one axis: position q reads x at first + step * q + dilation * t
/// through tap t. Where `bound` is not 0, x is zero outside [0, bound), and taps that fall there are left out.
struct TapAxis {
  std::int64_t positions = 1;
  std::int64_t taps = 1;
  std::int64_t first = 0;
  std::int64_t step = 1;
  std::int64_t dilation = 1;
  std::int64_t bound = 0;

  /// The taps that position q has to read.
  Interval needed(std::int64_t q) const {
    if (bound == 0) return {0, taps};
    std::int64_t const source = first + step * q;
    Interval const inside{ceil_div(-source, dilation), floor_div(bound - 1 - source, dilation) + 1};
    return intersect({0, taps}, inside);
  }

  /// The end of the run of positions from q on that have to read the same taps.
  std::int64_t run_end(std::int64_t q) const {
    if (bound == 0) return positions;
    Interval const same = needed(q);
    while (q < positions && needed(q) == same) ++q;
    return q;
  }
};

/// A dense correlation on a grid of positions, to which both the forward convolution and every stride phase of its data
/// gradient reduce:
///
///     y[position][c] (+)= start[c] + sum over taps, then channels, of x[position + tap][channel] * w[tap][channel][c]
///
/// The grid is cut into parts whose positions read the same taps (all but the border is one part), the positions of a
/// part are numbered in row-major order and cut into tiles without regard to rows, so that a box one or two cells wide
/// along any axis fills the registers as well as a cube does.
template <class T>
struct Correlation {
  T const* x = nullptr;  ///< what the first position reads at offset 0
  T* y = nullptr;        ///< the first output channel of the first position
  std::int64_t samples = 1;
  TapAxis axis[3];              ///< depth, height, width
  std::int64_t x_step[4] = {};  ///< elements of x between neighbouring positions
  std::int64_t y_step[4] = {};
  std::int64_t tap_step[3] = {};  ///< elements of x between neighbouring taps
  std::int64_t inputs = 1;        ///< channels of x
  std::int64_t channels = 0;      ///< channels of y
  T const* start = nullptr;       ///< channels values, padded to full registers
  bool add = false;               ///< whether y is added to

  std::int64_t taps() const { return axis[0].taps * axis[1].taps * axis[2].taps; }
  /// Products per output, which is also the number of rows of the packed weights.
  std::int64_t depth() const { return taps() * inputs; }
  std::int64_t positions() const { return samples * axis[0].positions * axis[1].positions * axis[2].positions; }
  std::int64_t work() const { return positions() * depth() * channels; }
};

/// Where the needed taps of a part lie relative to a position, in the order of summation. Taps and channels along the
/// width are one segment where they are contiguous, which changes the loop, not the order.
template <class T>
std::int64_t tap_segments(Correlation<T> const& problem, Interval depths, Interval heights, Segment* segments) {
  TapAxis const* const axis = problem.axis;
  bool const joined = problem.tap_step[2] == problem.inputs || axis[2].taps == 1;
  std::int64_t const pieces = joined ? 1 : axis[2].taps;
  std::int64_t const length = problem.inputs * (joined ? axis[2].taps : 1);
  std::int64_t count = 0, row = 0;
  if (problem.taps() == 0) return 0;
  for (std::int64_t d = depths.begin; d < depths.end; ++d)
    for (std::int64_t h = heights.begin; h < heights.end; ++h)
      for (std::int64_t w = 0; w < pieces; ++w) {
        std::int64_t const first = ((d * axis[1].taps + h) * pieces + w) * length;
        segments[count++] = {d * problem.tap_step[0] + h * problem.tap_step[1] + w * problem.tap_step[2], length,
                             first - row};
        row = first + length;
      }
  return count;
}

/// The parts of a problem, with tasks of `chunk` positions each. Returns the number of tasks.
template <class T>
std::int64_t make_parts(Correlation<T> const& problem, std::int64_t chunk, Workspace<T>& workspace,
                        std::vector<Part>& parts) {
  TapAxis const &depth = problem.axis[0], &height = problem.axis[1];
  for (std::int64_t d = 0; d < depth.positions; d = depth.run_end(d))
    for (std::int64_t h = 0; h < height.positions; h = height.run_end(h))
      parts.push_back(
          {{d, h}, {problem.samples, depth.run_end(d) - d, height.run_end(h) - h, problem.axis[2].positions}});
  std::int64_t const taps = problem.taps();
  Segment* const segments = workspace.segments(taps * static_cast<std::int64_t>(parts.size()));
  std::int64_t chunks = 0, used = 0;
  for (Part& part : parts) {
    part.segments = segments + used;
    part.segment_count =
        tap_segments(problem, depth.needed(part.begin[0]), height.needed(part.begin[1]), segments + used);
    used += part.segment_count;
    part.first_chunk = chunks;
    chunks += ceil_div(part.positions(), chunk);
  }
  return chunks;
}

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

/// Computes positions [first, last) of a part for one block of output channels.
template <class T>
void correlate(TileKernels<T> const& kernels, Correlation<T> const& problem, Part const& part,
               ChannelBlocks const& blocks, std::int64_t block, PackedBlock<T> const& weights, std::int64_t first,
               std::int64_t last) {
  int const vectors = blocks.vectors(block), tallest = kernels.rows(vectors);
  T const* x[max_tile_rows];
  T* y[max_tile_rows];
  TileJob<T> job;
  job.x = x;
  job.y = y;
  job.segments = part.segments;
  job.segment_count = part.segment_count;
  job.packed = weights.rows;
  job.packed_step = weights.step;
  job.start = problem.start + blocks.begin(block);
  job.columns = static_cast<int>(blocks.columns(block));
  job.add = problem.add;

  std::int64_t at[4], rest = first;
  for (int a = 3; a >= 0; --a) {
    at[a] = rest % part.extent[a];
    rest /= part.extent[a];
  }
  T const* const x_part = problem.x + part.begin[0] * problem.x_step[1] + part.begin[1] * problem.x_step[2];
  T* const y_part =
      problem.y + part.begin[0] * problem.y_step[1] + part.begin[1] * problem.y_step[2] + blocks.begin(block);
  while (first < last) {
    job.live = static_cast<int>(smaller(tallest, last - first));
    for (int row = 0; row < job.live;) {
      std::int64_t x_at = 0, y_at = 0;
      for (int a = 0; a < 4; ++a) {
        x_at += at[a] * problem.x_step[a];
        y_at += at[a] * problem.y_step[a];
      }
      std::int64_t const taken = smaller(job.live - row, part.extent[3] - at[3]);
      for (std::int64_t i = 0; i < taken; ++i, ++row) {
        x[row] = x_part + x_at + i * problem.x_step[3];
        y[row] = y_part + y_at + i * problem.y_step[3];
      }
      at[3] += taken;
      for (int a = 3; a > 0 && at[a] == part.extent[a]; --a) {
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
               Workspace<T>& workspace, Tasks const& tasks) {
  ChannelBlocks const blocks{problem.channels, kernels.lanes};
  std::int64_t const work = problem.work(), position_work = larger(1, problem.depth() * blocks.width());
  std::int64_t const chunk = larger(1, task_work / position_work / max_tile_rows) * max_tile_rows;
  std::vector<Part>& parts = workspace.parts();
  std::int64_t const chunks = make_parts(problem, chunk, workspace, parts);
  auto const run = [&](std::int64_t block, std::int64_t i) {
    auto const after = std::upper_bound(parts.begin(), parts.end(), i,
                                        [](std::int64_t value, Part const& part) { return value < part.first_chunk; });
    Part const& part = *std::prev(after);
    if (problem.add && part.segment_count == 0) return;
    std::int64_t const first = (i - part.first_chunk) * chunk;
    correlate(kernels, problem, part, blocks, block, weights.rows(block), first,
              smaller(part.positions(), first + chunk));
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
