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
/// alone: rows are cut into a fixed number of chunks, each summed in order, then the chunks in order.
template <class Body>
struct SumChunk {
  Rows rows;
  Body body;
  double* partial;
  std::int64_t width;
  std::int64_t chunks;

  TESSERA_HD void operator()(std::int64_t chunk) const {
    double* const sums = partial + chunk * width;
    for (std::int64_t i = 0; i < width; ++i) sums[i] = 0.0;
    std::int64_t const count = rows.count(), first = count * chunk / chunks, last = count * (chunk + 1) / chunks;
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
  double* partial;
  std::int64_t width;
  std::int64_t chunks;
  TESSERA_HD void operator()(std::int64_t i) const {
    for (std::int64_t chunk = 1; chunk < chunks; ++chunk) partial[i] += partial[chunk * width + i];
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
    host_.assign(static_cast<std::size_t>(width), 0.0);
    Rows const rows{box};
    if (rows.count() == 0 || width == 0) return host_.data();
    std::int64_t const chunks = smaller(64, (rows.count() * width + 4095) / 4096);
    partial_.grow(chunks * width);
    run("tessera::sum", space, chunks, SumChunk<Body>{rows, body, partial_.data(), width, chunks},
        rows.count() * width / chunks);
    run("tessera::sum", space, width, SumOfChunks{partial_.data(), width, chunks}, chunks);
    space.fence("tessera::sum");
    copy_flat<Kokkos::DefaultHostExecutionSpace, Space, double>(host_.data(), partial_.data(), width);
    return host_.data();
  }

 private:
  Storage<double, Space> partial_;
  std::vector<double> host_;
};

}  // namespace tessera::op
