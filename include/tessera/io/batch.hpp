// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "tessera/io/source.hpp"
#include "tessera/op/random.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/shard.hpp"

namespace tessera::io {

/// The order of an epoch's samples: a permutation that depends on seed and epoch alone, not on the ranks.
inline std::vector<std::int64_t> shuffled(std::int64_t count, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  RandomStream const random = random_stream(seed, "shuffle", epoch);
  for (std::int64_t i = count - 1; i > 0; --i) {
    auto const wide = std::uint64_t{random.word(2 * i)} << 32 | random.word(2 * i + 1);
    auto const j = static_cast<std::size_t>(wide % static_cast<std::uint64_t>(i + 1));
    std::swap(order[static_cast<std::size_t>(i)], order[j]);
  }
  return order;
}

/// Fills cells of a shard: its sample n comes from read(n, box of (d, h, w, c), dense cells on the host).
template <class T, class Space>
class BatchReader {
 public:
  /// The cells that the rank owns.
  template <class Read>
  void operator()(Shard<T, Space> const& shard, Read read) {
    (*this)(shard, shard.owned(), read);
  }

  /// The cells of a box that the shard holds.
  template <class Read>
  void operator()(Shard<T, Space> const& shard, Box const& box, Read read) {
    if (box.empty()) return;
    Box one = box;
    for (std::int64_t n = box.axis[0].begin; n < box.axis[0].end; ++n) {
      one.axis[0] = {n, n + 1};
      host_.resize(static_cast<std::size_t>(one.volume()));
      read(n, one, host_.data());
      T* source = host_.data();
      if constexpr (!host_can_access<Space>) {
        device_.grow(one.volume());
        copy_flat<Space, Kokkos::DefaultHostExecutionSpace, T>(device_.data(), host_.data(), one.volume());
        source = device_.data();
      }
      copy<T, T>(space_, dense_tile<T const>(source, one), shard.tile(), one);
      space_.fence("tessera::BatchReader");
    }
  }

 private:
  Space space_;
  std::vector<T> host_;
  Storage<T, Space> device_;
};

}  // namespace tessera::io
