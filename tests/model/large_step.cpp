// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// One training step on a cube whose side TESSERA_LARGE_SIDE gives (48 in the suite, 256 in scripts/soak), few channels:
// large extents are executed, not only summarised, and give the loss that one rank computes.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <tuple>
#include <utility>

#include "tessera/tessera.hpp"

namespace {

using namespace tessera;
using namespace tessera::axes;
using Spatial = Distribution<Sample, Depth, Height, Width>;

/// Cells as a function of their position, so that no rank holds more than it owns.
class Waves {
 public:
  explicit Waves(std::int64_t side) : side_(side) {}
  std::int64_t size() const { return 1; }
  Shape input_shape() const { return {1, side_, side_, side_, 2}; }
  Shape target_shape() const { return {1, 1, 1, 1, 4}; }
  template <class T>
  void read_input(std::int64_t, Box const& box, T* cells) const {
    for (std::int64_t d = box.axis[1].begin; d < box.axis[1].end; ++d)
      for (std::int64_t h = box.axis[2].begin; h < box.axis[2].end; ++h)
        for (std::int64_t w = box.axis[3].begin; w < box.axis[3].end; ++w)
          for (std::int64_t c = box.axis[4].begin; c < box.axis[4].end; ++c)
            *cells++ = static_cast<T>((7 * d + 5 * h + 3 * w + 11 * c) % 17) / T(17) - T(0.5);
  }
  template <class T>
  void read_target(std::int64_t, Box const& box, T* cells) const {
    for (std::int64_t c = box.axis[4].begin; c < box.axis[4].end; ++c) *cells++ = static_cast<T>(c) / T(4);
  }

 private:
  std::int64_t side_;
};

/// The loss before and after a step.
std::pair<double, double> two_losses(Communicator<Mpi> const& comm, Counts const& counts, std::int64_t side) {
  RankGrid<Spatial> const ranks(comm, counts);
  auto net = sequential<float>(
      ranks, SampleShape<3>{.channels = 2, .space = {side, side, side}}, conv3d<3>(4, same, no_bias), batch_norm(),
      leaky_relu(), avg_pool3d<3>(stride(2), padding(1)), conv3d<3>(8, stride(2), padding(1)), relu(), max_pool3d<2>(),
      conv3d<3>(8, stride(4), padding(1)), redistribute<Distribution<Sample>>(), flatten(), dense(4));
  Trainer trainer{net, Sgd{.rate = 1e-4}, MeanSquaredError{}};
  Waves data(side);
  double const first = trainer.step(data, {0}, {.seed = 3});
  return {first, trainer.step(data, {0}, {.seed = 3})};
}

}  // namespace

TEST_CASE("a large cube, split along all three axes, trains as on one rank") {
  char const* const given = std::getenv("TESSERA_LARGE_SIDE");
  std::int64_t const side = given != nullptr ? std::stoll(given) : 48;
  auto const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  Counts const counts = world.size() == 8   ? Counts{.depth = 2, .height = 2, .width = 2}
                        : world.size() == 4 ? Counts{.depth = 2, .width = 2}
                                            : Counts{.height = world.size()};
  auto const [before, after] = two_losses(world, counts, side);
  double serial[2] = {0.0, 0.0};
  if (world.rank() == 0)
    std::tie(serial[0], serial[1]) = two_losses(Communicator<Mpi>::borrow(MPI_COMM_SELF), {}, side);
  world.broadcast(serial, 2, 0);
  if (world.rank() == 0)
    std::cout << "side " << side << ": loss " << before << " then " << after << ", on one rank " << serial[0]
              << " then " << serial[1] << '\n';
  CHECK(std::abs(before - serial[0]) <= 1e-4 * serial[0]);
  CHECK(std::abs(after - serial[1]) <= 1e-3 * serial[1]);
  CHECK(after < before);
}
