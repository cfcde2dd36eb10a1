// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "tessera/comm/rank_grid.hpp"
#include "tessera/core/error.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/shard.hpp"

namespace tessera {

/// The global extents that a user names for a tensor of `Rank` spatial axes; the last axes are the ones in use: width
/// for 1-D, height and width for 2-D.
template <int Rank>
struct Extents {
  static_assert(1 <= Rank && Rank <= 3, "tessera: a tensor has 1, 2 or 3 spatial axes");
  std::int64_t samples = 1;
  std::array<std::int64_t, static_cast<std::size_t>(Rank)> space{};
  std::int64_t channels = 1;

  Shape shape() const { return shape_of(samples, space, channels); }
};

/// A distributed tensor of `SpatialRank` spatial axes: a shallow handle over this rank's Shard, whose decomposition is
/// a type. Stored channels-last, always as five axes (sample, depth, height, width, channel); missing ones have
/// extent 1.
template <class T, int SpatialRank, PartitionPolicy Policy, class Space = Kokkos::DefaultExecutionSpace>
class Tensor {
 public:
  using value_type = T;
  using View = typename Shard<T, Space>::View;

  /// Balanced blocks. `margin` cells around the owned box are held too, along the axes that are split or not.
  Tensor(RankGrid<Policy> const& ranks, Extents<SpatialRank> const& extents, std::int64_t margin = 0)
      : Tensor(ranks, Partition(ranks.grid(), extents.shape()), margin) {}

  /// Blocks as the partition says (see Blocks::at for boundaries of the application's own).
  Tensor(RankGrid<Policy> const& ranks, Partition const& partition, std::int64_t margin = 0)
      : ranks_(ranks), shard_(partition, ranks.rank(), with_margin(partition.owned(ranks.rank()), margin)) {
    require(partition.grid() == ranks.grid(), "Tensor", "the partition must be over the grid of the ranks");
  }

  /// Wraps the application's own memory: a dense view in the order (sample, depth, height, width, channel) over `held`,
  /// which the caller keeps alive.
  Tensor(RankGrid<Policy> const& ranks, Partition const& partition, Box const& held, View const& cells)
      : ranks_(ranks), shard_(Shard<T, Space>::wrap(cells.data(), partition, ranks.rank(), held)) {
    for (int a = 0; a < axis_count; ++a)
      require(static_cast<std::int64_t>(cells.extent(static_cast<std::size_t>(a))) == held.axis[a].size(), "Tensor",
              "the view must have the extents of the held box ", held, ", but along ", name(static_cast<AxisId>(a)),
              " it has ", cells.extent(static_cast<std::size_t>(a)));
  }

  RankGrid<Policy> const& ranks() const { return ranks_; }
  Shard<T, Space> const& shard() const { return shard_; }
  Shape shape() const { return shard_.shape(); }
  Box const& owned() const { return shard_.owned(); }
  Box const& held() const { return shard_.held(); }
  Tile<T> const& tile() const { return shard_.tile(); }
  View view() const { return shard_.view(); }

  /// One cell by global indices, from host code.
  T& operator()(std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t c) const {
    return shard_(n, d, h, w, c);
  }

  void fill(T value) const { tessera::fill(Space(), tile(), held(), value); }

 private:
  static Box with_margin(Box box, std::int64_t margin) {
    if (box.empty()) return box;
    for (int a = 4 - SpatialRank; a < 4; ++a) box.axis[a] = {box.axis[a].begin - margin, box.axis[a].end + margin};
    return box;
  }

  RankGrid<Policy> ranks_;
  Shard<T, Space> shard_;
};

}  // namespace tessera
