// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <utility>

#include "tessera/comm/mpi.hpp"
#include "tessera/core/error.hpp"
#include "tessera/partition/distribution.hpp"
#include "tessera/partition/grid.hpp"

namespace tessera {

/// A set of axes.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(std::initializer_list<AxisId> axes) {
    for (AxisId axis : axes) insert(axis);
  }
  constexpr void insert(AxisId axis) { bits_ |= 1u << index(axis); }
  constexpr bool contains(AxisId axis) const { return (bits_ >> index(axis) & 1u) != 0; }
  friend constexpr auto operator<=>(AxisSet, AxisSet) = default;

 private:
  unsigned bits_ = 0;
};

inline constexpr AxisSet space_axes{AxisId::depth, AxisId::height, AxisId::width};
/// Ranks that differ along these alone share their samples.
inline constexpr AxisSet within_sample{AxisId::depth, AxisId::height, AxisId::width, AxisId::channel};
inline constexpr AxisSet all_axes{AxisId::sample, AxisId::depth, AxisId::height, AxisId::width, AxisId::channel};

/// A Grid laid over a communicator, with the group communicators that layers reduce over. A cheap handle: copies share
/// everything. RankGrid adds the policy as a type.
class Ranks {
 public:
  /// Collective over `comm`: every rank of it takes part.
  Ranks(Communicator<Mpi> const& comm, Counts const& counts) {
    Grid const grid(counts);
    require(grid.size() == comm.size(), "RankGrid",
            "the product of the counts must be the number of ranks, but sample ", counts.sample, " x channel ",
            counts.channel, " x depth ", counts.depth, " x height ", counts.height, " x width ", counts.width, " = ",
            grid.size(), " and there are ", comm.size(), " ranks; change the split or the number of ranks");
    shared_ = std::make_shared<Shared>(grid, std::make_shared<Channels>(comm));
    shared_->channels->grids[key(counts)] = shared_;
  }

  /// The same communicator under other counts, without new communicators of its own. Every rank must call it.
  Ranks regrid(Counts const& counts) const {
    Grid const grid(counts);
    require(grid.size() == size(), "RankGrid", "the product of the new counts is ", grid.size(), ", but there are ",
            size(), " ranks; give counts whose product is the number of ranks");
    if (grid == this->grid()) return *this;
    auto& known = shared_->channels->grids[key(counts)];
    auto found = known.lock();
    if (!found) known = found = std::make_shared<Shared>(grid, shared_->channels);
    return Ranks(std::move(found));
  }

  Grid const& grid() const { return shared_->grid; }
  int rank() const { return shared_->channels->halo.rank(); }
  int size() const { return shared_->channels->halo.size(); }
  Coordinates coordinates() const { return grid().coordinates(rank()); }

  /// All ranks, for exchanges of boxes.
  Communicator<Mpi> const& halo() const { return shared_->channels->halo; }
  /// All ranks, for reductions of gradients and sums.
  Communicator<Mpi> const& world() const { return shared_->channels->reduction; }

  /// The ranks that differ from this one only along `axes`. Made once; collective the first time.
  Communicator<Mpi> const& group(AxisSet axes) const {
    AxisSet cut;  // axes with one block change nothing
    Coordinates base = coordinates();
    std::int64_t members = 1;
    for (AxisId axis : rank_order)
      if (axes.contains(axis) && grid().counts()[axis] > 1) {
        cut.insert(axis);
        base[axis] = 0;
        members *= grid().counts()[axis];
      }
    if (members == size()) return world();
    if (auto const found = shared_->groups.find(cut); found != shared_->groups.end()) return found->second;
    return shared_->groups.emplace(cut, world().split(static_cast<int>(grid().rank(base)), rank())).first->second;
  }

  /// A tag for a new exchange. Every rank binds in the same order, so all agree on it.
  int next_tag() const {
    Channels& channels = *shared_->channels;
    return static_cast<int>(channels.tags++ % (static_cast<std::int64_t>(channels.halo.max_tag()) + 1));
  }

 private:
  using Key = std::array<std::int64_t, axis_count>;
  struct Shared;

  struct Channels {
    explicit Channels(Communicator<Mpi> const& comm) : halo(comm.duplicate()), reduction(comm.duplicate()) {}
    Communicator<Mpi> halo;
    Communicator<Mpi> reduction;
    std::int64_t tags = 0;
    std::map<Key, std::weak_ptr<Shared>> grids;
  };

  struct Shared {
    Shared(Grid const& g, std::shared_ptr<Channels> c) : grid(g), channels(std::move(c)) {}
    Grid grid;
    std::shared_ptr<Channels> channels;
    std::map<AxisSet, Communicator<Mpi>> groups;
  };

  static Key key(Counts const& counts) {
    return {counts.sample, counts.channel, counts.depth, counts.height, counts.width};
  }

  explicit Ranks(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  std::shared_ptr<Shared> shared_;
};

}  // namespace tessera
