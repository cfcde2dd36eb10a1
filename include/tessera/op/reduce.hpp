// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/tensor/run.hpp"
#include "tessera/tensor/shard.hpp"

namespace tessera::op {

/// Sums over the positions of a box, a vector of `width` doubles per position, in an order that depends on the box
/// alone: the rows of each of `parts` equal parts are cut into a fixed number of chunks, each summed in order, then the
/// chunks in order.
template <class Body>
struct SumChunk {
  Rows rows;
  Body body;
  double* partial;
  std::int64_t width;
  std::int64_t parts;
  std::int64_t chunks;

  TESSERA_HD void operator()(std::int64_t index) const {
    double* const sums = partial + index * width;
    for (std::int64_t i = 0; i < width; ++i) sums[i] = 0.0;
    std::int64_t const count = rows.count() / parts, start = index / chunks * count, chunk = index % chunks;
    std::int64_t const first = start + count * chunk / chunks, last = start + count * (chunk + 1) / chunks;
    if (first == last) return;
    std::int64_t at[4];
    rows.position(first, at);
    for (std::int64_t row = first; row < last; ++row) {
      body(at, rows.box.axis[4], sums);
      for (int a = 3; a >= 0; --a) {
        if (++at[a] < rows.box.axis[a].end || a == 0) break;
        at[a] = rows.box.axis[a].begin;
      }
    }
  }
};

struct SumOfChunks {
  double* total;
  double const* partial;
  std::int64_t width;
  std::int64_t chunks;
  TESSERA_HD void operator()(std::int64_t i) const {
    double const* const first = partial + i / width * chunks * width + i % width;
    double sum = first[0];
    for (std::int64_t chunk = 1; chunk < chunks; ++chunk) sum += first[chunk * width];
    total[i] = sum;
  }
};

/// Reusable memory for sums.
template <class Space>
class Sums {
 public:
  /// Calls body(at, channels, sums) for every position of the box; it adds into `sums`, `width` doubles. Returns the
  /// total on the host, valid until the next call.
  template <class Body>
  double* over(Space const& space, Box const& box, std::int64_t width, Body const& body) {
    return by_part(space, box, 1, width, body);
  }

  /// The same for every sample of the box: `width` doubles for the first one, then those of the next.
  template <class Body>
  double* by_sample(Space const& space, Box const& box, std::int64_t width, Body const& body) {
    return by_part(space, box, box.axis[0].size(), width, body);
  }

 private:
  template <class Body>
  double* by_part(Space const& space, Box const& box, std::int64_t parts, std::int64_t width, Body const& body) {
    std::int64_t const totals = parts * width;
    host_.assign(static_cast<std::size_t>(totals), 0.0);
    Rows const rows{box};
    if (rows.count() == 0 || totals == 0) return host_.data();
    std::int64_t const each = rows.count() / parts, chunks = smaller(smaller(64, each), (each * width + 4095) / 4096);
    sums_.grow(totals * (1 + chunks));
    double* const partial = sums_.data() + totals;
    run("tessera::sum", space, parts * chunks, SumChunk<Body>{rows, body, partial, width, parts, chunks},
        each * width / chunks);
    run("tessera::sum", space, totals, SumOfChunks{sums_.data(), partial, width, chunks}, chunks);
    space.fence("tessera::sum");
    copy_flat<Kokkos::DefaultHostExecutionSpace, Space, double>(host_.data(), sums_.data(), totals);
    return host_.data();
  }

  Storage<double, Space> sums_;  ///< totals, then the sums of chunks
  std::vector<double> host_;
};

/// target += source over flat arrays.
template <class T>
struct AddTo {
  T* target;
  T const* source;
  TESSERA_HD void operator()(std::int64_t i) const { target[i] += source[i]; }
};

/// Adds sums that lie on the host to numbers in an execution space's memory, such as a gradient.
template <class T, class Space>
class AddFromHost {
 public:
  void operator()(Space const& space, T* target, double const* sums, std::int64_t count) {
    if (count <= 0) return;
    auto const size = static_cast<std::size_t>(count);
    if (rounded_.size() < size) rounded_.resize(size);
    for (std::size_t i = 0; i < size; ++i) rounded_[i] = static_cast<T>(sums[i]);
    there_.grow(count);
    copy_flat<Space, Kokkos::DefaultHostExecutionSpace, T>(there_.data(), rounded_.data(), count);
    run("tessera::add", space, count, AddTo<T>{target, there_.data()});
    space.fence("tessera::add");
  }

 private:
  std::vector<T> rounded_;
  Storage<T, Space> there_;
};

}  // namespace tessera::op
