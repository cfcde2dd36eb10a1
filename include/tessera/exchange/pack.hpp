// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/exchange/plan.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera::detail {

/// How the cells of a Transfer lie in its message: densely over `from`, in row-major order of `from`. Cell `i` of an
/// axis of the message belongs to one cell of `to` (step +1, -1) or to all of them (step 0).
struct MessageMap {
  Box to;
  Box from;
  int step[axis_count];

  explicit MessageMap(Transfer const& transfer) : to(transfer.to), from(transfer.from) {
    for (int a = 0; a < axis_count; ++a) step[a] = transfer.step[static_cast<std::size_t>(a)];
  }

  /// The owner's cell, along axis a, that cell `t` of the receiver takes.
  TESSERA_HD std::int64_t source(int a, std::int64_t t) const {
    return step[a] == 1 ? from.axis[a].begin + (t - to.axis[a].begin)
                        : from.axis[a].end - 1 + step[a] * (t - to.axis[a].begin);
  }
};

/// target(to) = message(source(to)), for the channels of a position of `to`.
template <class T>
struct Unpack {
  MessageMap map;
  Tile<T const> message;  ///< addressed by owner's cells
  Tile<T> target;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T const* from =
        message.position(map.source(0, at[0]), map.source(1, at[1]), map.source(2, at[2]), map.source(3, at[3]));
    T* to = target.position(at[0], at[1], at[2], at[3]);
    std::int64_t const shift = map.from.axis[4].begin - map.to.axis[4].begin;
    for (std::int64_t c = channels.begin; c < channels.end; ++c) to[c] = from[c + shift];
  }
};

/// message(from) = sum of target(to) over the cells `to` that take `from`: the adjoint of Unpack. Each cell of the
/// message is summed by one thread in row-major order.
template <class T>
struct PackSums {
  MessageMap map;
  Tile<T const> target;
  Tile<T> message;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    Interval cells[4];
    for (int a = 0; a < 4; ++a) {
      Interval const to = map.to.axis[a], from = map.from.axis[a];
      std::int64_t const t = map.step[a] == 1 ? to.begin + (at[a] - from.begin) : to.begin + (from.end - 1 - at[a]);
      cells[a] = map.step[a] == 0 ? to : Interval{t, t + 1};
    }
    T* sum = message.position(at[0], at[1], at[2], at[3]);
    std::int64_t const shift = map.to.axis[4].begin - map.from.axis[4].begin;
    for (std::int64_t c = channels.begin; c < channels.end; ++c) sum[c] = T(0);
    for (std::int64_t n = cells[0].begin; n < cells[0].end; ++n)
      for (std::int64_t d = cells[1].begin; d < cells[1].end; ++d)
        for (std::int64_t h = cells[2].begin; h < cells[2].end; ++h)
          for (std::int64_t w = cells[3].begin; w < cells[3].end; ++w) {
            T const* from = target.position(n, d, h, w);
            for (std::int64_t c = channels.begin; c < channels.end; ++c) sum[c] += from[c + shift];
          }
  }
};

template <class T, class Space>
void unpack(Space const& space, Transfer const& transfer, Tile<T const> const& message, Tile<T> const& target) {
  for_each_position("tessera::unpack", space, transfer.to, Unpack<T>{MessageMap(transfer), message, target});
}

template <class T, class Space>
void pack_sums(Space const& space, Transfer const& transfer, Tile<T const> const& target, Tile<T> const& message) {
  for_each_position("tessera::pack_sums", space, transfer.from, PackSums<T>{MessageMap(transfer), target, message});
}

}  // namespace tessera::detail
