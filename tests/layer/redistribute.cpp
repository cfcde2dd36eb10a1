// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/layer/redistribute.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/host_tensor.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/oracle/pointwise.hpp"
#include "tessera/comm/rank_grid.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Forward is the identity on the whole tensor, and so is its adjoint.
template <class T, PartitionPolicy From, class Spec>
void check(RankGrid<From> const& ranks, Partition const& input, Spec const& spec, Counts const& to, bool adds,
           std::int64_t samples, std::uint64_t seed) {
  try {
    Driver<T> driver(ranks, input, spec);
    auto const batch = [&](Partition const& part) {
      HostTensor const x = random_tensor(part.shape(), seed), start = whole_numbers(part.shape(), seed + 1, 9),
                       dy = whole_numbers(part.shape(), seed + 2, 9);
      driver.forward(part, x);
      driver.backward(dy, {}, adds ? &start : nullptr);
      together([&] {
        driver.expect_clean();
        expect(driver.y().partition().grid().counts() == to, "the output is not cut as it was asked for");
        expect(driver.dx().partition() == part, "the gradient is not cut as the input is");
        expect_owned("y", driver.y(), x, [](std::size_t) { return 0.0; });
        expect_owned("dx", driver.dx(),
                     adds ? oracle::cell_by_cell(dy, start, [](double a, double b) { return a + b; }) : dy,
                     [](std::size_t) { return 0.0; });
      });
    };
    batch(input);
    if (input.blocks(AxisId::sample).balanced()) {
      batch(input.with_samples(samples));
      batch(input);
    }
  } catch (Error const& error) {
    throw Error(tessera::detail::text(error.what(), "\n  in redistribution of ", test::text(input), " to ", to.sample,
                                      " x ", to.depth, " x ", to.height, " x ", to.width, ", seed ", seed));
  }
}

template <PartitionPolicy To>
void check_spread(AxisId axis) {
  auto const world = world_ranks();
  for (Counts const& counts :
       {Counts{.sample = world.size()}, Counts{.depth = world.size()}, Counts{.width = world.size()}}) {
    RankGrid<AnySplit> const ranks(world, counts);
    Partition const input(ranks.grid(), {3, 5, 2, 7, 2});
    Counts to;
    to[axis] = world.size();
    check<double>(ranks, input, redistribute<To>(), to, false, 2, 5);
    check<float>(ranks, input, redistribute<To>(), to, true, 2, 5);
  }
}

}  // namespace

TEST_CASE("redistribute from any decomposition to any other: forward and adjoint keep every cell") {
  poison_fresh_memory();
  auto const world = world_ranks();
  Coverage coverage("redistribute", world.size());
  distributed_property(
      "redistribute: distributed equals serial",
      [&] {
        std::int64_t const space = draw(1, 3, "spatial axes");
        Counts const from = draw_counts(world.size(), space), to = draw_counts(world.size(), space);
        Shape const shape = draw_shape(from, space);
        Partition const input = draw_partition(shape, from);
        bool const adds = draw(0, 1, "adds") == 1;
        std::int64_t const samples = draw(1, shape.sample, "samples of an incomplete batch");
        auto const seed = static_cast<std::uint64_t>(draw(0, 1'000'000, "seed"));
        coverage.begin_case();
        Partition const output{Grid(to), shape};
        coverage.count_decomposition(input, output);
        coverage.count("another decomposition", !(from == to), world.size() > 1);
        RankGrid<AnySplit> const ranks(world, from);
        check<double>(ranks, input, redistribute<AnySplit>(to), to, adds, samples, seed);
        check<float>(ranks, input, redistribute<AnySplit>(to), to, adds, samples, seed);
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}

TEST_CASE("redistribute gives all ranks to the single dynamic axis") {
  check_spread<Distribution<axes::Sample>>(AxisId::sample);
  check_spread<Distribution<axes::Depth>>(AxisId::depth);
  check_spread<Distribution<axes::Width>>(AxisId::width);
}
