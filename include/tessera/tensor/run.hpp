// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>

#include "tessera/partition/box.hpp"
#include "tessera/tensor/storage.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera {

namespace detail {

/// A loop over part of a functor's indices, without the functor's type: Kokkos then compiles its host launch once, not
/// anew for each functor.
struct HostLoop {
  void (*body)(void const* functor, std::int64_t begin, std::int64_t end);
  void const* functor;
  std::int64_t count;
  std::int64_t parts;
  void operator()(std::int64_t part) const { body(functor, count * part / parts, count * (part + 1) / parts); }
};

template <class Functor>
void host_loop(void const* functor, std::int64_t begin, std::int64_t end) {
  Functor const& call = *static_cast<Functor const*>(functor);
  if constexpr (requires { call.range(begin, end); })
    call.range(begin, end);
  else
    for (std::int64_t i = begin; i < end; ++i) call(i);
}

}  // namespace detail

/// Calls functor(i) for 0 <= i < count on an execution space; `cost` is a rough number of operations per index. A host
/// space does little work in place: a parallel region costs more.
template <class Space, class Functor>
void run(char const* label, Space const& space, std::int64_t count, Functor const& functor, std::int64_t cost = 1) {
  if (count <= 0) return;
  if constexpr (runs_on_host<Space>) {
    std::int64_t const threads = space.concurrency();
    if (threads == 1 || count == 1 || count * cost < 16384) return detail::host_loop<Functor>(&functor, 0, count);
    std::int64_t const parts = smaller(count, 4 * threads);
    Kokkos::parallel_for(label, Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>(space, 0, parts),
                         detail::HostLoop{&detail::host_loop<Functor>, &functor, count, parts});
  } else {
    Kokkos::parallel_for(label, Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>(space, 0, count), functor);
  }
}

/// The rows of a box: positions (sample, depth, height, width), channels side by side, numbered in row-major order.
struct Rows {
  Box box;

  TESSERA_HD constexpr std::int64_t count() const {
    return box.empty() ? 0 : box.axis[0].size() * box.axis[1].size() * box.axis[2].size() * box.axis[3].size();
  }

  TESSERA_HD void position(std::int64_t row, std::int64_t at[4]) const {
    for (int a = 3; a >= 0; --a) {
      std::int64_t const size = box.axis[a].size();
      at[a] = box.axis[a].begin + row % size;
      row /= size;
    }
  }
};

/// Calls body(at, channels) on an execution space for every position of a box; `at` is (sample, depth, height, width).
/// A body that does the same to every cell may say that neighbours along width lie side by side, `merges(box)`: then
/// the cells of a whole row come to it as the channels of its first position.
template <class Body>
struct ForEachPosition {
  Rows rows;
  Body body;

  TESSERA_HD void operator()(std::int64_t row) const {
    std::int64_t at[4];
    rows.position(row, at);
    body(at, rows.box.axis[4]);
  }

  /// Rows begin to end, one after the other.
  void range(std::int64_t begin, std::int64_t end) const {
    Box const& box = rows.box;
    bool merge = false;
    if constexpr (requires { body.merges(box); }) merge = body.merges(box);
    std::int64_t at[4];
    rows.position(begin, at);
    for (std::int64_t row = begin; row < end;) {
      std::int64_t const run = merge ? smaller(end - row, box.axis[3].end - at[3]) : 1;
      body(at, Interval{box.axis[4].begin, box.axis[4].begin + run * box.axis[4].size()});
      row += run;
      at[3] += run;
      for (int a = 3; a > 0 && at[a] == box.axis[a].end; --a) {
        at[a] = box.axis[a].begin;
        ++at[a - 1];
      }
    }
  }
};

/// Whether the cells of a tile's row lie side by side over a box.
template <class T>
TESSERA_HD bool row_is_dense(Tile<T> const& tile, Box const& box) {
  return tile.stride[3] == box.axis[4].size();
}

template <class Space, class Body>
void for_each_position(char const* label, Space const& space, Box const& box, Body const& body) {
  Rows const rows{box};
  run(label, space, rows.count(), ForEachPosition<Body>{rows, body}, box.axis[4].size());
}

/// target = value, over the channels of a position.
template <class T>
struct FillChannels {
  Tile<T> target;
  T value;
  TESSERA_HD bool merges(Box const& box) const { return row_is_dense(target, box); }
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T* to = target.position(at[0], at[1], at[2], at[3]);
    TESSERA_INDEPENDENT
    for (std::int64_t c = channels.begin; c < channels.end; ++c) to[c] = value;
  }
};

template <class T, class Space>
void fill(Space const& space, Tile<T> const& target, Box const& box, T value) {
  for_each_position("tessera::fill", space, box, FillChannels<T>{target, value});
}

/// values[i] = value over a flat array.
template <class T>
struct FillFlat {
  T* values;
  T value;
  TESSERA_HD void operator()(std::int64_t i) const { values[i] = value; }
};

template <class T, class Space>
void fill_flat(Space const& space, T* values, std::int64_t count, T value) {
  run("tessera::fill", space, count, FillFlat<T>{values, value});
}

/// target = source over the channels of a position, in the same global indices.
template <class T, class Source>
struct CopyChannels {
  Tile<T> target;
  Tile<Source const> source;
  TESSERA_HD bool merges(Box const& box) const { return row_is_dense(target, box) && row_is_dense(source, box); }
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T* to = target.position(at[0], at[1], at[2], at[3]);
    Source const* from = source.position(at[0], at[1], at[2], at[3]);
    TESSERA_INDEPENDENT
    for (std::int64_t c = channels.begin; c < channels.end; ++c) to[c] = static_cast<T>(from[c]);
  }
};

/// target += source over the channels of a position.
template <class T>
struct AddChannels {
  Tile<T> target;
  Tile<T const> source;
  TESSERA_HD bool merges(Box const& box) const { return row_is_dense(target, box) && row_is_dense(source, box); }
  TESSERA_HD void operator()(std::int64_t const at[4], Interval channels) const {
    T* to = target.position(at[0], at[1], at[2], at[3]);
    T const* from = source.position(at[0], at[1], at[2], at[3]);
    TESSERA_INDEPENDENT
    for (std::int64_t c = channels.begin; c < channels.end; ++c) to[c] += from[c];
  }
};

template <class T, class Source, class Space>
void copy(Space const& space, Tile<Source const> const& source, Tile<T> const& target, Box const& box) {
  for_each_position("tessera::copy", space, box, CopyChannels<T, Source>{target, source});
}

template <class T, class Space>
void add(Space const& space, Tile<T const> const& source, Tile<T> const& target, Box const& box) {
  for_each_position("tessera::add", space, box, AddChannels<T>{target, source});
}

}  // namespace tessera
