// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/op/cpu/conv.hpp"
#include "tessera/partition/blocks.hpp"

namespace tessera::op::cpu {

/// How the filter gradient is cut into tasks, each the sum over some positions for some rows (tap, input channel) and a
/// block of output channels. A function of geometry and box alone, so that a run repeats bit for bit whatever the
/// number of workers; sums over several parts of the positions are added up in order at the end.
struct FilterTasks {
  static constexpr std::int64_t wanted = 16;  ///< enough to share between workers, where the work allows

  std::int64_t chunk = 256;     ///< positions whose cells stay in cache while all rows pass over them
  std::int64_t chunks = 0;      ///< of positions
  std::int64_t parts = 1;       ///< of the chunks
  std::int64_t row_groups = 1;  ///< of the rows

  FilterTasks(std::int64_t positions, std::int64_t rows, ChannelBlocks const& blocks) {
    std::int64_t const size = rows * blocks.padded(), affordable = larger(1, (std::int64_t{1} << 20) / size);
    if (affordable == 1) chunk = 1024;  // the sums do not fit in cache: pass over them less often
    chunk = smaller(chunk, positions);
    chunks = ceil_div(positions, chunk);
    parts = larger(1, smaller(smaller(ceil_div(wanted, blocks.count()), affordable), chunks / 8));
    row_groups = larger(1, smaller(ceil_div(wanted, blocks.count() * parts), rows / (8 * max_tile_rows)));
  }
};

/// The positions of a box in an order of lines, the inner axis being the width, or a longer axis where the box is thin.
struct Lines {
  int axis[4] = {0, 1, 2, 3};  ///< tensor axes, the inner one last
  std::int64_t extent[4] = {};

  explicit Lines(Box const& box) {
    int inner = 3;
    for (int a = 2; a > 0 && box.axis[3].size() < 8; --a)
      if (box.axis[a].size() > box.axis[inner].size()) inner = a;
    std::rotate(axis + inner, axis + inner + 1, axis + 4);
    for (int a = 0; a < 4; ++a) extent[a] = box.axis[axis[a]].size();
  }

  std::int64_t positions() const { return extent[0] * extent[1] * extent[2] * extent[3]; }
  std::int64_t length() const { return extent[3]; }
  bool along_width() const { return axis[3] == 3; }

  /// The offset of a position in a tile with the given steps along the tensor's axes.
  std::int64_t offset(std::int64_t position, std::int64_t const (&step)[4]) const {
    std::int64_t sum = 0;
    for (int a = 3; a >= 0; --a) {
      sum += position % extent[a] * step[axis[a]];
      position /= extent[a];
    }
    return sum;
  }
};

/// dw += the gradient of the weights, and db (where not null) += that of the bias, from dy on the box `out` and x on
/// what it requires. Each task packs its chunk of dy, a block of channels at a time, and keeps a few rows of dw in
/// registers along it.
template <class T>
class ConvBackwardFilter {
 public:
  ConvBackwardFilter(TileKernels<T> const& kernels, ConvGeometry const& geometry, Tile<T const> const& x,
                     Tile<T const> const& dy, Box const& out)
      : kernels_(kernels),
        geometry_(geometry),
        x_(x),
        dy_step_{dy.stride[0], dy.stride[1], dy.stride[2], dy.stride[3]},
        lines_(out),
        begin_(out.axis[4].begin),
        rows_(geometry.windows.taps() * geometry.in_channels),
        blocks_{out.axis[4].size(), kernels.lanes},
        plan_(lines_.positions(), rows_, blocks_) {
    Window const* const window = geometry.windows.axis;
    auto const source = [&](int a) { return out.axis[a].begin * window[a - 1].stride - window[a - 1].low; };
    x_first_ = x.position(out.axis[0].begin, source(1), source(2), source(3));
    source_[0] = source(1);
    source_[1] = source(2);
    dy_first_ = dy.position(out.axis[0].begin, out.axis[1].begin, out.axis[2].begin, out.axis[3].begin) + begin_;
    for (int a = 0; a < 4; ++a) x_step_[a] = x.stride[a] * (a == 0 ? 1 : window[a - 1].stride);
  }

