// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/exchange/halo.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/exchange_case.hpp"

using namespace tessera;
using namespace tessera::axes;
using namespace tessera::test;

namespace {

using Host = Kokkos::DefaultHostExecutionSpace;
using All = Distribution<Sample, Channel, Depth, Height, Width>;

RankGrid<All> world_on_width() {
  auto const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  return {world, Counts{.width = world.size()}};
}

double value_of(Shape const& shape, Cell const& g) { return 1.0 + static_cast<double>(offset_in(shape.box(), g)); }

template <class T>
auto& cell(T const& tensor, Cell const& g) {
  return tensor(g[0], g[1], g[2], g[3], g[4]);
}

bool inside(Box const& box, Cell const& g) {
  for (std::size_t a = 0; a < axis_count; ++a)
    if (!box.axis[a].contains(g[a])) return false;
  return true;
}

/// The whole-number extents of a tensor whose last `space` spatial axes are in use.
Shape draw_shape(int space) {
  std::array<std::int64_t, 3> extent{1, 1, 1};
  for (int i = 3 - space; i < 3; ++i)
    extent[static_cast<std::size_t>(i)] =
        draw(1, space == 3 ? 7 : 13, std::string(name(spatial[static_cast<std::size_t>(i)])));
  return {draw(1, 4, "samples"), extent[0], extent[1], extent[2], draw(1, 6, "channels")};
}

/// Halo::fill defines the halo and touches nothing else; start_add / finish_add are its adjoint.
template <class T, int Space>
void check_halo(RankGrid<All> const& world) {
  Case c;
  c.space = Space;
  c.placement = Placement::around_owned;
  Shape const shape = draw_shape(Space);
  RankGrid<All> const ranks(world, draw_counts(world.size(), Space, "counts"));
  c.has = draw_partition(ranks.grid().counts(), shape, draw(0, 2, "boundaries by the user") == 1, "blocks");
  c.padding = static_cast<Padding>(draw(0, 4, "padding (zeros, circular, reflect, replicate)"));
  c.needs = Region(c.has);
  std::array<HaloWidth, Space> widths;
  std::int64_t widest = 0;
  for (int i = 0; i < Space; ++i) {
    HaloWidth& width = widths[static_cast<std::size_t>(i)];
    width = {draw(0, 4, "halo below"), draw(0, 4, "halo above")};
    widest = std::max({widest, width.low, width.high});
    c.needs.map(spatial[static_cast<std::size_t>(3 - Space + i)], [&](Interval owned) {
      return owned.empty() ? owned : Interval{owned.begin - width.low, owned.end + width.high};
    });
  }
  if (!suppliable(c)) c.padding = Padding::replicate;
  std::int64_t const margin = widest + draw(0, 2, "held beyond the halo");

  Tensor<T, Space, All, Host> const x(ranks, c.has, margin);
  Halo<T, Space, All, Host> halo(x, widths, c.padding);
  x.fill(T(-1));
  for_each_cell(x.owned(), [&](Cell const& g) { cell(x, g) = static_cast<T>(value_of(shape, g)); });
  halo.fill(x);
  bool right = true;
  double products[2] = {0, 0};
  for_each_cell(x.held(), [&](Cell const& g) {
    if (!inside(halo.plan().needs, g)) {
      right = right && cell(x, g) == T(-1);
      return;
    }
    auto const from = source_of(c, g);
    right = right && cell(x, g) == (from ? static_cast<T>(value_of(shape, *from)) : T(0));
    if (!inside(x.owned(), g))
      products[0] += static_cast<double>(cell(x, g)) * static_cast<double>(floor_mod(g[1] + 2 * g[2] + 3 * g[3], 5));
  });

  Tensor<T, Space, All, Host> const y(ranks, c.has, margin);
  y.fill(T(0));
  for_each_cell(halo.plan().needs, [&](Cell const& g) {
    if (!inside(y.owned(), g)) cell(y, g) = static_cast<T>(floor_mod(g[1] + 2 * g[2] + 3 * g[3], 5));
  });
  halo.start_add(y);
  halo.finish_add(y);
  for_each_cell(y.owned(), [&](Cell const& g) { products[1] += static_cast<double>(cell(y, g)) * value_of(shape, g); });
  ranks.world().all_reduce(products, 2);
  RC_ASSERT(right);
  RC_ASSERT(products[0] == products[1]);
}

}  // namespace

