// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tessera/io/batch.hpp"
#include "tessera/io/source.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/batch_norm.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/flatten.hpp"
#include "tessera/layer/redistribute.hpp"
#include "tessera/model/model.hpp"
#include "tessera/model/when.hpp"
#include "tessera/train/predict.hpp"
#include "tessera/train/trainer.hpp"

namespace {

using namespace tessera;
using namespace tessera::axes;
using Spatial = Distribution<Sample, Depth>;
using Whole = Distribution<Sample>;
using Net = Model<double>;
using Data = io::MemorySource<double>;

constexpr Shape input_shape{1, 5, 3, 4, 2}, target_shape{1, 1, 1, 1, 2};

Communicator<Mpi> world() { return Communicator<Mpi>::borrow(MPI_COMM_WORLD); }
RankGrid<Spatial> alone() { return {Communicator<Mpi>::borrow(MPI_COMM_SELF), Counts{}}; }
/// All ranks, along samples and depth.
RankGrid<Spatial> together() {
  int const ranks = world().size();
  return {world(), Counts{.sample = ranks / (ranks % 2 == 0 ? 2 : 1), .depth = ranks % 2 == 0 ? 2 : 1}};
}

Net network(RankGrid<Spatial> const& ranks, bool with_norm, double drop) {
  return sequential<double>(ranks, SampleShape<3>{.channels = 2, .space = {5, 3, 4}},                           //
                            conv3d<3>(3, same), when(with_norm, batch_norm()), leaky_relu(0.1), dropout(drop),  //
                            redistribute<Whole>(), flatten(), dense(6), leaky_relu(0.1), dropout(drop), dense(2));
}

Data numbers(std::int64_t samples) {
  std::vector<double> x, y;
  RandomStream const inputs = random_stream(3, "inputs"), targets = random_stream(3, "targets");
  for (std::int64_t i = 0; i < samples * input_shape.volume(); ++i) x.push_back(inputs.uniform(i, 1.0));
  for (std::int64_t i = 0; i < samples * target_shape.volume(); ++i) y.push_back(targets.uniform(i, 1.0));
  return {input_shape, x, target_shape, y};
}

std::vector<std::int64_t> first_samples(std::int64_t count) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), std::int64_t{0});
  return samples;
}

