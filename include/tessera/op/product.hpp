// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/op/geometry.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/storage.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::op {

/// y = a b, cell by cell, written or added. A factor that repeats along an axis is a tile with stride 0 there.
template <class T>
struct Multiply {
  Tile<T const> a;
  Tile<T const> b;
  Tile<T> y;
  Accumulate accumulate;
  TESSERA_HD bool merges(Box const& box) const {
    return row_is_dense(a, box) && row_is_dense(b, box) && row_is_dense(y, box);
  }
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* one = a.position(at[0], at[1], at[2], at[3]);
    T const* other = b.position(at[0], at[1], at[2], at[3]);
    T* to = y.position(at[0], at[1], at[2], at[3]);
    if (accumulate == Accumulate::write) {
      TESSERA_INDEPENDENT
      for (std::int64_t c = channels.begin; c < channels.end; ++c) to[c] = one[c] * other[c];
    } else {
      TESSERA_INDEPENDENT
      for (std::int64_t c = channels.begin; c < channels.end; ++c) to[c] += one[c] * other[c];
    }
  }
};

/// The gradient of a factor that repeats along axes: sums of a b over the cells of `box` that one cell of `part` feeds,
/// in double. Those cells are cut into a fixed number of chunks, each summed in order, then the chunks in order.
template <class T>
struct MultiplySums {
  Tile<T const> a;
  Tile<T const> b;
  Rows part;  ///< the factor's own cells: those of box, but one along the axes that repeat
  Box box;
  bool repeats[4];
  std::int64_t chunks;
  double* sums;  ///< (position of part, chunk, channel)

  TESSERA_HD void operator()(std::int64_t i) const {
    std::int64_t at[4], size[4], cells = 1;
    part.position(i / chunks, at);
    for (int axis = 0; axis < 4; ++axis) {
      size[axis] = repeats[axis] ? box.axis[axis].size() : 1;
      cells *= size[axis];
    }
    Interval const channels = part.box.axis[4];
    double* const sum = sums + i * channels.size() - channels.begin;
    for (std::int64_t c = channels.begin; c < channels.end; ++c) sum[c] = 0.0;
    std::int64_t const chunk = i % chunks, last = cells * (chunk + 1) / chunks;
    for (std::int64_t cell = cells * chunk / chunks; cell < last; ++cell) {
      std::int64_t rest = cell;
      for (int axis = 3; axis >= 0; --axis) {
        if (repeats[axis]) at[axis] = box.axis[axis].begin + rest % size[axis];
        rest /= size[axis];
      }
      T const* one = a.position(at[0], at[1], at[2], at[3]);
      T const* other = b.position(at[0], at[1], at[2], at[3]);
      TESSERA_INDEPENDENT
      for (std::int64_t c = channels.begin; c < channels.end; ++c)
        sum[c] += static_cast<double>(one[c]) * static_cast<double>(other[c]);
    }
  }
};

/// The sums of the chunks, written or added to the factor's gradient.
template <class T>
struct MultiplySumOfChunks {
  double const* sums;
  Rows part;
  std::int64_t chunks;
  Tile<T> gradient;
  Accumulate accumulate;

  TESSERA_HD void operator()(std::int64_t i) const {
    std::int64_t at[4];
    part.position(i, at);
    Interval const channels = part.box.axis[4];
    T* to = gradient.position(at[0], at[1], at[2], at[3]);
    for (std::int64_t c = channels.begin; c < channels.end; ++c) {
      double sum = 0.0;
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
        sum += sums[(i * chunks + chunk) * channels.size() + c - channels.begin];
      to[c] = accumulate == Accumulate::add ? static_cast<T>(static_cast<double>(to[c]) + sum) : static_cast<T>(sum);
    }
  }
};

template <class T, class Space>
void multiply(Space const& space, Tile<T const> const& a, Tile<T const> const& b, Tile<T> const& y, Box const& box,
              Accumulate accumulate) {
  for_each_position("tessera::multiply", space, box, Multiply<T>{a, b, y, accumulate});
}

/// a b over `box`, summed into the cells of `part`, which has one cell along the axes that repeat.
template <class T, class Space>
void multiply_sums(Space const& space, Tile<T const> const& a, Tile<T const> const& b, Tile<T> const& gradient,
                   Box const& box, Box const& part, bool const (&repeats)[4], Accumulate accumulate,
                   Storage<double, Space>& partial) {
  std::int64_t const width = part.axis[4].size(), positions = Rows{part}.count();
  if (positions == 0 || width == 0) return;
  std::int64_t const cost = Rows{box}.count() / positions * width, chunks = smaller(64, (cost + 4095) / 4096);
  partial.grow(positions * chunks * width);
  MultiplySums<T> body{a, b, Rows{part}, box, {}, chunks, partial.data()};
  for (int axis = 0; axis < 4; ++axis) body.repeats[axis] = repeats[axis];
  run("tessera::multiply", space, positions * chunks, body, cost / chunks);
  run("tessera::multiply", space, positions,
      MultiplySumOfChunks<T>{partial.data(), Rows{part}, chunks, gradient, accumulate}, chunks * width);
}

}  // namespace tessera::op
