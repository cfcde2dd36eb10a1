// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/io/sample_store.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "tessera/comm/rank_grid.hpp"
#include "tessera/io/batch.hpp"

using namespace tessera;
using namespace tessera::test;
using io::Augmentation;
using io::BatchRequest;
using io::Part;
using io::StoredField;
using io::Symmetry;

namespace {

/// Every cell says which it is.
std::int32_t cell_of(Part part, std::int64_t sample, StoredField const& field, std::array<std::int64_t, 4> const& at) {
  Shape const& s = field.shape;
  std::int64_t const index = (((sample * s.depth + at[0]) * s.height + at[1]) * s.width + at[2]) * s.channel + at[3];
  return static_cast<std::int32_t>(2 * index + (part == Part::input ? 0 : 1));
}

/// Cells are made up when they are read.
class CountingSource {
 public:
  CountingSource(std::int64_t samples, StoredField input, StoredField target)
      : samples_(samples), fields_{std::move(input), std::move(target)} {}

  std::int64_t size() const { return samples_; }
  StoredField const& field(Part part) const { return fields_[part == Part::input ? 0 : 1]; }

  void read_stored(Part part, std::int64_t sample, Box const& box, std::byte* cells) {
    while (gate != nullptr && !*gate) std::this_thread::yield();
    if (sample == broken) throw Error("CountingSource: sample " + std::to_string(sample) + " cannot be read");
    StoredField const& f = field(part);
    auto const axes = io::stored_axes(f.order);
    for (std::int64_t i = 0; i < box.axis[1].size() * box.axis[2].size() * box.axis[3].size() * box.axis[4].size();
         ++i) {
      std::array<std::int64_t, 4> at{};
      std::int64_t rest = i;
      for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
        at[static_cast<std::size_t>(*axis - 1)] = box.axis[*axis].begin + rest % box.axis[*axis].size();
        rest /= box.axis[*axis].size();
      }
      std::int32_t const value = cell_of(part, sample, f, at);
      if (f.type == io::CellType::int32) {
        std::memcpy(cells + 4 * i, &value, 4);
      } else {
        auto const wide = static_cast<double>(value);
        std::memcpy(cells + 8 * i, &wide, 8);
      }
      bytes_read += size_of(f.type);
    }
  }

  std::int64_t broken = -1;
  std::atomic<bool> const* gate = nullptr;  ///< reads wait until it opens
  std::int64_t bytes_read = 0;

 private:
  std::int64_t samples_;
  StoredField fields_[2];
};
static_assert(io::StoredSource<CountingSource> && io::BatchSource<io::SampleStore<CountingSource>>);

using Store = io::SampleStore<CountingSource>;

/// Where a cell comes from, from what a symmetry says.
std::array<std::int64_t, 4> origin(Symmetry const& symmetry, Shape const& shape,
                                   std::array<std::int64_t, 4> const& at) {
  std::int64_t const extent[] = {shape.depth, shape.height, shape.width};
  std::array<std::int64_t, 4> from = at;
  for (std::size_t a = 0; a < 3; ++a) {
    auto const axis = static_cast<std::size_t>(symmetry.from[a]);
    from[axis] = symmetry.mirrored[a] ? extent[axis] - 1 - at[a] : at[a];
  }
  return from;
}

BatchRequest request_of(Partition const& input, Partition const& target, std::vector<std::int64_t> samples) {
  BatchRequest request;
  request.samples = std::move(samples);
  request.input = [input](std::int64_t rank) { return input.owned(rank); };
  request.target = [target](std::int64_t rank) { return target.owned(rank); };
  return request;
}

struct Wanted {
  Partition input, target;
  BatchRequest request;
};

