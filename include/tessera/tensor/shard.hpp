// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>

#include "tessera/core/error.hpp"
#include "tessera/partition/partition.hpp"
#include "tessera/tensor/storage.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera {

/// This rank's part of a tensor: memory over the `held` box, which contains the box that the rank owns. Copies share
/// the memory, like Kokkos views.
template <class T, class Space = Kokkos::DefaultExecutionSpace>
class Shard {
 public:
  using value_type = T;
  using execution_space = Space;
  using View =
      Kokkos::View<T*****, Kokkos::LayoutRight, typename Space::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  Shard() = default;

  /// Allocates what is held: the hull of the owned box and `also`. Contents are undefined.
  Shard(Partition const& partition, std::int64_t rank, Box const& also = {}) { reform(partition, rank, also); }

  /// Wraps memory that the caller keeps alive: cells densely over `held`, in the order (n, d, h, w, c).
  static Shard wrap(T* cells, Partition const& partition, std::int64_t rank, Box const& held) {
    Shard shard;
    shard.place(partition, rank, held);
    require(shard.held_.contains(shard.owned_), "Shard::wrap", "the held box ", held, " must contain the owned box ",
            shard.owned_);
    shard.tile_ = dense_tile(cells, shard.held_);
    return shard;
  }

  /// A window onto flat memory that is large enough, instead of memory of its own.
  static Shard on(Storage<T, Space> const& storage, Partition const& partition, std::int64_t rank, Box const& also) {
    Shard shard;
    shard.place(partition, rank, also);
    require(storage.capacity() >= shard.held_.volume(), "Shard::on", "the memory must hold ", shard.held_.volume(),
            " elements, but holds ", storage.capacity(), "; allocate for a larger batch");
    shard.storage_ = storage;
    shard.tile_ = dense_tile(storage.data(), shard.held_);
    return shard;
  }

  /// Another shape on the same memory, which grows only if it must (a batch of another size).
  void reform(Partition const& partition, std::int64_t rank, Box const& also = {}) {
    place(partition, rank, also);
    storage_.grow(held_.volume());
    tile_ = dense_tile(storage_.data(), held_);
  }

  /// The channels from `first` on as a tensor of its own on the same memory: `partition` says who owns what of it, in
  /// channels that count from 0. What a rank owns of it must be held here.
  Shard slice(Partition const& partition, std::int64_t rank, std::int64_t first) const {
    Shard part = *this;
    part.partition_ = partition;
    part.owned_ = partition.owned(rank);
    Interval& channels = part.held_[AxisId::channel];
    channels =
        intersect(Interval{channels.begin - first, channels.end - first}, Interval{0, partition.shape().channel});
    require(part.held_.contains(part.owned_), "Shard::slice", "the slice must lie within what is held, ", part.held_,
            ", but owns ", part.owned_);
    if (!part.held_.empty()) {
      part.tile_.data += channels.begin + first - tile_.origin[4];
      part.tile_.origin[4] = channels.begin;
    }
    return part;
  }

  Partition const& partition() const { return partition_; }
  Shape shape() const { return partition_.shape(); }
  Box const& owned() const { return owned_; }
  Box const& held() const { return held_; }
  Tile<T> const& tile() const { return tile_; }

  /// All that is held, as a view in local indices; owned cell g of axis a is at g - held()[a].begin. Not of a slice.
  View view() const {
    require(held_.empty() || tile_.stride[3] == held_.axis[4].size(), "Shard::view",
            "a slice of channels has no dense view; use its tile");
    return View(tile_.data, size(0), size(1), size(2), size(3), size(4));
  }

  /// One cell by global indices, from host code.
  T& operator()(std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t c) const {
    static_assert(host_can_access<Space>,
                  "tessera: host code cannot access a tensor in device memory; copy it to a host tensor first");
    return tile_(n, d, h, w, c);
  }

 private:
  void place(Partition const& partition, std::int64_t rank, Box const& also) {
    partition_ = partition;
    owned_ = partition.owned(rank);
    held_ = hull(owned_, also);
  }

  std::size_t size(int axis) const { return static_cast<std::size_t>(held_.axis[axis].size()); }

  Partition partition_;
  Box owned_;
  Box held_;
  Storage<T, Space> storage_;
  Tile<T> tile_;
};

}  // namespace tessera