TEST_CASE("a halo is filled around any tensor, and its adjoint adds it back") {
  auto const ranks = world_on_width();
  distributed_property(
      "1-D, double", [&] { check_halo<double, 1>(ranks); }, MPI_COMM_WORLD);
  distributed_property(
      "2-D, float", [&] { check_halo<float, 2>(ranks); }, MPI_COMM_WORLD);
  distributed_property(
      "3-D, 32-bit integers", [&] { check_halo<std::int32_t, 3>(ranks); }, MPI_COMM_WORLD);
}

TEST_CASE("redistribution there and back is the identity") {
  auto const world = world_on_width();
  distributed_property(
      "between any two grids",
      [&] {
        int const space = static_cast<int>(draw(1, 4, "spatial axes"));
        Shape const shape = draw_shape(space);
        bool const by_user = draw(0, 2, "boundaries by the user") == 1;
        RankGrid<All> const here(world, draw_counts(world.size(), space, "counts"));
        RankGrid<All> const there(world, draw_counts(world.size(), space, "new counts"));
        Partition const a = draw_partition(here.grid().counts(), shape, by_user, "blocks");
        Partition const b = draw_partition(there.grid().counts(), shape, by_user, "new blocks");
        Tensor<std::int16_t, 3, All, Host> const x(here, a, draw(0, 3, "margin")), back(here, a, draw(0, 3, "margin"));
        Tensor<std::int16_t, 3, All, Host> const y(there, b, draw(0, 3, "new margin"));
        auto const value = [&](Cell const& g) { return static_cast<std::int16_t>(value_of(shape, g)); };
        for (auto const& tensor : {x, y, back}) tensor.fill(-1);
        for_each_cell(x.owned(), [&](Cell const& g) { cell(x, g) = value(g); });
        redistribute(x, y);
        redistribute(y, back);
        auto const holds_all = [&](auto const& tensor) {
          bool right = true;
          for_each_cell(tensor.held(), [&](Cell const& g) {
            right = right && cell(tensor, g) == (inside(tensor.owned(), g) ? value(g) : -1);
          });
          return right;
        };
        RC_ASSERT(holds_all(x));
        RC_ASSERT(holds_all(y));
        RC_ASSERT(holds_all(back));
      },
      MPI_COMM_WORLD);
}

TEST_CASE("redistribution between other policies, counts from the number of ranks") {
  auto const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  RankGrid<Distribution<Depth>> const slabs(world);
  auto const whole = RankGrid<Distribution<Sample>>::spread(slabs);
  Extents<3> const extents{.samples = 3, .space = {5, 2, 2}, .channels = 2};
  Tensor<float, 3, Distribution<Depth>, Host> const x(slabs, extents);
  Tensor<float, 3, Distribution<Sample>, Host> const y(whole, extents);
  for_each_cell(x.owned(), [&](Cell const& g) { cell(x, g) = static_cast<float>(value_of(x.shape(), g)); });
  redistribute(x, y);
  for_each_cell(y.owned(), [&](Cell const& g) { CHECK(cell(y, g) == static_cast<float>(value_of(y.shape(), g))); });
  Tensor<float, 3, Distribution<Sample>, Host> const other(whole, Extents<3>{.samples = 3, .space = {5, 2, 2}});
  CHECK_THROWS_WITH_AS(
      redistribute(x, other),
      "redistribute: both tensors must have the same shape, but they have (3, 5, 2, 2, 2) and (3, 5, 2, 2, 1)", Error);
}

TEST_CASE("a tensor must hold the halo that is to be filled") {
  auto const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  RankGrid<Distribution<Width>> const ranks(world);
  Tensor<float, 1, Distribution<Width>, Host> const tensor(ranks, Extents<1>{.space = {4 * world.size()}}, 1);
  std::int64_t const begin = 4 * world.rank(), end = begin + 4;
  std::string const message = tessera::detail::text("Halo: the tensor must hold the halo [0,1)x[0,1)x[0,1)x[",
                                                    begin - 2, ',', end + 2, ")x[0,1), but holds [0,1)x[0,1)x[0,1)x[",
                                                    begin - 1, ',', end + 1, ")x[0,1); create it with a larger margin");
  CHECK_THROWS_WITH_AS((Halo<float, 1, Distribution<Width>, Host>(tensor, 2)), message.c_str(), Error);
}