/// Whether a micro-batch arrives as the source has it.
void expect_batch(Store& store, Ranks const& ranks, Wanted const& wanted, Augmentation const& augmentation) {
  BatchRequest const& request = wanted.request;
  store.fetch(request);
  io::BatchReader<double, Host> reader;
  together([&] {
    for (Part const part : {Part::input, Part::target}) {
      StoredField const& field = store.field(part);
      Shard<double, Host> const shard(part == Part::input ? wanted.input : wanted.target, ranks.rank());
      reader.take(store, part, shard, shard.owned());
      bool const turns = part == Part::input || field.shape.depth * field.shape.height * field.shape.width > 1;
      bool good = true;
      for_each_cell(shard.owned(), [&](auto n, auto d, auto h, auto w, auto c) {
        std::int64_t const sample = request.samples[static_cast<std::size_t>(n)];
        Symmetry const symmetry =
            request.epoch && turns ? augmentation.draw(*request.epoch, sample, store.input_shape()) : Symmetry{};
        std::int32_t const value = cell_of(part, sample, field, origin(symmetry, field.shape, {d, h, w, c}));
        good = good && shard(n, d, h, w, c) == static_cast<double>(value);
      });
      expect(good, tessera::detail::text(part == Part::input ? "inputs" : "targets", " of ", text(wanted.input)));
    }
  });
}

struct Case {
  StoredField input, target;
  std::int64_t samples = 1, batch = 1;
  Counts home;
  io::StoreOptions options;
  std::uint64_t seed = 0;
  bool keeps_all = true;
};

Case draw_case(std::int64_t ranks, std::int64_t space) {
  Case c;
  c.home = draw_counts(ranks, space, ChannelCuts::yes);
  Shape shape = draw_shape(c.home, space).with_samples(1);
  if (draw(0, 1, "a cube") == 1)
    for (std::int64_t* extent : {&shape.depth, &shape.height, &shape.width})
      if (*extent > 1) *extent = smaller(larger(shape.width, 2), 7);
  while (shape.volume() > 400 && shape.channel > 1) --shape.channel;
  auto const order = [] {
    return draw(0, 1, "channels first") == 1 ? io::CellOrder::channels_first : io::CellOrder::channels_last;
  };
  auto const type = [] { return draw(0, 1, "doubles") == 1 ? io::CellType::float64 : io::CellType::int32; };
  c.input = {shape, type(), order()};
  Shape const values{1, 1, 1, 1, draw(1, 5, "targets")};
  c.target = {draw(0, 1, "labels of cells") == 1 ? shape.with_channels(1) : values, type(), order()};
  c.samples = draw(1, 9, "samples");
  c.batch = draw(1, 5, "batch");
  c.options.preload = draw_one_in(4, "preload");
  c.options.ahead = static_cast<int>(draw(0, 3, "ahead"));
  c.options.augmentation = {draw(0, 1, "flips") == 1, draw(0, 1, "rotations") == 1, 5};
  std::int64_t const kept = draw(0, 3, "kept (0, 1: all, 2: some, 3: nothing)");
  c.keeps_all = kept < 2;
  if (kept == 2)
    c.options.budget_bytes = (c.input.bytes(c.input.shape.box()) + c.target.bytes(c.target.shape.box())) *
                             draw(1, c.samples, "samples in the budget") / ranks;
  if (kept == 3) c.options.budget_bytes = 0;
  if (draw_one_in(3, "owners by the user"))
    c.options.owner = [blocks = c.home.sample](std::int64_t sample) { return (7 * sample + 3) % blocks; };
  c.seed = static_cast<std::uint64_t>(draw(0, 1'000'000, "seed"));
  return c;
}

}  // namespace

