// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The losses of docs/how_to/custom_loss.md: the same on any ranks, with the gradients of finite differences.

#include <doctest/doctest.h>

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/io/source.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/model/model.hpp"
#include "tessera/train/loss_pass.hpp"
#include "tessera/train/trainer.hpp"

namespace {

using namespace tessera;
using namespace tessera::axes;
using Host = Kokkos::DefaultHostExecutionSpace;
using Cut = Distribution<Sample, Depth>;

// [known]
/// The mean of squared errors over the cells whose target is known; NaN marks the others.
struct KnownSquaredError {
  LossTarget target(Shape const& prediction) const { return {prediction}; }

  LossPart operator()(LossPass<double, Host> const& pass) const {
    Tile<double const> const x = pass.prediction.tile(), target = pass.target;
    auto const measure = [&](std::int64_t const at[4], Interval channels, double* sums) {
      for (std::int64_t c = channels.begin; c < channels.end; ++c) {
        double const t = target(at[0], at[1], at[2], at[3], c), d = x(at[0], at[1], at[2], at[3], c) - t;
        if (std::isnan(t)) continue;
        sums[0] += d * d;
        sums[1] += 1.0;
      }
    };
    double const* const sums = pass.memory.sums.over(pass.space, pass.prediction.owned(), 2, measure);
    LossPart const part{.sum = sums[0], .count = sums[1]};

    if (pass.error != nullptr)
      for_each_position("known", pass.space, pass.error->owned(), [&](std::int64_t const at[4], Interval channels) {
        for (std::int64_t c = channels.begin; c < channels.end; ++c) {
          double const t = target(at[0], at[1], at[2], at[3], c), d = x(at[0], at[1], at[2], at[3], c) - t;
          pass.error->tile()(at[0], at[1], at[2], at[3], c) = std::isnan(t) ? 0.0 : 2.0 * d / pass.divisor;
        }
      });
    return part;
  }
};
// [end]

// [relative]
/// The mean over samples of |prediction - target|^2 / |target|^2.
struct RelativeError {
  LossTarget target(Shape const& prediction) const { return {prediction}; }

