// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Ten Adam steps of a small network in which every kind of layer that mixes channels takes part: the losses do not
// depend on what is cut, channels included, and each rank keeps the optimizer's state of its own shards alone.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "tessera/comm/rank_grid.hpp"
#include "tessera/io/source.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/flat_dense.hpp"
#include "tessera/layer/transposed_conv.hpp"
#include "tessera/model/model.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/partition/counts_text.hpp"
#include "tessera/train/loss.hpp"
#include "tessera/train/trainer.hpp"

namespace {

using namespace tessera;
using AnySplit = Distribution<axes::Sample, axes::Channel, axes::Depth, axes::Height, axes::Width>;

constexpr int steps = 10;
constexpr std::int64_t side = 4, channels = 4, sample_count = 5, outputs = 3;
constexpr SampleShape<3> sample{.channels = channels, .space = {side, side, side}};

Model<double> network(RankGrid<AnySplit> const& ranks) {
  return sequential<double>(ranks, sample,                                                                    //
                            conv3d<3>(6, same, Padding::circular, groups(2)), relu(),                         //
                            transposed_conv3d<3>(4, stride(2), padding(1), output_padding(1)),                //
                            conv3d<3>(5, stride(2), padding(1), Stationary::x), dense(7, flattened), relu(),  //
                            dense(outputs));
}

io::MemorySource<double> samples() {
  Shape const input{1, side, side, side, channels}, target{1, 1, 1, 1, outputs};
  std::vector<double> x, y;
  RandomStream const given = random_stream(3, "input"), truth = random_stream(3, "target");
  for (std::int64_t i = 0; i < sample_count * input.volume(); ++i) x.push_back(given.uniform(i, 1.0));
  for (std::int64_t i = 0; i < sample_count * target.volume(); ++i) y.push_back(truth.uniform(i, 1.0));
  return {input, x, target, y};
}

/// What the optimizer was given, over all steps.
struct Tally {
  std::int64_t whole = 0;    ///< elements of all parameters
  std::int64_t held = 0;     ///< of this rank's shards
  std::int64_t counted = 0;  ///< of those that this rank counts for all
  bool exact = true;         ///< whether every state had the size of its shard
};

/// Adam, watched.
struct WatchedAdam {
  Adam adam;
  Tally* tally;
  static constexpr int states = Adam::states;

  template <class T, class Space>
  void update(Space const& space, Parameter<T, Space> const& p, std::vector<Storage<T, Space>> const& state,
              std::int64_t step, double factor, double scale) const {
    tally->whole += p.whole_count();
    tally->held += p.count();
    tally->counted += p.counted_here() ? p.count() : 0;
    tally->exact = tally->exact && state.size() == static_cast<std::size_t>(states) &&
                   std::all_of(state.begin(), state.end(), [&](auto const& s) { return s.capacity() == p.count(); });
    adam.update(space, p, state, step, factor, scale);
  }
};

std::vector<double> losses_of(RankGrid<AnySplit> const& ranks, FitOptions const& options, Tally& tally) {
  auto data = samples();
  Trainer trainer{network(ranks), WatchedAdam{Adam{.rate = 1e-2}, &tally}, MeanSquaredError{}};
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    std::vector<std::int64_t> batch;  // 3, 4 or 5 of the samples, in ever another order
    for (std::int64_t i = 0; i < 3 + step % 3; ++i) batch.push_back((2 * i + step) % sample_count);
    losses.push_back(trainer.step(data, batch, options));
  }
  trainer.check_replicas();
  return losses;
}

/// Of one rank on its own; the others wait for its losses.
std::vector<double> serial_losses(Communicator<Mpi> const& world, FitOptions const& options) {
  std::vector<double> losses(steps);
  if (world.rank() == 0) {
    Tally tally;
    losses = losses_of({Communicator<Mpi>::borrow(MPI_COMM_SELF), Counts{}}, options, tally);
    CHECK(tally.held == tally.whole);
  }
  world.broadcast(losses.data(), steps, 0);
  return losses;
}

double largest_difference(std::vector<double> const& a, std::vector<double> const& b) {
  double most = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return most;
}

/// All counts whose product is the number of ranks.
std::vector<Counts> splits_of(std::int64_t ranks) {
  std::vector<Counts> all;
  for (std::int64_t n = 1; n <= ranks; ++n)
    for (std::int64_t c = 1; c <= ranks; ++c)
      for (std::int64_t d = 1; d <= ranks; ++d)
        for (std::int64_t h = 1; h <= ranks; ++h)
          if (ranks % (n * c * d * h) == 0)
            all.push_back({.sample = n, .channel = c, .depth = d, .height = h, .width = ranks / (n * c * d * h)});
  return all;
}

}  // namespace

TEST_CASE("channels: ten steps in double give the losses of one rank under every decomposition") {
  auto const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  FitOptions const plain{.seed = 11}, micro{.micro_batch = 2, .seed = 11},
      clipped{.micro_batch = 2, .seed = 11, .clip_norm = 0.05};
  std::vector<double> const serial = serial_losses(world, plain), parts = serial_losses(world, micro),
                            short_steps = serial_losses(world, clipped);
  CHECK(serial.back() < serial.front());
  CHECK(largest_difference(parts, serial) <= 1e-9);
  CHECK(largest_difference(short_steps, serial) > 1e-3);  // it does clip

  double most = 0.0;
  auto const splits = splits_of(world.size());
  for (Counts const& split : splits) {
    CAPTURE(to_text(split));
    RankGrid<AnySplit> const ranks(world, split);
    Tally tally;
    double const whole = largest_difference(losses_of(ranks, plain, tally), serial),
                 clip = largest_difference(losses_of(ranks, clipped, tally), short_steps);
    CHECK(whole <= 1e-9);
    CHECK(clip <= 1e-9);
    most = std::max({most, whole, clip});
    CHECK(tally.exact);
    CHECK(world.all_reduce(tally.counted) == tally.whole);  // the shards make up the parameters
    if (split.channel > 1) CHECK(tally.held < tally.whole);
  }
  if (world.rank() == 0)
    std::printf("channels: %d decompositions, largest relative difference to one rank %.1e\n",
                static_cast<int>(splits.size()), most);
}
