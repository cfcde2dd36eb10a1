// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/layer/flatten.hpp"

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

using Whole = Distribution<axes::Sample>;

/// The adjoint of the oracle's flatten, cell by cell: where each cell of x went.
HostTensor unflatten(HostTensor const& flat, Shape const& shape) {
  HostTensor numbers(shape), x(shape);
  for (std::size_t i = 0; i < numbers.values.size(); ++i) numbers.values[i] = static_cast<double>(i);
  HostTensor const went = oracle::flatten(numbers);
  for (std::size_t i = 0; i < flat.values.size(); ++i)
    x.values[static_cast<std::size_t>(went.values[i])] = flat.values[i];
  return x;
}

template <class T>
void check(Partition const& input, RankGrid<Whole> const& ranks, bool adds, std::int64_t samples, std::uint64_t seed) {
  Driver<T> driver(ranks, input, flatten());
  auto const batch = [&](Partition const& part) {
    HostTensor const x = whole_numbers(part.shape(), seed, 9), start = whole_numbers(part.shape(), seed + 1, 9);
    HostTensor const flat = oracle::flatten(x), dy = whole_numbers(flat.shape, seed + 2, 9);
    driver.forward(part, x);
    driver.backward(dy, {}, adds ? &start : nullptr);
    HostTensor dx = unflatten(dy, part.shape());
    if (adds) dx = oracle::cell_by_cell(dx, start, [](double a, double b) { return a + b; });
    together([&] {
      driver.expect_clean();
      expect_owned("y", driver.y(), flat, [](std::size_t) { return 0.0; });
      expect_owned("dx", driver.dx(), dx, [](std::size_t) { return 0.0; });
    });
  };
  try {
    batch(input);
    if (input.blocks(AxisId::sample).balanced()) {
      batch(input.with_samples(samples));
      batch(input);
    }
  } catch (Error const& error) {
    throw Error(error.what() + std::string("\n  in flatten of ") + test::text(input));
  }
}

}  // namespace

TEST_CASE("flatten: forward and gradient equal the serial ones") {
  poison_fresh_memory();
  RankGrid<Whole> const ranks(Communicator<Mpi>::borrow(MPI_COMM_WORLD));
  Coverage coverage("flatten", ranks.size());
  distributed_property(
      "flatten: distributed equals serial",
      [&] {
        std::int64_t const space = draw(1, 3, "spatial axes");
        Shape const shape = draw_shape(ranks.grid().counts(), space);
        Partition const input = draw_partition(shape, ranks.grid().counts());
        bool const adds = draw(0, 1, "adds") == 1;
        std::int64_t const samples = draw(1, shape.sample, "samples of an incomplete batch");
        auto const seed = static_cast<std::uint64_t>(draw(0, 1'000'000, "seed"));
        coverage.begin_case();
        coverage.count("empty shards", has_empty_shard(input), ranks.size() > 1);
        coverage.count("boundaries by the user", cut_by_user(input), ranks.size() > 1);
        check<double>(input, ranks, adds, samples, seed);
        check<float>(input, ranks, adds, samples, seed);
      },
      MPI_COMM_WORLD);
  coverage.report(ranks.rank());
}

TEST_CASE("cases 7, 18: flatten with fewer samples than ranks") {
  RankGrid<Whole> const ranks(Communicator<Mpi>::borrow(MPI_COMM_WORLD));
  check<double>(Partition(ranks.grid(), {1, 2, 3, 2, 2}), ranks, false, 1, 1);
}
