// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/io/batch.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "support/property.hpp"
#include "support/scratch.hpp"

namespace {

using namespace tessera;
using io::shuffled;

using Order = std::vector<std::int64_t>;
using Source = io::MemorySource<double>;
static_assert(io::Source<Source, float> && io::Source<Source, double>);

Order in_order(std::int64_t count) {
  Order order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  return order;
}

}  // namespace

TEST_CASE("batch: shuffled is a permutation that seed and epoch choose") {
  tessera::test::property("a permutation, the same each time", [] {
    auto const count = *rc::gen::inRange<std::int64_t>(0, 200).as("count");
    auto const seed = *rc::gen::arbitrary<std::uint64_t>().as("seed"),
               epoch = *rc::gen::arbitrary<std::uint64_t>().as("epoch");
    Order order = shuffled(count, seed, epoch);
    RC_ASSERT(order == shuffled(count, seed, epoch));
    std::sort(order.begin(), order.end());
    RC_ASSERT(order == in_order(count));
  });
  CHECK(shuffled(50, 1, 0) != in_order(50));
  CHECK(shuffled(50, 1, 0) != shuffled(50, 2, 0));
  CHECK(shuffled(50, 1, 0) != shuffled(50, 1, 1));
  CHECK(shuffled(50, 1, 0) != shuffled(50, 1, std::uint64_t{1} << 32));
  CHECK(shuffled(50, 1, 0) != shuffled(50, 1 + (std::uint64_t{1} << 32), 0));
}

TEST_CASE("batch: each order is as likely as any other") {
  // 6 orders of 3 over 6000 seeds: 1000 each, give or take five standard deviations.
  std::vector<int> seen(27, 0);
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    Order const order = shuffled(3, seed, 0);
    ++seen[static_cast<std::size_t>(order[0] * 9 + order[1] * 3 + order[2])];
  }
  for (int const often : seen) CHECK((often == 0 || std::abs(often - 1000) < 145));
  CHECK(std::count(seen.begin(), seen.end(), 0) == 21);
}

TEST_CASE("batch: BatchReader asks for what a rank owns, sample by sample, and fills nothing else") {
  tessera::test::property("owned cells", [] {
    auto const extent = [](char const* name) { return *rc::gen::inRange<std::int64_t>(1, 6).as(name); };
    auto const cuts = [](char const* name) { return *rc::gen::inRange<std::int64_t>(1, 4).as(name); };
    Shape const shape{extent("samples"), extent("depth"), extent("height"), extent("width"), extent("channels")};
    Grid const grid(Counts{.sample = cuts("sample cuts"),
                           .depth = cuts("depth cuts"),
                           .height = cuts("height cuts"),
                           .width = cuts("width cuts")});
    auto const rank = *rc::gen::inRange<std::int64_t>(0, grid.size()).as("rank");
    auto const halo = *rc::gen::inRange<std::int64_t>(0, 3).as("halo");

    Partition const partition(grid, shape);
    Box also = partition.owned(rank);
    for (int axis = 1; axis < 4; ++axis) also.axis[axis] = {also.axis[axis].begin - halo, also.axis[axis].end + halo};
    Shard<float> const shard(partition, rank, also);
    Box const own = shard.owned(), held = shard.held();
    std::vector<double> cells(static_cast<std::size_t>(shape.volume()));
    std::iota(cells.begin(), cells.end(), 0.0);
    Source const source(shape, cells, Shape{}, std::vector<double>(static_cast<std::size_t>(shape.sample)));
    std::fill_n(shard.tile().data, held.volume(), -1.0f);

    Order asked;
    io::BatchReader<float, Kokkos::DefaultExecutionSpace>{}(shard, [&](std::int64_t n, Box const& box, float* to) {
      asked.push_back(n);
      Box one = own;
      one.axis[0] = {n, n + 1};
      RC_ASSERT(box == one);
      source.read_input(n, box, to);
    });
    RC_ASSERT(asked.size() == static_cast<std::size_t>(own.empty() ? 0 : own.axis[0].size()));

    for (std::int64_t n = held.axis[0].begin; n < held.axis[0].end; ++n)
      for (std::int64_t d = held.axis[1].begin; d < held.axis[1].end; ++d)
        for (std::int64_t h = held.axis[2].begin; h < held.axis[2].end; ++h)
          for (std::int64_t w = held.axis[3].begin; w < held.axis[3].end; ++w)
            for (std::int64_t c = held.axis[4].begin; c < held.axis[4].end; ++c) {
              bool const inside = own.contains(Box{{{n, n + 1}, {d, d + 1}, {h, h + 1}, {w, w + 1}, {c, c + 1}}});
              std::int64_t const index =
                  (((n * shape.depth + d) * shape.height + h) * shape.width + w) * shape.channel + c;
              RC_ASSERT(shard(n, d, h, w, c) == (inside ? static_cast<float>(index) : -1.0f));
            }
  });
}

TEST_CASE("batch: BatchReader fills another box that is held, for ranks that own none of it too") {
  Shape const shape{3, 1, 2, 4, 2};
  Partition const partition(Grid(Counts{.channel = 3}), shape);  // rank 2 owns no channel
  std::vector<double> cells(static_cast<std::size_t>(shape.volume()));
  std::iota(cells.begin(), cells.end(), 0.0);
  Source const source(shape, cells, Shape{}, {0, 0, 0});
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    Box box = partition.owned(rank);
    box[AxisId::sample] = {1, 3};
    box[AxisId::channel] = {0, 2};
    Shard<float> const shard(partition, rank, shape.box());
    std::fill_n(shard.tile().data, shard.held().volume(), -1.0f);
    io::BatchReader<float, Kokkos::DefaultExecutionSpace>{}(
        shard, box, [&](std::int64_t n, Box const& one, float* to) { source.read_input(n, one, to); });
    for (std::int64_t i = 0; i < shape.volume(); ++i)
      CHECK(shard.tile().data[i] == (i < shape.volume() / 3 ? -1.0f : static_cast<float>(i)));
  }
}

TEST_CASE("source: inputs and targets in memory must fit together") {
  CHECK(
      tessera::test::message_of([] {
        Source(Shape{}, {1, 2, 3}, Shape{}, {1, 2});
      }) ==
      "MemorySource: inputs and targets must hold the same whole number of samples, but they have 3 and 2 elements for "
      "samples of 1 and 1");
  CHECK(
      tessera::test::message_of([] {
        Source(Shape{.channel = 2}, {1, 2, 3}, Shape{}, {1});
      }) ==
      "MemorySource: inputs and targets must hold the same whole number of samples, but they have 3 and 1 elements for "
      "samples of 2 and 1");
}