TEST_CASE("cases 24, 25: five epochs of a store give what direct reads give, under changing decompositions") {
  auto const world = world_ranks();
  Coverage coverage("sample store", world.size());
  distributed_property(
      "a store equals direct reads",
      [&] {
        std::int64_t const space = draw(1, 3, "spatial axes");
        Case const c = draw_case(world.size(), space);
        std::vector<Counts> counts;
        for (int epoch = 0; epoch < 5; ++epoch)
          counts.push_back(epoch > 0 && draw(0, 1, "as before") == 1
                               ? counts.back()
                               : draw_counts(world.size(), space, ChannelCuts::yes));
        bool const expects = draw(0, 3, "the order is announced (1-3)") > 0, surprise = draw_one_in(3, "a surprise");
        RankGrid<AnySplit> const home(world, c.home);
        Store store(home, CountingSource(c.samples, c.input, c.target), c.options);
        for (std::size_t epoch = 0; epoch < 5; ++epoch) {
          RankGrid<AnySplit> const ranks(world, counts[epoch]);
          auto const order = io::shuffled(c.samples, c.seed, epoch);
          std::vector<Wanted> plan;
          for (std::int64_t first = 0; first < c.samples; first += c.batch) {
            std::int64_t const n = smaller(c.batch, c.samples - first);
            Partition const input(ranks.grid(), c.input.shape.with_samples(n)),
                target = input.scaled_to(c.target.shape.with_samples(n));
            plan.push_back(
                {input, target, request_of(input, target, {order.begin() + first, order.begin() + first + n})});
            if (epoch < 4) plan.back().request.epoch = epoch;  // the last is an evaluation
          }
          if (expects)
            store.expect(static_cast<std::int64_t>(plan.size()),
                         [&](std::int64_t k) { return plan[static_cast<std::size_t>(k)].request; });
          for (std::size_t k = 0; k < plan.size(); ++k)
            expect_batch(store, ranks, surprise && epoch == 2 && k == 1 ? plan.back() : plan[k],
                         c.options.augmentation);
        }
        std::int64_t const read = home.world().all_reduce(store.source().bytes_read),
                           all =
                               c.samples * (c.input.bytes(c.input.shape.box()) + c.target.bytes(c.target.shape.box())),
                           kept = home.world().all_reduce(store.kept_bytes());
        coverage.begin_case();
        coverage.count("all kept", c.keeps_all);
        coverage.count("some kept", store.kept_samples() > 0 && store.kept_samples() < c.samples);
        coverage.count("none kept", store.kept_samples() == 0);
        coverage.count("augmented", c.options.augmentation.flips || c.options.augmentation.rotations);
        coverage.count("home is split", split_axes(Partition(home.grid(), c.input.shape.with_samples(c.samples))) > 0,
                       world.size() > 1);
        together([&] {
          std::string const numbers =
              tessera::detail::text(read, " bytes read of ", all, ", ", kept, " kept, ", store.report());
          if (c.keeps_all) {
            expect(read == all && kept == all && store.kept_samples() == c.samples && store.read_again() == 0, numbers);
          } else {
            expect(store.kept_bytes() <= c.options.budget_bytes, "the budget: " + numbers);
          }
        });
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}

TEST_CASE("a read that fails on one rank fails on all, at its own micro-batch, and the store can be used again") {
  auto const world = world_ranks();
  RankGrid<AnySplit> const ranks(world, Counts{.width = world.size()});
  StoredField const input{{1, 1, 1, 16, 2}, io::CellType::int32}, target{{1, 1, 1, 1, 3}, io::CellType::float64};
  for (int ahead : {0, 2, 5})
    for (std::int64_t budget : {std::int64_t{0}, std::int64_t{1} << 20}) {
      CAPTURE(ahead);
      CAPTURE(budget);
      io::StoreOptions options;
      options.ahead = ahead;
      options.budget_bytes = budget;
      Store store(ranks, CountingSource(6, input, target), options);
      if (ranks.rank() == ranks.size() - 1) store.source().broken = 3;
      std::vector<Wanted> plan;
      for (std::int64_t k = 0; k < 6; ++k) {
        Partition const in(ranks.grid(), input.shape), out = in.scaled_to(target.shape);
        plan.push_back({in, out, request_of(in, out, {k})});
      }
      auto const next = [&](std::int64_t k) { return plan[static_cast<std::size_t>(k)].request; };
      store.expect(6, next);
      for (std::size_t k = 0; k < 3; ++k) expect_batch(store, ranks, plan[k], {});
      CHECK_THROWS_WITH_AS(store.fetch(plan[3].request), doctest::Contains("CountingSource: sample 3 cannot be read"),
                           Error);
      store.source().broken = -1;
      store.expect(6, next);
      for (Wanted const& wanted : plan) expect_batch(store, ranks, wanted, {});
      CHECK(store.kept_samples() == (budget == 0 ? 0 : 6));
    }
}

TEST_CASE("as many micro-batches are read ahead as asked for, and no more") {
  auto const ranks = self_ranks();
  StoredField const input{{1, 1, 1, 8, 1}, io::CellType::int32}, target{{1, 1, 1, 1, 1}, io::CellType::int32};
  Partition const in(ranks.grid(), input.shape.with_samples(2)), out = in.scaled_to(target.shape.with_samples(2));
  std::int64_t const bytes = 2 * (8 + 1) * 4;
  for (int ahead = 0; ahead < 4; ++ahead)
    for (std::int64_t budget : {std::int64_t{0}, std::int64_t{1} << 20}) {
      CAPTURE(ahead);
      CAPTURE(budget);
      Store store(ranks, CountingSource(12, input, target), {.budget_bytes = budget, .ahead = ahead});
      auto const next = [&](std::int64_t k) { return request_of(in, out, {2 * k, 2 * k + 1}); };
      store.expect(6, next);
      CHECK(store.source().bytes_read == ahead * bytes);
      for (std::int64_t k = 0; k < 6; ++k) {
        store.fetch(next(k));
        CHECK(store.source().bytes_read == smaller(k + 1 + ahead, 6) * bytes);
      }
    }
}

TEST_CASE("what a plan that is dropped would have read is not read, but for the read that is under way") {
  auto const ranks = self_ranks();
  StoredField const input{{1, 1, 1, 8, 1}, io::CellType::int32}, target{{1, 1, 1, 1, 1}, io::CellType::int32};
  Partition const in(ranks.grid(), input.shape), out = in.scaled_to(target.shape);
  Store store(ranks, CountingSource(6, input, target), {.budget_bytes = 0, .ahead = 4});
  std::atomic<bool> gate = false;
  store.source().gate = &gate;
  auto const next = [&](std::int64_t k) { return request_of(in, out, {k}); };
  store.expect(4, next);
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    gate = true;
  });
  store.fetch(next(5));
  opens.join();
  std::int64_t const read = store.source().bytes_read;
  CHECK(read >= 36);
  CHECK(read <= 36 + 32);
}