  void run(T* dw, T* db, Workspace<T>& workspace, Tasks const& tasks) {
    std::int64_t const count = plan_.parts * blocks_.count() * plan_.row_groups;
    std::int64_t const work = lines_.positions() * rows_ * blocks_.channels;
    std::int64_t const workers = tasks.workers(count, work);
    std::int64_t const padded = aligned(blocks_.padded()), chunk = plan_.chunk * blocks_.width();
    std::int64_t const part = plan_.parts > 1 ? aligned(rows_ * blocks_.channels) : 0;
    zeros_ = workspace.values(padded + plan_.parts * (padded + part) + workers * chunk);
    bias_sums_ = zeros_ + padded;
    part_sums_ = bias_sums_ + plan_.parts * padded;
    packed_ = part_sums_ + plan_.parts * part;
    segments_ = workspace.segments(workers * plan_.chunk);
    std::fill_n(zeros_, padded + (db != nullptr ? plan_.parts * padded : 0), T(0));
    dw_ = dw;
    db_ = db;
    tasks.run(count, work, [&](std::int64_t worker, std::int64_t task) {
      run_task(worker, task / plan_.row_groups / blocks_.count(), task / plan_.row_groups % blocks_.count(),
               task % plan_.row_groups);
    });
    if (plan_.parts > 1) add_parts(tasks);
    if (db == nullptr) return;
    for (std::int64_t p = 0; p < plan_.parts; ++p)
      for (std::int64_t c = 0; c < blocks_.channels; ++c) db[begin_ + c] += bias_sums_[p * padded + c];
  }

 private:
  static constexpr std::int64_t every_tap = -1, no_tap = -2;

