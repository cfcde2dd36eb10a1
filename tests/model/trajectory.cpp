// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Ten Adam steps of the CosmoFlow network on 16-cubes, batch norm over all ranks and dropout on: the losses do not
// depend on how many ranks work, nor on how the samples are cut.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "networks.hpp"

namespace {

using namespace tessera;
using cosmoflow::Spatial;
using cosmoflow::Whole;

constexpr int steps = 10;
constexpr std::int64_t side = 16, channels = 4, sample_count = 7;

/// The paper's network, with whole samples from the third block on: what moves differs, the numbers must not.
template <class T>
Model<T> network_with_move_midway(RankGrid<Spatial> const& ranks, SampleShape<3> const& sample) {
  auto const block = [&](std::int64_t width, std::int64_t step, bool pool) {
    return sequence(conv3d<3>(width, stride(step), padding(1), no_bias), batch_norm(), leaky_relu(0.01),
                    when(pool, avg_pool3d<3>(stride(2), padding(1))));
  };
  return sequential<T>(ranks, sample, block(16, 1, true), block(32, 1, true),            //
                       redistribute<Whole>(),                                            //
                       block(64, 1, false), block(128, 2, false), block(256, 1, false),  //
                       flatten(),                                                        //
                       dropout(0.2), dense(2048, bias(0.1)), leaky_relu(0.01),           //
                       dropout(0.2), dense(256, bias(0.1)), leaky_relu(0.01),            //
                       dropout(0.2), dense(4, bias(0.1)));
}

template <class T>
io::MemorySource<T> universes() {
  Shape const input{1, side, side, side, channels}, target{1, 1, 1, 1, 4};
  std::vector<T> x, y;
  RandomStream const counts = random_stream(7, "counts"), truth = random_stream(7, "truth");
  for (std::int64_t i = 0; i < sample_count * input.volume(); ++i)
    x.push_back(static_cast<T>(std::log1p(8.0 + counts.uniform(i, 8.0))));
  for (std::int64_t i = 0; i < sample_count * target.volume(); ++i) y.push_back(static_cast<T>(truth.uniform(i, 1.0)));
  return {input, x, target, y};
}

template <class T>
std::vector<double> losses_of(Model<T> const& net) {
  auto data = universes<T>();
  Trainer trainer{net, Adam{.rate = 1e-4}, MeanSquaredError{}};
  FitOptions const options{.seed = 11};
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    std::vector<std::int64_t> samples;  // 4, 5 or 6 of the samples, in ever another order
    for (std::int64_t i = 0; i < 4 + step % 3; ++i) samples.push_back((3 * i + step) % sample_count);
    losses.push_back(trainer.step(data, samples, options));
  }
  return losses;
}

double largest_difference(std::vector<double> const& a, std::vector<double> const& b) {
  double most = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return most;
}

std::vector<Counts> splits_of(int ranks) {
  std::vector<Counts> const all{
      {}, {.sample = 2}, {.depth = 2}, {.height = 3}, {.depth = 2, .width = 2}, {.sample = 2, .depth = 2, .height = 2}};
  std::vector<Counts> fitting;
  std::copy_if(all.begin(), all.end(), std::back_inserter(fitting),
               [&](Counts const& c) { return c.product() == ranks; });
  return fitting;
}

constexpr SampleShape<3> sample{.channels = channels, .space = {side, side, side}};

/// Of one rank on its own; the others wait for its losses.
template <class T>
std::vector<double> serial_losses(Communicator<Mpi> const& world) {
  std::vector<double> losses(steps);
  if (world.rank() == 0) {
    RankGrid<Spatial> const alone(Communicator<Mpi>::borrow(MPI_COMM_SELF), Counts{});
    losses = losses_of(cosmoflow::paper_network<T>(alone, sample, true));
  }
  world.broadcast(losses.data(), steps, 0);
  return losses;
}

void report(char const* type, std::string const& split, double difference, int rank) {
  if (rank == 0)
    std::printf("trajectory: %s, %s: relative difference to one rank %.1e\n", type, split.c_str(), difference);
}

}  // namespace

TEST_CASE("trajectory: ten steps in double give the losses of one rank under every decomposition") {
  auto const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  std::vector<double> const serial = serial_losses<double>(world);
  CHECK(serial.back() < serial.front());
  std::vector<Counts> const splits = splits_of(world.size());
  for (Counts const& split : splits) {
    CAPTURE(to_text(split));
    RankGrid<Spatial> const ranks(world, split);
    auto const losses = losses_of(cosmoflow::paper_network<double>(ranks, sample, true));
    double const difference = largest_difference(losses, serial);
    report("double", to_text(split), difference, world.rank());
    CHECK(difference <= 1e-9);
    if (split == splits.back())  // a run repeats bit for bit
      CHECK(losses == losses_of(cosmoflow::paper_network<double>(ranks, sample, true)));
    if (world.size() != 2 && world.size() != 4) continue;
    double const moved = largest_difference(losses_of(network_with_move_midway<double>(ranks, sample)), serial);
    report("double", to_text(split) + ", whole samples midway", moved, world.rank());
    CHECK(moved <= 1e-9);
  }
}

TEST_CASE("trajectory: in float the same steps stay close") {
  auto const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  std::vector<double> const serial = serial_losses<float>(world);
  for (Counts const& split : splits_of(world.size())) {
    RankGrid<Spatial> const ranks(world, split);
    double const difference =
        largest_difference(losses_of(cosmoflow::paper_network<float>(ranks, sample, true)), serial);
    report("float", to_text(split), difference, world.rank());
    CHECK(difference <= 0.05);  // Adam divides rounding by itself: only a sign that nothing is grossly wrong
  }
}