/// All parameters one after the other.
std::vector<double> values_of(Net const& net) {
  std::vector<double> all;
  for (auto const* p : net.parameters()) {
    auto const values = p->download();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

std::vector<double> buffers_of(Net const& net) {
  std::vector<double> all;
  net.for_each_buffer(
      [&](std::string const&, std::vector<double>& values) { all.insert(all.end(), values.begin(), values.end()); });
  return all;
}

double relative_difference(std::vector<double> const& a, std::vector<double> const& b) {
  REQUIRE(a.size() == b.size());
  double most = 0.0, size = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
    size = std::max(size, std::abs(b[i]));
  }
  return most / size;
}

double difference(double a, double b) { return std::abs(a - b) / std::abs(b); }

/// Remembers what it is asked for.
struct Recorded : Data {
  std::vector<std::int64_t> asked;
  explicit Recorded(Data const& data) : Data(data) {}
  void read_input(std::int64_t sample, Box const& box, double* cells) {
    asked.push_back(sample);
    Data::read_input(sample, box, cells);
  }
};

/// Cannot give one sample's target, which one rank alone asks for.
struct Torn : Data {
  explicit Torn(Data const& data) : Data(data) {}
  void read_target(std::int64_t sample, Box const& box, double* cells) {
    require(sample != 2, "Torn", "sample ", sample, " must be readable");
    Data::read_target(sample, box, cells);
  }
};

std::string message_of(auto action) {
  try {
    action();
  } catch (Error const& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("trainer: unequal micro-batches add up to the whole batch") {
  Data data = numbers(7);
  auto const step_with = [&](std::int64_t micro) {
    Trainer trainer{network(together(), false, 0.3), Sgd{.rate = 0.1}, MeanSquaredError{}};
    double loss = 0.0;
    for (int step = 0; step < 3; ++step)
      loss = trainer.step(data, first_samples(7), FitOptions{.micro_batch = micro, .seed = 4});
    auto values = values_of(trainer.model());
    values.push_back(loss);
    return values;
  };
  std::vector<double> const whole = step_with(0);
  for (std::int64_t const micro : {1, 2, 3, 5, 6, 7, 100}) {
    CAPTURE(micro);
    CHECK(relative_difference(step_with(micro), whole) <= 1e-12);
  }
}

TEST_CASE("trainer: every rank count takes the same way, incomplete last batches included") {
  auto const fit_on = [](RankGrid<Spatial> const& ranks) {
    Data data = numbers(7), validation = numbers(5);
    Trainer trainer{network(ranks, true, 0.3), Adam{.rate = 1e-2}, MeanSquaredError{}};
    std::vector<double> losses;
    FitOptions options{.epochs = 3, .batch = 3, .seed = 9};
    options.on_step = [&](StepReport const& r) {
      losses.push_back(r.loss);
      CHECK(r.step == static_cast<std::int64_t>(losses.size()));
      CHECK(r.samples_in_all == 21);
    };
    auto const epochs = trainer.fit(data, validation, options);
    for (EpochReport const& e : epochs) losses.insert(losses.end(), {e.train_loss, e.validation_loss});
    CHECK(trainer.steps() == 9);  // 3 + 3 + 1 samples, thrice
    REQUIRE(epochs.size() == 3);
    // The mean over samples, not over steps.
    CHECK(difference(epochs[0].train_loss, (3 * losses[0] + 3 * losses[1] + losses[2]) / 7) <= 1e-14);
    return losses;
  };
  std::vector<double> const here = fit_on(together()), serial = fit_on(alone());
  CHECK(relative_difference(here, serial) <= 1e-10);
  CHECK(here == fit_on(together()));  // a run repeats bit for bit
}

TEST_CASE("trainer: evaluation takes batches of any size and changes nothing") {
  Data data = numbers(7);
  Trainer trainer{network(together(), true, 0.3), Sgd{.rate = 0.1}, MeanSquaredError{}};
  trainer.step(data, first_samples(2), FitOptions{});
  std::vector<double> const values = values_of(trainer.model()), buffers = buffers_of(trainer.model());
  double const loss = trainer.evaluate(data, 7);
  for (std::int64_t const batch : {1, 2, 3, 5, 100}) CHECK(difference(trainer.evaluate(data, batch), loss) <= 1e-13);
  CHECK(values == values_of(trainer.model()));
  CHECK(buffers == buffers_of(trainer.model()));

  // predict makes the same forward pass: its outputs give the loss.
  std::vector<double> const predicted = predict(trainer.model(), data, 3);
  REQUIRE(predicted.size() == 14);
  CHECK(relative_difference(predict(trainer.model(), data, 7), predicted) <= 1e-13);
  double sum = 0.0, truth[2];
  for (std::int64_t i = 0; i < 7; ++i) {
    data.read_target(i, target_shape.box(), truth);
    for (std::size_t c = 0; c < 2; ++c) sum += std::pow(predicted[static_cast<std::size_t>(2 * i) + c] - truth[c], 2);
  }
  CHECK(difference(sum / 14, loss) <= 1e-13);
}

TEST_CASE("shuffled: a permutation that depends on seed and epoch alone") {
  auto const order = io::shuffled(100, 5, 2);
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted == first_samples(100));
  CHECK(order != sorted);
  CHECK(order == io::shuffled(100, 5, 2));
  CHECK(order != io::shuffled(100, 5, 3));
  CHECK(order != io::shuffled(100, 6, 2));
  CHECK(io::shuffled(0, 5, 2).empty());
  // Every place is taken by about every sample: the mean over many epochs is near the middle.
  double mean = 0.0;
  for (std::uint64_t epoch = 0; epoch < 2000; ++epoch)
    mean += static_cast<double>(io::shuffled(10, 1, epoch)[0]) / 2000;
  CHECK(mean == doctest::Approx(4.5).epsilon(0.07));  // five standard deviations
  // The order is the same on every rank, and is what fit asks its source for.
  std::int64_t hash = 0;
  for (std::int64_t const i : order) hash = hash * 31 % 1000003 + i;
  CHECK(world().all_reduce(hash, Reduce::min) == world().all_reduce(hash, Reduce::max));
  Recorded data(numbers(6));
  Trainer trainer{network(alone(), false, 0.0), Sgd{}, MeanSquaredError{}};
  trainer.fit(data, FitOptions{.epochs = 2, .batch = 6, .seed = 5});
  auto expected = io::shuffled(6, 5, 0);
  auto const second = io::shuffled(6, 5, 1);
  expected.insert(expected.end(), second.begin(), second.end());
  CHECK(data.asked == expected);
  data.asked.clear();
  trainer.fit(data, FitOptions{.epochs = 1, .batch = 6, .shuffle = false});
  CHECK(data.asked == first_samples(6));
}

TEST_CASE("trainer: stops on every rank when the loss is not finite") {
  for (double const bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    std::vector<double> x(static_cast<std::size_t>(4 * input_shape.volume()), 0.5), y(8, 1.0);
    x[7] = bad;  // which one rank reads
    Data data(input_shape, x, target_shape, y);
    Trainer trainer{network(together(), false, 0.0), Sgd{}, MeanSquaredError{}};
    auto const message = message_of([&] { trainer.fit(data, FitOptions{.batch = 4}); });
    CHECK(message.starts_with("Trainer: the loss must stay finite, but at step 1 it is "));
    CHECK(message.ends_with(
        "; lower the learning rate, clip gradients, or look for values in the input that are not finite"));
    CHECK(trainer.steps() == 0);
  }
}

TEST_CASE("trainer: what one rank cannot read is an error on all, which may be caught") {
  Torn data(numbers(4));
  Trainer trainer{network(together(), false, 0.0), Sgd{}, MeanSquaredError{}};
  CHECK(message_of([&] { trainer.fit(data, FitOptions{.batch = 4}); }) == "Torn: sample 2 must be readable");
  CHECK(message_of([&] { trainer.evaluate(data, 2); }) == "Torn: sample 2 must be readable");
  CHECK(std::isfinite(trainer.step(data, {0, 1, 3}, FitOptions{})));  // training can go on
}

TEST_CASE("trainer: a parameter that one rank changed is found") {
  Data data = numbers(4);
  Trainer trainer{network(together(), false, 0.0), Sgd{}, MeanSquaredError{}};
  trainer.fit(data, FitOptions{.batch = 4});
  trainer.check_replicas();
  if (world().rank() == world().size() - 1) {
    auto* const p = trainer.model().parameters()[2];
    auto values = p->download();
    values[3] = std::nextafter(values[3], 10.0);
    p->set(values);
  }
  auto const message = message_of([&] { trainer.check_replicas(); });
  if (world().size() == 1)
    CHECK(message.empty());
  else
    CHECK(message ==
          "Trainer: the ranks must hold equal copies of dense1.weight, but their checksums differ after step 1");
}

TEST_CASE("trainer: refreshed statistics are the plain mean over the batches") {
  Data data = numbers(7);
  auto const momentum_one = [&](std::vector<std::int64_t> const& samples) {  // statistics of one batch
    std::vector<double> x;
    for (std::int64_t i : samples) {
      x.resize(x.size() + static_cast<std::size_t>(input_shape.volume()));
      data.read_input(i, input_shape.box(), x.data() + x.size() - input_shape.volume());
    }
    Data batch(input_shape, x, target_shape, std::vector<double>(2 * samples.size(), 0.0));
    Trainer trainer{network(alone(), true, 0.0), Sgd{.rate = 0.1}, MeanSquaredError{}};
    trainer.refresh_statistics(batch, batch.size());
    return buffers_of(trainer.model());
  };
  std::vector<double> mean(6, 0.0);
  for (auto const& batch : {std::vector<std::int64_t>{0, 1, 2}, {3, 4, 5}, {6}}) {
    auto const one = momentum_one(batch);
    REQUIRE(one.size() == mean.size());
    for (std::size_t i = 0; i < one.size(); ++i) mean[i] += one[i] / 3;
  }
  Trainer trainer{network(together(), true, 0.0), Sgd{.rate = 0.1}, MeanSquaredError{}};
  trainer.refresh_statistics(data, 3);
  CHECK(relative_difference(buffers_of(trainer.model()), mean) <= 1e-13);
  auto const once = buffers_of(trainer.model());
  trainer.refresh_statistics(data, 3);
  CHECK(relative_difference(buffers_of(trainer.model()), once) <= 1e-14);  // what was there before counts for nothing
}

TEST_CASE("trainer: wrong sources and options say so") {
  Data data = numbers(3), nothing(input_shape, {}, target_shape, {});
  Trainer trainer{network(together(), false, 0.0), Sgd{}, MeanSquaredError{}};
  CHECK(message_of([&] { trainer.fit(nothing, FitOptions{}); }) == "Trainer::fit: the source holds no samples");
  CHECK(message_of([&] { trainer.fit(data, FitOptions{.batch = 0}); }) ==
        "Trainer::fit: needs a batch of at least 1 sample, not 0");
  Data other(input_shape, std::vector<double>(120, 0.0), {1, 1, 1, 1, 3}, {0.0, 0.0, 0.0});
  CHECK(message_of([&] { trainer.fit(other, FitOptions{}); }) ==
        "Trainer: the network's output (1, 1, 1, 1, 2) must have the shape of the targets, (1, 1, 1, 1, 3)");
  Data larger({1, 5, 4, 3, 2}, std::vector<double>(120, 0.0), target_shape, {0.0, 0.0});
  std::string const shapes =
      ": the source's samples must have the shape of the network's input, (1, 5, 3, 4, 2), but theirs is (1, 5, 4, 3, "
      "2)";
  CHECK(message_of([&] { trainer.fit(larger, FitOptions{}); }) == "Trainer" + shapes);
  CHECK(message_of([&] { predict(trainer.model(), larger, 1); }) == "for_each_prediction" + shapes);
}