  void run_task(std::int64_t worker, std::int64_t part, std::int64_t block, std::int64_t row_group) const {
    int const vectors = blocks_.vectors(block), tallest = kernels_.rows(vectors);
    std::int64_t const width = vectors * blocks_.lanes;
    T* const packed = packed_ + worker * plan_.chunk * blocks_.width();
    Segment* const segments = segments_ + worker * plan_.chunk;
    Interval const tiles = block_range(ceil_div(rows_, tallest), plan_.row_groups, row_group);
    Interval const chunks = block_range(plan_.chunks, plan_.parts, part);
    std::int64_t const part_size = aligned(rows_ * blocks_.channels);

    T const* x[max_tile_rows];
    T* y[max_tile_rows];
    TileJob<T> job;
    job.x = x;
    job.y = y;
    job.segments = segments;
    job.x_step = x_step_[lines_.axis[3]];
    job.packed = packed;
    job.packed_step = width;
    job.start = zeros_;
    job.columns = static_cast<int>(blocks_.columns(block));
    for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
      Interval const positions{chunk * plan_.chunk, smaller(lines_.positions(), (chunk + 1) * plan_.chunk)};
      pack(positions, block, packed);
      std::int64_t listed = no_tap;
      job.add = plan_.parts == 1 || chunk > chunks.begin;
      if (db_ != nullptr && row_group == 0) add_bias(positions.size(), width, packed, part, block);
      for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
        std::int64_t const first = tile * tallest;
        job.live = static_cast<int>(smaller(tallest, rows_ - first));
        std::int64_t const tap = common_tap(first, first + job.live - 1);
        if (tap != listed) job.segment_count = list(positions, tap, segments);
        listed = tap;
        rows(first, job.live, x);
        for (int row = 0; row < job.live; ++row)
          y[row] = (plan_.parts == 1 ? dw_ + (first + row) * geometry_.row_step() + begin_
                                     : part_sums_ + part * part_size + (first + row) * blocks_.channels) +
                   blocks_.begin(block);
        auto const& kernel = kernels_.fitting(vectors, job.live);
        job.neighbours = kernel.rows == job.live && neighbours(job);
        for (int row = job.live; row < kernel.rows; ++row) x[row] = x[job.live - 1];
        kernel.run(job);
      }
    }
  }

  static bool neighbours(TileJob<T> const& job) {
    for (int row = 1; row < job.live; ++row)
      if (job.x[row] != job.x[row - 1] + 1) return false;
    return true;
  }

  /// Where the rows (tap, input channel) from `first` on read x for the first position.
  void rows(std::int64_t first, int count, T const** x) const {
    Window const* const window = geometry_.windows.axis;
    std::int64_t rest = first / geometry_.in_channels, ci = first % geometry_.in_channels;
    for (int row = 0; row < count; ++rest, ci = 0) {
      std::int64_t const kw = rest % window[2].kernel, kh = rest / window[2].kernel % window[1].kernel,
                         kd = rest / window[2].kernel / window[1].kernel;
      T const* const tap = x_first_ + kd * window[0].dilation * x_.stride[1] + kh * window[1].dilation * x_.stride[2] +
                           kw * window[2].dilation * x_.stride[3];
      for (; row < count && ci < geometry_.in_channels; ++row, ++ci) x[row] = tap + ci;
    }
  }

  /// The tap along depth and height that rows `first` to `last` share, numbered in row-major order, if positions can be
  /// left out for it.
  std::int64_t common_tap(std::int64_t first, std::int64_t last) const {
    std::int64_t const rows_per_tap = geometry_.windows.axis[2].kernel * geometry_.in_channels;
    bool const bounded = (geometry_.extent[0] != 0 || geometry_.extent[1] != 0) && lines_.along_width();
    return bounded && first / rows_per_tap == last / rows_per_tap ? first / rows_per_tap : every_tap;
  }

  /// Lists where x is read for a chunk of positions, without those that read zeros beyond the border through the tap.
  std::int64_t list(Interval positions, std::int64_t tap, Segment* segments) const {
    Window const* const window = geometry_.windows.axis;
    std::int64_t count = 0, skip = 0;
    for (std::int64_t p = positions.begin; p < positions.end;) {
      std::int64_t const length = smaller(positions.end - p, lines_.length() - p % lines_.length());
      bool beyond = false;
      if (tap != every_tap) {
        std::int64_t const line = p / lines_.length(), h = line % lines_.extent[2],
                           d = line / lines_.extent[2] % lines_.extent[1];
        beyond = outside(0, d, tap / window[1].kernel) || outside(1, h, tap % window[1].kernel);
      }
      if (beyond) {
        skip += length;
      } else {
        segments[count++] = {lines_.offset(p, x_step_), length, skip};
        skip = 0;
      }
      p += length;
    }
    return count;
  }

  bool outside(int a, std::int64_t position, std::int64_t tap) const {
    Window const& window = geometry_.windows.axis[a];
    std::int64_t const source = source_[a] + position * window.stride + tap * window.dilation;
    return geometry_.extent[a] != 0 && (source < 0 || source >= geometry_.extent[a]);
  }

  /// Copies one block of dy's channels for a chunk of positions into full registers.
  void pack(Interval positions, std::int64_t block, T* to) const {
    std::int64_t const columns = blocks_.columns(block), width = blocks_.vectors(block) * blocks_.lanes;
    std::int64_t const step = dy_step_[lines_.axis[3]];
    for (std::int64_t p = positions.begin; p < positions.end;) {
      std::int64_t const length = smaller(positions.end - p, lines_.length() - p % lines_.length());
      T const* from = dy_first_ + blocks_.begin(block) + lines_.offset(p, dy_step_);
      for (std::int64_t i = 0; i < length; ++i, from += step, to += width) {
        std::copy_n(from, columns, to);
        std::fill_n(to + columns, width - columns, T(0));
      }
      p += length;
    }
  }

  void add_bias(std::int64_t positions, std::int64_t width, T const* packed, std::int64_t part,
                std::int64_t block) const {
    T* const sums = bias_sums_ + part * aligned(blocks_.padded()) + blocks_.begin(block);
    for (std::int64_t p = 0; p < positions; ++p)
      for (std::int64_t c = 0; c < width; ++c) sums[c] += packed[p * width + c];
  }

  void add_parts(Tasks const& tasks) const {
    std::int64_t const part_size = aligned(rows_ * blocks_.channels);
    tasks.run(FilterTasks::wanted, plan_.parts * rows_ * blocks_.channels, [&](std::int64_t, std::int64_t task) {
      Interval const mine = block_range(rows_, FilterTasks::wanted, task);
      for (std::int64_t row = mine.begin; row < mine.end; ++row) {
        T* const to = dw_ + row * geometry_.row_step() + begin_;
        for (std::int64_t part = 0; part < plan_.parts; ++part) {
          T const* const from = part_sums_ + part * part_size + row * blocks_.channels;
          for (std::int64_t c = 0; c < blocks_.channels; ++c) to[c] += from[c];
        }
      }
    });
  }

  TileKernels<T> const& kernels_;
  ConvGeometry const& geometry_;
  Tile<T const> x_;
  T const* x_first_ = nullptr;
  T const* dy_first_ = nullptr;
  std::int64_t x_step_[4] = {};
  std::int64_t dy_step_[4];
  std::int64_t source_[2] = {};  ///< the depth and height that the first position reads through its first tap
  Lines lines_;
  std::int64_t begin_;
  std::int64_t rows_;
  ChannelBlocks blocks_;
  FilterTasks plan_;
  T* zeros_ = nullptr;
  T* bias_sums_ = nullptr;
  T* part_sums_ = nullptr;
  T* packed_ = nullptr;
  Segment* segments_ = nullptr;
  T* dw_ = nullptr;
  T* db_ = nullptr;
};

template <class T>
void host_conv_backward_filter(TileKernels<T> const& kernels, ConvGeometry const& geometry, Tile<T const> const& x,
                               Tile<T const> const& dy, Box const& out, T* dw, T* db, Workspace<T>& workspace,
                               Tasks const& tasks) {
  ConvBackwardFilter<T>(kernels, geometry, x, dy, out).run(dw, db, workspace, tasks);
}

}  // namespace tessera::op::cpu
