// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "tessera/io/batch_request.hpp"
#include "tessera/io/convert.hpp"
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

/// Fills cells of a shard: its sample n comes from read(n, box of (d, h, w, c), dense cells on the host), or from a
/// source.
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
    for_each_sample(box, [&](std::int64_t n, Box const& one) {
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
    });
  }

  /// The cells of a box that the shard holds, from a part of a source, whose sample is `sample(n)`.
  template <class Data, class Sample>
  void read(Data& data, Part part, Shard<T, Space> const& shard, Box const& box, Sample sample) {
    if constexpr (StoredSource<Data>) {
      StoredField const field = data.field(part);
      for_each_sample(box, [&](std::int64_t n, Box const& one) {
        stored_.resize(static_cast<std::size_t>(field.bytes(one)));
        data.read_stored(part, sample(n), one, stored_.data());
        convert_[index(part)](field, one, stored_.data(), shard.tile());
      });
    } else {
      (*this)(shard, box, [&](std::int64_t n, Box const& one, T* cells) {
        if (part == Part::input)
          data.read_input(sample(n), one, cells);
        else
          data.read_target(sample(n), one, cells);
      });
    }
  }

  /// The cells of a box that the shard holds, from what a source fetched last.
  template <BatchSource Data>
  void take(Data const& data, Part part, Shard<T, Space> const& shard, Box const& box) {
    StoredField const field = data.field(part);
    for_each_sample(box, [&](std::int64_t n, Box const& one) {
      convert_[index(part)](field, one, data.cells(part, n), shard.tile(), data.symmetry(part, n));
    });
  }

 private:
  /// use(n, the box's cells of sample n).
  template <class Use>
  static void for_each_sample(Box const& box, Use use) {
    if (box.empty()) return;
    Box one = box;
    for (std::int64_t n = box.axis[0].begin; n < box.axis[0].end; ++n) {
      one.axis[0] = {n, n + 1};
      use(n, static_cast<Box const&>(one));
    }
  }

  Space space_;
  std::vector<T> host_;
  Storage<T, Space> device_;
  std::vector<std::byte> stored_;
  Converter<T, Space> convert_[2];
};

}  // namespace tessera::io
