// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Training with losses whose count depends on the data, cut in space, in samples and in channels.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "support/layer_harness.hpp"
#include "tessera/io/source.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/redistribute.hpp"
#include "tessera/model/model.hpp"
#include "tessera/train/cross_entropy.hpp"
#include "tessera/train/dice.hpp"
#include "tessera/train/trainer.hpp"

namespace {

using namespace tessera;
using namespace tessera::axes;
using Spatial = Distribution<Sample, Depth, Width>;
using Net = Model<double>;
using tessera::test::for_each_cell;
using tessera::test::Host;
using Data = io::MemorySource<double>;

constexpr std::int64_t classes = 5, sample_count = 7;
constexpr Shape input_shape{1, 5, 3, 4, 2}, label_shape{1, 5, 3, 4, 1};

Communicator<Mpi> world() { return Communicator<Mpi>::borrow(MPI_COMM_WORLD); }
RankGrid<Spatial> alone() { return {Communicator<Mpi>::borrow(MPI_COMM_SELF), Counts{}}; }
RankGrid<Spatial> together() {
  int const ranks = world().size();
  return {world(), Counts{.depth = ranks % 2 == 0 ? 2 : 1, .width = ranks / (ranks % 2 == 0 ? 2 : 1)}};
}

/// The output of the last is cut in channels.
enum class Cut { space, samples, channels };
constexpr Cut cuts[] = {Cut::space, Cut::samples, Cut::channels};

Net network(RankGrid<Spatial> const& ranks, Cut cut) {
  SampleShape<3> const sample{.channels = 2, .space = {5, 3, 4}};
  auto const layers = sequence(conv3d<3>(3, same), leaky_relu(0.1), conv3d<1>(classes));
  if (cut == Cut::samples) return sequential<double>(ranks, sample, layers, redistribute<Distribution<Sample>>());
  if (cut == Cut::channels) return sequential<double>(ranks, sample, layers, redistribute<Distribution<Channel>>());
  return sequential<double>(ranks, sample, layers);
}

/// Two thirds of the labels ignored; all of sample 2; the classes are far from equally many.
Data labelled() {
  std::vector<double> x, y;
  RandomStream const inputs = random_stream(3, "inputs"), labels = random_stream(3, "labels");
  for (std::int64_t i = 0; i < sample_count * input_shape.volume(); ++i) x.push_back(inputs.uniform(i, 1.0));
  for (std::int64_t i = 0; i < sample_count * label_shape.volume(); ++i) {
    std::int64_t const sample = i / label_shape.volume();
    std::uint32_t const word = labels.word(i);
    bool const ignored = word % 3 > 0 || sample == 2;
    y.push_back(ignored ? -100.0 : static_cast<double>(std::min<std::int64_t>(word / 3 % 9, classes - 1)));
  }
  return {input_shape, x, label_shape, y};
}

std::vector<std::int64_t> all_samples() {
  std::vector<std::int64_t> list(sample_count);
  std::iota(list.begin(), list.end(), std::int64_t{0});
  return list;
}

std::vector<double> values_of(Net const& net) {
  std::vector<double> all;
  for (auto const* p : net.parameters()) {
    auto const values = p->download();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}
std::vector<double> gradients_of(Net const& net) {
  std::vector<double> all;
  for (auto* p : net.parameters()) {
    auto const values = p->download_gradient();
    all.insert(all.end(), values.begin(), values.end());
  }
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

std::string message_of(auto action) {
  try {
    action();
  } catch (Error const& error) {
    return error.what();
  }
  return "";
}

CrossEntropy weighted(Reduction reduction) {
  return {.class_weights = {0.5, 2, 0, 1, 3}, .label_smoothing = 0.1, .reduction = reduction};
}

/// use(loss) for losses that a batch may be cut for into micro-batches.
template <class Use>
void for_each_loss(Use use) {
  use(weighted(Reduction::batch));
  use(weighted(Reduction::samples));
  use(Dice{.exponent = 2});  // the formulas hold for any numbers
  use(Dice{.epsilon = 0.0});
  use(GeneralisedDice{});
}

}  // namespace

TEST_CASE("unequal micro-batches give the gradients of the whole batch, with ignored labels and class weights") {
  Data data = labelled();
  for (Cut const cut : cuts)
    for_each_loss([&](auto const& loss) {
      // After two steps: gradients and values, and the losses.
      auto const train = [&](RankGrid<Spatial> const& ranks, std::int64_t micro) {
        Trainer trainer{network(ranks, cut), Sgd{.rate = 0.05}, loss};
        std::vector<double> all;
        for (int step = 0; step < 2; ++step)
          all.push_back(trainer.step(data, all_samples(), FitOptions{.micro_batch = micro, .seed = 4}));
        for (auto const& numbers : {gradients_of(trainer.model()), values_of(trainer.model())})
          all.insert(all.end(), numbers.begin(), numbers.end());
        return all;
      };
      auto const whole = train(together(), 0);
      CHECK(relative_difference(train(alone(), 0), whole) <= 1e-11);
      for (std::int64_t const micro : {1, 2, 3, 5}) {
        CAPTURE(micro);
        CHECK(relative_difference(train(together(), micro), whole) <= 1e-11);
      }
    });
}

TEST_CASE("case 16: a step moves parameters by the derivative of the loss, whatever the ranks and micro-batches") {
  Data data = labelled();
  for (Cut const cut : cuts)
    for_each_loss([&](auto const& loss) {
      constexpr double rate = 1e-3, nudge = 1e-4;
      Trainer trainer{network(together(), cut), Sgd{.rate = rate}, loss};
      trainer.evaluate(data, sample_count);  // allocates
      auto* const p = trainer.model().parameters()[0];
      auto const before = p->download();
      std::size_t const at = 17;
      auto const loss_at = [&](double by) {
        auto moved = before;
        moved[at] += by;
        p->set(moved);
        return trainer.evaluate(data, 3);
      };
      double const slope =
          (8 * (loss_at(nudge) - loss_at(-nudge)) - (loss_at(2 * nudge) - loss_at(-2 * nudge))) / (12 * nudge);
      double const value = loss_at(0.0);
      CHECK(trainer.step(data, all_samples(), FitOptions{.micro_batch = 3}) == doctest::Approx(value).epsilon(1e-12));
      CHECK((before[at] - p->download()[at]) / rate == doctest::Approx(slope).epsilon(1e-5));
    });
}

TEST_CASE("gradients are clipped by the norm of the loss's gradient, not of the sum's") {
  Data data = labelled();
  for (double const most : {1e-3, 1e3}) {  // below and above any norm here
    Trainer trainer{network(together(), Cut::space), Sgd{.rate = 1.0}, weighted(Reduction::batch)};
    trainer.evaluate(data, sample_count);
    auto const before = values_of(trainer.model());
    trainer.step(data, all_samples(), FitOptions{.clip_norm = most});
    auto const after = values_of(trainer.model());
    Trainer free{network(together(), Cut::space), Sgd{.rate = 1.0}, weighted(Reduction::batch)};
    free.step(data, all_samples(), FitOptions{});
    auto const unclipped = values_of(free.model());
    double moved = 0.0;
    for (std::size_t i = 0; i < before.size(); ++i) moved += std::pow(after[i] - before[i], 2);
    if (most < 1.0)
      CHECK(std::sqrt(moved) == doctest::Approx(most).epsilon(1e-10));
    else
      CHECK(after == unclipped);
  }
}

TEST_CASE("case 15: a batch without any label moves nothing") {
  Data data = labelled();
  for (Cut const cut : cuts)
    for (Reduction const reduction : {Reduction::batch, Reduction::samples}) {
      Trainer trainer{network(together(), cut), Sgd{.rate = 0.1}, weighted(reduction)};
      trainer.step(data, {0, 1}, FitOptions{});
      auto const values = values_of(trainer.model());
      CHECK(trainer.step(data, {2, 2, 2}, FitOptions{.micro_batch = 2}) == 0.0);  // all of sample 2 is ignored
      CHECK(values_of(trainer.model()) == values);
      // A sample that counts for nothing changes nothing.
      double const without = trainer.evaluate(data, 7);
      CHECK(std::isfinite(without));
      CHECK(trainer.evaluate(data, 1) == doctest::Approx(without).epsilon(1e-13));
      CHECK(trainer.evaluate(data, 3) == doctest::Approx(without).epsilon(1e-13));
    }
}

TEST_CASE("dice of a whole batch does not go in micro-batches, and is averaged over evaluations") {
  Data data = labelled();
  Dice const loss{.reduction = Reduction::batch};
  Trainer trainer{network(together(), Cut::space), Sgd{.rate = 0.0}, loss};
  CHECK(message_of([&] {
          trainer.step(data, {0, 1, 3}, FitOptions{.micro_batch = 2});
        }) ==
        "Dice: Reduction::batch needs the whole batch of 3 samples at once, not a micro-batch of 2; leave micro_batch "
        "out, or take Reduction::samples");
  double const first = trainer.step(data, {0, 1, 2}, FitOptions{}),
               second = trainer.step(data, {3, 4, 5}, FitOptions{}), last = trainer.step(data, {6}, FitOptions{});
  CHECK(trainer.evaluate(data, 3) == doctest::Approx((3 * first + 3 * second + last) / 7).epsilon(1e-12));
  Trainer generalised{network(together(), Cut::space), Sgd{}, GeneralisedDice{.reduction = Reduction::batch}};
  CHECK(message_of([&] {
          generalised.step(data, {0, 1, 3}, FitOptions{.micro_batch = 2});
        }).starts_with("GeneralisedDice: Reduction::batch needs the whole batch of 3 samples"));
}

TEST_CASE("wrong targets are errors on every rank, and training can go on") {
  Data data = labelled();
  for (Cut const cut : cuts) {
    Trainer trainer{network(together(), cut), Sgd{.rate = 0.1}, CrossEntropy{}};
    Data const plain = labelled();
    struct Wrong : Data {
      explicit Wrong(Data const& d) : Data(d) {}
      void read_target(std::int64_t sample, Box const& box, double* cells) const {
        Data::read_target(sample, box, cells);
        Box const at{{{box.axis[0].begin, box.axis[0].end}, {4, 5}, {1, 2}, {3, 4}, {0, 1}}};
        if (sample != 3 || intersect(at, box).empty()) return;
        dense_tile(cells, box)(box.axis[0].begin, 4, 1, 3, 0) = 5.0;
      }
    } wrong(plain);
    std::string const message =
        "CrossEntropy: a label must be a whole number from 0 to 4, one for each channel of the prediction, or the "
        "ignore_index -100, but at (3, 4, 1, 3, 0) of the batch the target is 5; check the source, or the network's "
        "number of channels";
    for (std::int64_t const micro : {0, 2})
      CHECK(message_of([&] { trainer.step(wrong, all_samples(), FitOptions{.micro_batch = micro}); }) == message);
    CHECK(message_of([&] { trainer.evaluate(wrong, sample_count); }) == message);
    CHECK(trainer.steps() == 0);
    CHECK(std::isfinite(trainer.step(data, all_samples(), FitOptions{})));
    Data other(input_shape, std::vector<double>(120, 0.0), input_shape.with_channels(classes),
               std::vector<double>(300, 0.0));
    CHECK(message_of([&] { trainer.fit(other, FitOptions{}); }) ==
          "Trainer: for the network's output (1, 5, 3, 4, 5) the loss needs targets of shape (1, 5, 3, 4, 1), but the "
          "source has (1, 5, 3, 4, 5)");
  }
}

TEST_CASE("after a loss that is not finite nothing is under way, and the next step is as the first") {
  std::vector<double> x(static_cast<std::size_t>(sample_count * input_shape.volume()), 0.5),
      y(static_cast<std::size_t>(sample_count * label_shape.volume()), 1.0), infinite = x;
  infinite[3] = std::numeric_limits<double>::infinity();
  Data good(input_shape, x, label_shape, y), bad(input_shape, infinite, label_shape, y);
  Trainer stopped{network(together(), Cut::space), Sgd{.rate = 0.1}, CrossEntropy{}},
      straight{network(together(), Cut::space), Sgd{.rate = 0.1}, CrossEntropy{}};
  CHECK_THROWS_AS(stopped.step(bad, all_samples(), FitOptions{}), Error);
  CHECK(stopped.step(good, all_samples(), FitOptions{}) == straight.step(good, all_samples(), FitOptions{}));
  CHECK(values_of(stopped.model()) == values_of(straight.model()));
  CHECK(message_of([&] { straight.evaluate(good, 0); }) == "Trainer: needs a batch of at least 1 sample, not 0");
}

TEST_CASE("a loss may ask for fewer target channels than the network makes") {
  /// Mean of the squared difference of the first channel and a target of one.
  struct FirstChannel {
    LossTarget target(Shape const& prediction) const { return {prediction.with_channels(1)}; }
    LossPart operator()(LossPass<double, Host> const& p) const {
      LossPart part;
      Box own = p.prediction.owned();
      if (p.error != nullptr) fill(Host(), p.error->tile(), own, 0.0);
      own[AxisId::channel] = intersect(own[AxisId::channel], Interval{0, 1});
      for_each_cell(own, [&](auto n, auto d, auto h, auto w, auto c) {
        double const difference = p.prediction(n, d, h, w, c) - p.target(n, d, h, w, c);
        part += {difference * difference, 1.0};
        if (p.error != nullptr) (*p.error)(n, d, h, w, c) = 2.0 * difference / p.divisor;
      });
      return part;
    }
  };
  Data data = labelled();
  std::vector<double> losses;
  for (Cut const cut : {Cut::space, Cut::samples}) {
    Trainer trainer{network(together(), cut), Sgd{.rate = 0.01}, FirstChannel{}};
    losses.push_back(trainer.step(data, {0, 1, 3}, FitOptions{}));
  }
  CHECK(losses[0] == doctest::Approx(losses[1]).epsilon(1e-12));
}

TEST_CASE("a network learns to tell classes apart under every cut, the same on all ranks") {
  // The class is which of two inputs is larger, or 2 where they are close.
  std::vector<double> x, y;
  RandomStream const inputs = random_stream(5, "inputs");
  for (std::int64_t i = 0; i < sample_count * input_shape.volume(); ++i) x.push_back(inputs.uniform(i, 1.0));
  for (std::size_t i = 0; i < x.size(); i += 2)
    y.push_back(std::abs(x[i] - x[i + 1]) < 0.2 ? 2.0 : x[i] > x[i + 1] ? 0.0 : 1.0);
  Data data(input_shape, x, label_shape, y);
  std::vector<double> last;
  for (Cut const cut : cuts) {
    Trainer trainer{network(together(), cut), Adam{.rate = 2e-2}, CrossEntropy{}};
    auto const epochs = trainer.fit(data, data, FitOptions{.epochs = 40, .batch = 4, .micro_batch = 3});
    CHECK(epochs.front().train_loss > 0.8);
    CHECK(epochs.back().validation_loss < 0.45);
    last.push_back(epochs.back().validation_loss);
  }
  CHECK(relative_difference(last, std::vector<double>(last.size(), last[0])) <= 1e-7);
}
