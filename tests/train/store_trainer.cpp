// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Training from a sample store takes the same way as training from the source itself.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/layer_harness.hpp"
#include "tessera/comm/rank_grid.hpp"
#include "tessera/io/sample_store.hpp"
#include "tessera/io/source.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/batch_norm.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/flat_dense.hpp"
#include "tessera/model/model.hpp"
#include "tessera/train/cross_entropy.hpp"
#include "tessera/train/predict.hpp"
#include "tessera/train/trainer.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr Shape input_shape{1, 4, 4, 4, 2}, value_shape{1, 1, 1, 1, 2}, label_shape{1, 4, 4, 4, 1};

/// Samples in memory, as a file would hold them.
class Stored {
 public:
  Stored(std::int64_t samples, Shape const& target, int values, std::uint64_t seed)
      : samples_(samples),
        fields_{{input_shape, io::CellType::float64, io::CellOrder::channels_last, {{.scale = 0.5, .shift = 0.25}}},
                {target, io::CellType::float64}} {
    for (std::size_t i = 0; i < 2; ++i) {
      std::int64_t const count = samples * fields_[i].shape.volume();
      RandomStream const random = random_stream(seed, i == 0 ? "inputs" : "targets");
      for (std::int64_t k = 0; k < count; ++k)
        cells_[i].push_back(i == 1 && values > 0
                                ? static_cast<double>(random.word(k) % static_cast<std::uint32_t>(values))
                                : random.uniform(k, 1.0));
    }
  }
  std::int64_t size() const { return samples_; }
  io::StoredField const& field(io::Part part) const { return fields_[part == io::Part::input ? 0 : 1]; }
  void read_stored(io::Part part, std::int64_t sample, Box const& box, std::byte* cells) {
    Shape const& shape = field(part).shape;
    double const* const from = cells_[part == io::Part::input ? 0 : 1].data() + sample * shape.volume();
    io::copy_stored(field(part), reinterpret_cast<std::byte const*>(from), shape.box(), cells, box, box);
  }

 private:
  std::int64_t samples_;
  io::StoredField fields_[2];
  std::vector<double> cells_[2];
};
static_assert(io::StoredSource<Stored> && io::AnySource<io::SampleStore<Stored>, double>);

Model<double> network(RankGrid<AnySplit> const& ranks) {
  return sequential<double>(ranks, SampleShape<3>{.channels = 2, .space = {4, 4, 4}}, conv3d<3>(3, same), batch_norm(),
                            leaky_relu(0.1), dropout(0.1), dense(4, flattened), leaky_relu(0.1), dense(2));
}

struct Outcome {
  std::vector<double> losses, predictions;
  friend bool operator==(Outcome const&, Outcome const&) = default;
};

/// A store that counts the micro-batches which come otherwise than announced.
class Announced {
 public:
  Announced(RankGrid<AnySplit> const& ranks, Stored data) : store_(ranks, std::move(data)) {}
  std::int64_t size() const { return store_.size(); }
  io::StoredField const& field(io::Part part) const { return store_.field(part); }
  void expect(std::int64_t count, std::function<io::BatchRequest(std::int64_t)> const& next) {
    plan_.clear();
    for (std::int64_t k = 0; k < count; ++k) plan_.push_back(next(k));
    store_.expect(count, next);
  }
  void fetch(io::BatchRequest const& request) {
    bool const announced =
        !plan_.empty() && plan_.front().samples == request.samples && plan_.front().epoch == request.epoch;
    surprises += announced ? 0 : 1;
    if (announced) plan_.pop_front();
    ++fetches;
    store_.fetch(request);
  }
  std::byte const* cells(io::Part part, std::int64_t n) const { return store_.cells(part, n); }
  io::Symmetry symmetry(io::Part part, std::int64_t n) const { return store_.symmetry(part, n); }

  int fetches = 0, surprises = 0;

 private:
  io::SampleStore<Stored> store_;
  std::deque<io::BatchRequest> plan_;
};

template <class Data>
Outcome train(RankGrid<AnySplit> const& ranks, Data& data, Data& validation, FitOptions options) {
  Trainer trainer{network(ranks), Adam{.rate = 1e-2}, MeanSquaredError{}};
  Outcome outcome;
  options.on_step = [&](StepReport const& r) { outcome.losses.push_back(r.loss); };
  for (EpochReport const& r : trainer.fit(data, validation, options)) {
    outcome.losses.push_back(r.train_loss);
    outcome.losses.push_back(r.validation_loss);
  }
  trainer.refresh_statistics(data, 3);
  outcome.losses.push_back(trainer.evaluate(data, 2));
  outcome.predictions = predict(trainer.model(), data, 3);
  return outcome;
}

Counts cut(std::int64_t ranks) {
  return ranks % 2 == 0 ? Counts{.sample = ranks / 2, .height = 2} : Counts{.depth = ranks};
}

}  // namespace