TEST_CASE("samples find room in other blocks than the one that needs them") {
  auto const world = world_ranks();
  RankGrid<AnySplit> const ranks(world, Counts{.sample = world.size()});
  StoredField const input{{1, 1, 1, 8, 1}, io::CellType::int32}, target{{1, 1, 1, 1, 1}, io::CellType::int32};
  std::int64_t const samples = 2 * world.size();
  Store store(ranks, CountingSource(samples, input, target), {.budget_bytes = 2 * 36});
  for (int epoch = 0; epoch < 2; ++epoch)
    for (std::int64_t k = 0; k < samples; ++k) {  // one at a time: the first block needs them all
      Partition const in(ranks.grid(), input.shape), out = in.scaled_to(target.shape);
      expect_batch(store, ranks, {in, out, request_of(in, out, {k})}, {});
    }
  CHECK(store.kept_samples() == samples);
  CHECK(store.kept_bytes() == 2 * 36);
  CHECK(store.read_again() == 0);
}

TEST_CASE("what a store is told wrongly") {
  auto const ranks = world_ranks();
  StoredField const input{{1, 1, 1, 8, 1}, io::CellType::int32}, target{{1, 1, 1, 1, 1}, io::CellType::int32};
  Partition const in(ranks.grid(), input.shape), out = in.scaled_to(target.shape);
  io::StoreOptions options;
  options.owner = [](std::int64_t) { return 99; };
  Store wrong(ranks, CountingSource(2, input, target), options);
  CHECK_THROWS_WITH_AS(wrong.fetch(request_of(in, out, {0})),
                       doctest::Contains("SampleStore: the owner of sample 0 must be one of the "), Error);
  Store store(ranks, CountingSource(2, input, target));
  CHECK_THROWS_WITH_AS(store.fetch(request_of(in, out, {2})),
                       doctest::Contains("SampleStore: there are 2 samples, but sample 2 is wanted"), Error);
  options = {};
  options.budget_bytes = -1;
  CHECK_THROWS_WITH_AS(Store(ranks, CountingSource(2, input, target), options),
                       doctest::Contains("SampleStore: the budget and the number of micro-batches"), Error);
}