  LossPart operator()(LossPass<double, Host> const& pass) const {
    Box const own = pass.prediction.owned();
    Interval const samples = own[AxisId::sample];
    Tile<double const> const x = pass.prediction.tile(), target = pass.target;
    auto const measure = [&](std::int64_t const at[4], Interval channels, double* sums) {
      double* const sample = sums + 2 * (at[0] - samples.begin);
      for (std::int64_t c = channels.begin; c < channels.end; ++c) {
        double const t = target(at[0], at[1], at[2], at[3], c), d = x(at[0], at[1], at[2], at[3], c) - t;
        sample[0] += d * d;
        sample[1] += t * t;
      }
    };
    std::int64_t const width = 2 * samples.size();
    double* const norms = pass.memory.sums.over(pass.space, own, width, measure);

    // The ranks that hold parts of the same samples: all of them then know both norms, and one of them speaks.
    auto const& sharing = pass.ranks.group({AxisId::channel, AxisId::depth, AxisId::height, AxisId::width});
    sharing.all_reduce(norms, width);
    LossPart part;
    for (std::int64_t n = 0; n < samples.size() && sharing.rank() == 0; ++n)
      part += {.sum = norms[2 * n] / norms[2 * n + 1], .count = 1.0};

    if (pass.error != nullptr)
      for_each_position("relative", pass.space, own, [&](std::int64_t const at[4], Interval channels) {
        double const factor = 2.0 / norms[2 * (at[0] - samples.begin) + 1] / pass.divisor;
        for (std::int64_t c = channels.begin; c < channels.end; ++c)
          pass.error->tile()(at[0], at[1], at[2], at[3], c) =
              factor * (x(at[0], at[1], at[2], at[3], c) - target(at[0], at[1], at[2], at[3], c));
      });
    return part;
  }
};
// [end]

/// Wants targets of another space than the prediction's.
struct Elsewhere : RelativeError {
  LossTarget target(Shape const& prediction) const { return {{prediction.sample, 1, 1, 1, 2}}; }
};

constexpr Shape sample_shape{1, 4, 3, 3, 2};
constexpr std::int64_t sample_count = 5;

Communicator<Mpi> world() { return Communicator<Mpi>::borrow(MPI_COMM_WORLD); }
RankGrid<Cut> alone() { return {Communicator<Mpi>::borrow(MPI_COMM_SELF), Counts{}}; }
RankGrid<Cut> together() {
  int const ranks = world().size();
  return {world(), Counts{.sample = ranks % 2 == 0 ? 2 : 1, .depth = ranks / (ranks % 2 == 0 ? 2 : 1)}};
}

Model<double, Host> network(RankGrid<Cut> const& ranks) {
  return sequential<double, Host>(ranks, SampleShape<3>{.channels = 2, .space = {4, 3, 3}}, conv3d<3>(3, same),
                                  scaled_tanh(), conv3d<1>(2));
}

io::MemorySource<double> numbers(bool with_gaps) {
  std::vector<double> x, y;
  RandomStream const inputs = random_stream(1, "inputs"), targets = random_stream(1, "targets");
  for (std::int64_t i = 0; i < sample_count * sample_shape.volume(); ++i) {
    x.push_back(inputs.uniform(i, 1.0));
    y.push_back(with_gaps && targets.word(i) % 3 == 0 ? std::nan("") : targets.uniform(i, 1.0));
  }
  return {sample_shape, x, sample_shape, y};
}

template <class L>
void check(L const& loss, bool with_gaps) {
  auto data = numbers(with_gaps);
  FitOptions const options{.epochs = 2, .batch = 3, .micro_batch = 2};
  constexpr double rate = 1e-3, nudge = 1e-4;
  // [use]
  Trainer trainer(network(together()), Sgd{.rate = rate}, loss);
  trainer.fit(data, options);
  // [end]
  Trainer serial(network(alone()), Sgd{.rate = rate}, loss);
  serial.fit(data, options);
  double const value = trainer.evaluate(data, 2);
  CHECK(value == doctest::Approx(serial.evaluate(data, 5)).epsilon(1e-12));

  auto* const p = trainer.model().parameters()[0];
  auto const before = p->download();
  auto const at = [&](double by) {
    auto moved = before;
    moved[40] += by;
    p->set(moved);
    return trainer.evaluate(data, 3);
  };
  double const slope = (8 * (at(nudge) - at(-nudge)) - (at(2 * nudge) - at(-2 * nudge))) / (12 * nudge);
  p->set(before);
  CHECK(trainer.step(data, {0, 1, 2, 3, 4}, FitOptions{.micro_batch = 2}) == doctest::Approx(value).epsilon(1e-12));
  CHECK((before[40] - p->download()[40]) / rate == doctest::Approx(slope).epsilon(1e-6));
}

}  // namespace

TEST_CASE("custom loss: a count that depends on the data") { check(KnownSquaredError{}, true); }
TEST_CASE("custom loss: numbers of other ranks") { check(RelativeError{}, false); }

TEST_CASE("custom loss: a target must lie where the prediction does") {
  Trainer trainer(network(together()), Sgd{}, Elsewhere{});
  io::MemorySource<double> data(sample_shape, std::vector<double>(72, 0.0), {1, 1, 1, 1, 2}, {0.0, 0.0});
  std::string message;
  try {
    trainer.fit(data, FitOptions{});
  } catch (Error const& error) {
    message = error.what();
  }
  CHECK(message ==
        "Trainer: the loss asks for targets of shape (1, 1, 1, 1, 2), which must have the samples and the space of the "
        "network's output (1, 4, 3, 3, 2)");
}