TEST_CASE("micro-batches: all samples in order, in batches that are cut anew") {
  for (std::int64_t size : {1, 2, 7, 12, 13})
    for (std::int64_t batch : {1, 3, 4, 20})
      for (std::int64_t micro : {1, 2, 3, 4})
        for (std::int64_t first = 0; first <= size; first += batch) {
          if (micro > batch) continue;
          MicroBatches batches{{}, first, batch, micro};
          for (std::int64_t i = 0; i < size; ++i) batches.order.push_back(10 * i);
          std::int64_t k = 0;
          for (std::int64_t start = first; start < size; start += batch)
            for (std::int64_t from = start; from < smaller(start + batch, size); from += micro, ++k) {
              std::vector<std::int64_t> expected;
              for (std::int64_t i = from; i < smaller(smaller(from + micro, start + batch), size); ++i)
                expected.push_back(10 * i);
              CHECK(batches(k) == expected);
            }
          CHECK(batches.count() == k);
        }
}

TEST_CASE("training, evaluation and prediction from a store give the bits that the source gives") {
  RankGrid<AnySplit> const ranks(world_ranks(), cut(world_ranks().size()));
  Stored data(11, value_shape, 0, 1), validation(4, value_shape, 0, 2);
  for (std::int64_t micro : {0, 2}) {
    FitOptions const options{.epochs = 3, .batch = 4, .micro_batch = micro, .seed = 6};
    Outcome const direct = train(ranks, data, validation, options);
    for (int kind = 0; kind < 4; ++kind) {
      CAPTURE(kind);
      io::StoreOptions how;
      how.ahead = kind;
      how.preload = kind == 1;
      if (kind == 2) how.budget_bytes = 2 * 8 * input_shape.volume();
      if (kind == 3) how.budget_bytes = 0;
      io::SampleStore<Stored> store(ranks, data, how), other(ranks, validation, how);
      CHECK(train(ranks, store, other, options) == direct);
    }
  }
}

TEST_CASE("a store is told every micro-batch before it is asked for") {
  RankGrid<AnySplit> const ranks(world_ranks(), cut(world_ranks().size()));
  for (std::int64_t micro : {0, 2}) {
    Announced data(ranks, Stored(11, value_shape, 0, 1)), validation(ranks, Stored(4, value_shape, 0, 2));
    FitOptions const options{.epochs = 3, .batch = 4, .micro_batch = micro, .seed = 6};
    train(ranks, data, validation, options);
    train(ranks, data, data, options);
    CHECK(data.fetches > 40);
    CHECK(validation.fetches >= 3);
    CHECK(data.surprises == 0);
    CHECK(validation.surprises == 0);
  }
}

TEST_CASE("augmented training does not depend on the decomposition") {
  Stored data(6, value_shape, 0, 1), validation(2, value_shape, 0, 2);
  FitOptions const options{.epochs = 3, .batch = 3, .seed = 6};
  io::StoreOptions how;
  how.augmentation = {.flips = true, .rotations = true, .seed = 8};
  auto const run = [&](RankGrid<AnySplit> const& ranks, io::StoreOptions const& with) {
    io::SampleStore<Stored> store(ranks, data, with), other(ranks, validation, with);
    return train(ranks, store, other, options);
  };
  Outcome const alone = run(self_ranks(), how),
                all = run(RankGrid<AnySplit>(world_ranks(), cut(world_ranks().size())), how),
                plain = run(self_ranks(), {});
  REQUIRE(alone.losses.size() == all.losses.size());
  for (std::size_t i = 0; i < alone.losses.size(); ++i)
    CHECK(all.losses[i] == doctest::Approx(alone.losses[i]).epsilon(1e-9));
  CHECK(alone.losses != plain.losses);
}

TEST_CASE("labels of cells are turned with their volume") {
  // Labels that the input's sign decides: a network of one cell learns them, but only if both are turned alike.
  RankGrid<AnySplit> const ranks(world_ranks(), cut(world_ranks().size()));
  class Signs : public Stored {
   public:
    Signs() : Stored(8, label_shape, 0, 3) {}
    void read_stored(io::Part part, std::int64_t sample, Box const& box, std::byte* cells) {
      Box both = box;
      both.axis[4] = part == io::Part::input ? box.axis[4] : Interval{0, 2};
      std::vector<double> x(static_cast<std::size_t>(both.volume()));
      Stored::read_stored(io::Part::input, sample, both, reinterpret_cast<std::byte*>(x.data()));
      for (std::size_t i = 0; i < x.size(); ++i) {
        double const label = x[i] > 0 ? 1.0 : 0.0;
        if (part == io::Part::input)
          std::memcpy(cells + 8 * i, &x[i], 8);
        else if (i % 2 == 0)
          std::memcpy(cells + 4 * i, &label, 8);
      }
    }
  };
  auto const last_loss = [&](bool turned) {
    io::StoreOptions how;
    how.augmentation = {.flips = turned, .rotations = turned, .seed = 8};
    io::SampleStore<Signs> store(ranks, Signs(), how);
    auto net = sequential<double>(ranks, SampleShape<3>{.channels = 2, .space = {4, 4, 4}}, conv3d<1>(2));
    Trainer trainer{net, Adam{.rate = 0.3}, CrossEntropy{}};
    return trainer.fit(store, FitOptions{.epochs = 12, .batch = 2, .seed = 6}).back().train_loss;
  };
  CHECK(last_loss(false) < 0.25);
  CHECK(last_loss(true) < 0.25);
}