TEST_CASE("what a store cannot do is refused before anything is read") {
  auto const ranks = world_ranks();
  StoredField const input{{1, 1, 1, 8, 3}, io::CellType::int32}, target{{1, 1, 1, 1, 1}, io::CellType::int32};
  auto const refused = [&](StoredField const& in, StoredField const& out, io::StoreOptions const& options,
                           char const* message) {
    CHECK_THROWS_WITH_AS(Store(ranks, CountingSource(2, in, out), options), doctest::Contains(message), Error);
  };
  StoredField two = input;
  two.transforms = {{}, {}};
  refused(two, target, {}, "SampleStore: the transforms must be none, one for all channels, or one for each of 3");
  refused(input, {{1, 1, 1, 4, 1}, io::CellType::int32}, {.augmentation = {.flips = true}},
          "SampleStore: targets must be labels of the input's cells, or belong to whole samples");
  Store store(ranks, CountingSource(2, input, target));
  Partition const in(ranks.grid(), {1, 1, 1, 16, 3}), out = in.scaled_to(target.shape);
  CHECK_THROWS_WITH_AS(store.fetch(request_of(in, out, {0})), doctest::Contains("the network must fit the samples"),
                       Error);
  CHECK(store.source().bytes_read == 0);
}

TEST_CASE("what a store says of itself") {
  auto const ranks = self_ranks();
  StoredField const input{{1, 1, 1, 8, 1}, io::CellType::int32}, target{{1, 1, 1, 1, 1}, io::CellType::int32};
  io::StoreOptions options;
  options.budget_bytes = 2 * 36;
  options.preload = true;
  Store store(ranks, CountingSource(5, input, target), options);
  CHECK(store.kept_bytes() == 72);
  Partition const in(ranks.grid(), input.shape), out = in.scaled_to(target.shape);
  for (int epoch = 0; epoch < 2; ++epoch)
    for (std::int64_t k = 0; k < 5; ++k) store.fetch(request_of(in, out, {k}));
  CHECK(store.read_again() == 3);
  CHECK(store.report() ==
        "SampleStore: 2 of 5 samples are kept in 72 bytes per rank, the others are read each time (3 so far)");
}

TEST_CASE("augmentation: every symmetry that keeps the extents, each as likely as any other") {
  auto const drawn = [](Augmentation const& augmentation, Shape const& shape) {
    std::map<std::pair<std::array<int, 3>, std::array<bool, 3>>, int> seen;
    for (std::int64_t sample = 0; sample < 4800; ++sample) {
      Symmetry const s = augmentation.draw(7, sample, shape);
      ++seen[{s.from, s.mirrored}];
    }
    return seen;
  };
  struct Row {
    bool flips, rotations;
    Shape shape;
    std::size_t symmetries;
  };
  Shape const cube{1, 4, 4, 4, 2}, plate{1, 3, 4, 4, 2}, brick{1, 2, 3, 4, 1}, image{1, 1, 5, 5, 1},
      line{1, 1, 1, 9, 1};
  for (Row const& row : {Row{false, false, cube, 1},
                         {true, false, cube, 8},
                         {false, true, cube, 24},
                         {true, true, cube, 48},
                         {false, true, plate, 8},
                         {true, true, plate, 16},
                         {false, true, brick, 4},
                         {true, true, brick, 8},
                         {false, true, image, 4},
                         {true, true, image, 8},
                         {true, false, image, 4},
                         {false, true, line, 1},
                         {true, true, line, 2}}) {
    CAPTURE(row.shape);
    auto const seen = drawn({row.flips, row.rotations, 11}, row.shape);
    CHECK(seen.size() == row.symmetries);
    for (auto const& [symmetry, often] : seen) {  // within six standard deviations
      double const expected = 4800.0 / static_cast<double>(row.symmetries);
      CHECK(std::abs(often - expected) < 6 * std::sqrt(expected) + 1);
      if (row.flips) continue;
      auto const& [from, mirrored] = symmetry;  // turns alone: the determinant is 1
      int sign = (mirrored[0] != mirrored[1]) != mirrored[2] ? -1 : 1;
      for (std::size_t a = 0; a < 3; ++a)
        for (std::size_t b = a + 1; b < 3; ++b)
          if (from[a] > from[b]) sign = -sign;
      CHECK(sign == 1);
    }
  }
  CHECK(drawn({true, true, 11}, cube) != drawn({true, true, 12}, cube));
  Augmentation const augmentation{true, true, 3};
  int same = 0;
  for (std::int64_t sample = 0; sample < 480; ++sample)
    same += augmentation.draw(0, sample, cube) == augmentation.draw(1, sample, cube) ? 1 : 0;
  CHECK(same < 40);  // other epochs, other symmetries
}
