// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/comm/rank_grid.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/exchange_case.hpp"

using namespace tessera;
using namespace tessera::axes;
using namespace tessera::test;

namespace {

using All = Distribution<Sample, Channel, Depth, Height, Width>;

Communicator<Mpi> world() { return Communicator<Mpi>::borrow(MPI_COMM_WORLD); }

/// The ranks of a communicator, as their ranks in the world.
std::set<int> members(Communicator<Mpi> const& group, int me) {
  std::vector<int> all(static_cast<std::size_t>(group.size()), 0);
  all[static_cast<std::size_t>(group.rank())] = me;
  group.all_reduce(all.data(), group.size());
  return {all.begin(), all.end()};
}

}  // namespace

TEST_CASE("a product that is not the number of ranks is refused on every rank, with the values") {
  std::string const n = std::to_string(world().size());
  std::string const wanted =
      "RankGrid: the product of the counts must be the number of ranks, but sample 1 x channel 1 x "
      "depth 5 x height 1 x width 7 = 35 and there are " +
      n + " ranks; change the split or the number of ranks";
  CHECK_THROWS_WITH_AS((RankGrid<All>(world(), {.depth = 5, .width = 7})), wanted.c_str(), Error);
  RankGrid<All> const ranks(world(), {.sample = world().size()});
  std::string const again = "RankGrid: the product of the new counts is 35, but there are " + n +
                            " ranks; give counts whose product is the number of ranks";
  CHECK_THROWS_WITH_AS((RankGrid<All>(ranks, {.depth = 5, .width = 7})), again.c_str(), Error);
  CHECK_THROWS_WITH_AS((RankGrid<All>(world(), {.depth = 0})), "Grid: every count must be at least 1, but depth is 0",
                       Error);
}

TEST_CASE("counts must agree with the policy") {
  CHECK_THROWS_WITH_AS(
      (RankGrid<Distribution<Depth>>(world(), {.depth = 1, .width = 2})),
      "RankGrid: the Distribution does not split width, but the count given is 2; name the axis in the "
      "Distribution",
      Error);
  CHECK_THROWS_WITH_AS(
      (RankGrid<Distribution<Split<Depth, 3>, Width>>(world(), {.depth = 2, .width = 2})),
      "RankGrid: the Distribution fixes the count of depth to 3, but the count given is 2; leave it out", Error);
  // A fixed count may be left out; the dynamic axis takes the rest.
  if (world().size() % 2 == 0) {
    RankGrid<Distribution<Split<Depth, 2>, Width>> const rest(world());
    CHECK(rest.grid().counts() == Counts{.depth = 2, .width = world().size() / 2});
    RankGrid<Distribution<Split<Depth, 2>, Width>> const given(world(), {.width = world().size() / 2});
    CHECK(given.grid() == rest.grid());
  } else {
    CHECK_THROWS_AS((RankGrid<Distribution<Split<Depth, 2>, Width>>(world())), Error);
  }
}

TEST_CASE("ranks are numbered with sample slowest and width fastest") {
  RankGrid<All> const ranks(world(), {.sample = world().size()});
  CHECK(ranks.coordinates()[AxisId::sample] == ranks.rank());
  if (world().size() % 2 == 0) {
    RankGrid<All> const two(world(), {.sample = world().size() / 2, .width = 2});
    CHECK(two.coordinates()[AxisId::sample] == two.rank() / 2);
    CHECK(two.coordinates()[AxisId::width] == two.rank() % 2);
  }
}

TEST_CASE("a group holds the ranks that differ along its axes only") {
  RankGrid<All> const base(world(), {.sample = world().size()});
  distributed_property(
      "any grid, any axes",
      [&] {
        RankGrid<All> const ranks(base, draw_counts(base.size(), 3, "counts"));
        std::int64_t const bits = draw(0, 32, "axes of the group");
        AxisSet axes;
        if (bits & 1) axes = AxisSet{AxisId::sample};
        if (bits & 2) axes = AxisSet{AxisId::depth, AxisId::channel};
        if (bits & 4) axes = space_axes;
        if (bits & 8) axes = AxisSet{AxisId::sample, AxisId::width};
        if (bits & 16) axes = all_axes;
        std::set<int> expected;
        for (int rank = 0; rank < ranks.size(); ++rank) {
          bool same_elsewhere = true;
          for (AxisId axis : rank_order)
            if (!axes.contains(axis))
              same_elsewhere = same_elsewhere && ranks.grid().coordinates(rank)[axis] == ranks.coordinates()[axis];
          if (same_elsewhere) expected.insert(rank);
        }
        auto const& group = ranks.group(axes);
        bool const cached = &ranks.group(axes) == &group;
        auto const found = members(group, ranks.rank());
        RC_ASSERT(cached);
        RC_ASSERT(found == expected);
      },
      MPI_COMM_WORLD);
}

TEST_CASE("another grid over the same ranks shares their communicators") {
  RankGrid<All> const ranks(world(), {.sample = world().size()});
  RankGrid<Distribution<Width>> const other(ranks, {.width = world().size()});
  CHECK(other.halo().native() == ranks.halo().native());
  CHECK(other.world().native() == ranks.world().native());
  CHECK(other.halo().native() != other.world().native());
  CHECK(other.halo().native() != MPI_COMM_WORLD);
  // Also its groups, on the way there and back.
  RankGrid<All> const back(other, {.sample = world().size()});
  CHECK(&back.group({AxisId::sample}) == &ranks.group({AxisId::sample}));
  RankGrid<All> const again(ranks, {.width = world().size()});
  CHECK(&again.group({AxisId::width}) == &other.group({AxisId::width}));
  // Tags are counted for all of them together.
  int const tag = ranks.next_tag();
  CHECK(other.next_tag() == tag + 1);
  CHECK(back.next_tag() == tag + 2);
}

TEST_CASE("all ranks go to the single dynamic axis") {
  RankGrid<Distribution<Sample, Depth>> const ranks(world(), {.depth = world().size()});
  auto const whole = RankGrid<Distribution<Sample>>::spread(ranks);
  CHECK(whole.grid().counts() == Counts{.sample = world().size()});
  CHECK(whole.halo().native() == ranks.halo().native());
}

TEST_CASE("grids over part of the ranks work side by side") {
  auto const half = world().split(world().rank() % 2, world().rank());
  RankGrid<All> const ranks(half, {.depth = half.size()});
  CHECK(ranks.rank() == world().rank() / 2);
  CHECK(ranks.world().all_reduce(1) == half.size());
}
