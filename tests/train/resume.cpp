// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A training that stops and goes on from its checkpoint takes the same way as one that never stopped.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/scratch.hpp"
#include "tessera/io/checkpoint_folder.hpp"
#include "tessera/io/sample_store.hpp"
#include "tessera/io/source.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/batch_norm.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/flat_dense.hpp"
#include "tessera/model/model.hpp"
#include "tessera/train/trainer.hpp"

namespace {

using namespace tessera;
using tessera::test::message_of;
using tessera::test::Scratch;
using AnySplit = Distribution<axes::Sample, axes::Channel, axes::Depth, axes::Height, axes::Width>;
using Folder = io::CheckpointFolder;

constexpr Shape input_shape{1, 4, 3, 4, 4}, target_shape{1, 1, 1, 1, 2};
constexpr std::int64_t sample_count = 11, epochs = 4, batch = 3, steps_per_epoch = 4;

Communicator<Mpi> world() { return Communicator<Mpi>::borrow(MPI_COMM_WORLD); }
Counts cut_in_samples() { return {.sample = world().size()}; }
Counts cut_in_channels() { return {.channel = world().size()}; }
Counts cut_in_two() {
  return world().size() % 2 == 0 ? Counts{.channel = 2, .depth = world().size() / 2} : Counts{.width = world().size()};
}

/// A layer of each kind that has random numbers, running statistics or shards.
template <class T>
Model<T> network(Counts const& counts) {
  return sequential<T>(RankGrid<AnySplit>(world(), counts), SampleShape<3>{.channels = 4, .space = {4, 3, 4}},
                       conv3d<3>(5, same, Stationary::x), batch_norm(), leaky_relu(0.1), dropout(0.2),
                       dense(6, flattened), leaky_relu(0.1), dropout(0.3), dense(2));
}

template <class T>
io::MemorySource<T> numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<T> x, y;
  RandomStream const inputs = random_stream(seed, "inputs"), targets = random_stream(seed, "targets");
  for (std::int64_t i = 0; i < count * input_shape.volume(); ++i) x.push_back(static_cast<T>(inputs.uniform(i, 1.0)));
  for (std::int64_t i = 0; i < count * target_shape.volume(); ++i) y.push_back(static_cast<T>(targets.uniform(i, 1.0)));
  return {input_shape, x, target_shape, y};
}

/// The same samples as a file would hold them.
template <class T>
struct Stored {
  io::MemorySource<T> data;
  std::int64_t size() const { return data.size(); }
  io::StoredField field(io::Part part) const {
    return {part == io::Part::input ? input_shape : target_shape,
            sizeof(T) == 4 ? io::CellType::float32 : io::CellType::float64};
  }
  void read_stored(io::Part part, std::int64_t sample, Box const& box, std::byte* cells) const {
    if (part == io::Part::input)
      data.read_input(sample, box, reinterpret_cast<T*>(cells));
    else
      data.read_target(sample, box, reinterpret_cast<T*>(cells));
  }
};

enum class From { memory, store };

FitOptions options_for(std::int64_t of_epochs = epochs) {
  FitOptions options{.epochs = of_epochs, .batch = batch, .seed = 5};
  options.schedule = warm_up(3, linear_decay(6, 16));
  return options;
}

/// All that a training leaves, and says on its way.
struct Outcome {
  std::vector<double> losses;  ///< by step, from the first that it took
  std::vector<double> reports;
  std::vector<double> numbers;  ///< this rank's shards of weights and optimizer, and running statistics
  std::int64_t steps = 0;

  friend bool operator==(Outcome const&, Outcome const&) = default;
};

template <class T, class Run>
void add_numbers(Run& run, Outcome& outcome) {
  auto const add = [&](std::vector<T> const& values) {
    outcome.numbers.insert(outcome.numbers.end(), values.begin(), values.end());
  };
  auto const& parameters = run.model().parameters();
  auto const& states = run.optimizer().states(parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    add(parameters[i]->download());
    for (auto const& state : states[i]) add(parameters[i]->download(state));
  }
  run.model().for_each_buffer([&](std::string const&, std::vector<double>& values) {
    outcome.numbers.insert(outcome.numbers.end(), values.begin(), values.end());
  });
  outcome.steps = run.steps();
}

/// A job that ends.
struct Ended {};

/// Trains to the end, or until `last` steps were taken, with checkpoints in a folder unless its name is empty.
template <class T, class Method>
Outcome train(Counts const& counts, Method method, std::string const& folder, io::CheckpointOptions const& how,
              std::int64_t last = 1000, FitOptions options = options_for(), From from = From::memory) {
  auto data = numbers<T>(sample_count, 3), validation = numbers<T>(5, 4);
  Trainer trainer{network<T>(counts), method, MeanSquaredError{}};
  Outcome outcome;
  options.on_step = [&](StepReport const& r) {
    CHECK(r.step == trainer.steps());
    CHECK(r.samples_done ==
          (r.epoch - 1) * sample_count + std::min(sample_count, batch * (r.step - (r.epoch - 1) * steps_per_epoch)));
    outcome.losses.push_back(r.loss);
  };
  std::int64_t seen = 0;
  options.on_epoch = [&](EpochReport const& r) { seen = r.epoch; };
  std::optional<Folder> checkpoints;
  if (!folder.empty()) {
    checkpoints.emplace(world(), folder, how);
    checkpoints->attach(trainer, options);
    options.on_checkpoint = [&, keep = options.on_checkpoint](TrainingState const& state) {
      keep(state);
      if (trainer.steps() >= last) throw Ended{};
    };
  }
  try {
    auto const fit = [&] {
      if (from == From::memory) return trainer.fit(data, validation, options);
      RankGrid<AnySplit> const ranks(world(), counts);
      io::SampleStore store(ranks, Stored<T>{data},
                            {.budget_bytes = 3 * static_cast<std::int64_t>(sizeof(T)) * input_shape.volume(),
                             .augmentation = {.flips = true, .rotations = true, .seed = 2}});
      return trainer.fit(store, validation, options);
    };
    for (EpochReport const& r : fit())
      outcome.reports.insert(outcome.reports.end(), {static_cast<double>(r.epoch), r.train_loss, r.validation_loss,
                                                     static_cast<double>(r.step)});
    if (options.start.epoch < options.epochs) CHECK(seen == options.epochs);
  } catch (Ended const&) {
  }
  add_numbers<T>(trainer, outcome);
  return outcome;
}

/// Stopped after each step in turn, it goes on as if nothing had been.
template <class T, class Method>
void check_exact(Counts const& counts, Method method, From from = From::memory) {
  FitOptions const options = options_for();
  Outcome const whole = train<T>(counts, method, "", {}, 1000, options, from);
  CHECK(whole.steps == epochs * steps_per_epoch);
  REQUIRE(whole.reports.size() == 4 * epochs);
  for (std::int64_t last = 1; last <= epochs * steps_per_epoch; ++last) {
    CAPTURE(last);
    Scratch const scratch;
    Outcome const begun = train<T>(counts, method, scratch / "run", {.every = 1}, last, options, from);
    CHECK(begun.steps == last);
    Outcome rest = train<T>(counts, method, scratch / "run", {.every = 1, .resume = true}, 1000, options, from);
    CHECK(static_cast<std::int64_t>(rest.losses.size()) == epochs * steps_per_epoch - last);
    rest.losses.insert(rest.losses.begin(), begun.losses.begin(), begun.losses.end());
    CHECK(rest == whole);
  }
}

std::vector<std::string> files_in(std::filesystem::path const& folder) {
  std::vector<std::string> names;
  for (auto const& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// On the first rank; the others wait.
void once(auto action) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (world().rank() == 0) action();
  MPI_Barrier(MPI_COMM_WORLD);
}

void flip_a_byte(std::string const& path) {
  once([&] {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(5000);
    char const byte = static_cast<char>(file.get() ^ 4);
    file.seekp(5000);
    file.put(byte);
  });
}

}  // namespace

TEST_CASE("resume: bit for bit as if it had not stopped, after any step") {
  check_exact<float>(cut_in_samples(), Adam{.rate = 1e-2});
  check_exact<float>(cut_in_two(), Adam{.rate = 1e-2, .weight_decay = 0.01});
  check_exact<double>(cut_in_channels(), Sgd{.rate = 0.05, .momentum = 0.9, .nesterov = true});
}

TEST_CASE("resume: from a store that reads ahead, turns and mirrors, too") {
  check_exact<float>(cut_in_two(), Adam{.rate = 1e-2}, From::store);
}

TEST_CASE("resume: on another decomposition, ten steps in double agree to 1e-9") {
  auto const adam = Adam{.rate = 1e-2};
  Scratch const scratch;
  Outcome const whole = train<double>(cut_in_channels(), adam, scratch / "run", {.every = 3, .keep = 100});
  for (Counts const& counts :
       {cut_in_samples(), cut_in_two(), Counts{.depth = world().size()}, Counts{.height = world().size()}}) {
    Scratch const copy;
    once([&] {
      std::filesystem::create_directory(copy / "run");
      std::filesystem::copy_file(scratch / "run/checkpoint-0000000006.h5", copy / "run/checkpoint-0000000006.h5");
    });
    Outcome const rest = train<double>(counts, adam, copy / "run", {.resume = true});
    REQUIRE(rest.losses.size() == 10);
    double most = 0.0;
    for (std::size_t i = 0; i < 10; ++i) most = std::max(most, std::abs(rest.losses[i] / whole.losses[i + 6] - 1.0));
    for (std::size_t i = 0; i < whole.reports.size(); ++i)
      most = std::max(most, std::abs(rest.reports[i] / whole.reports[i] - 1.0));
    CHECK(most <= 1e-9);
  }
}

TEST_CASE("resume: more epochs than were asked for at first") {
  Scratch const scratch;
  auto const adam = Adam{.rate = 1e-2};
  Outcome const whole = train<float>(cut_in_two(), adam, "", {});
  train<float>(cut_in_two(), adam, scratch / "run", {}, 1000, options_for(2));
  Outcome const rest = train<float>(cut_in_two(), adam, scratch / "run", {.resume = true});
  CHECK(rest.numbers == whole.numbers);
  CHECK(rest.reports == whole.reports);
  // And when nothing is left to do.
  Outcome const nothing = train<float>(cut_in_two(), adam, scratch / "run", {.resume = true});
  CHECK(nothing.losses.empty());
  CHECK(nothing.numbers == whole.numbers);
  CHECK(nothing.reports == whole.reports);
}

TEST_CASE("resume: with other samples, batch, seed or order it is no resumption") {
  Scratch const scratch;
  auto const adam = Adam{.rate = 1e-2};
  train<float>(cut_in_two(), adam, scratch / "run", {.every = 1}, 3);
  auto const refusal = [&](auto change) {
    FitOptions options = options_for();
    change(options);
    return message_of([&] { train<float>(cut_in_two(), adam, scratch / "run", {.resume = true}, 1000, options); });
  };
  std::string const begin =
      "Trainer::fit: a training goes on with the samples, batch, seed and order that it began with, 11 samples in "
      "batches of 3, seed 5, shuffled, but was given ";
  CHECK(refusal([](FitOptions& o) { o.batch = 4; }) == begin + "11 samples in batches of 4, seed 5, shuffled");
  CHECK(refusal([](FitOptions& o) { o.seed = 6; }) == begin + "11 samples in batches of 3, seed 6, shuffled");
  CHECK(refusal([](FitOptions& o) { o.shuffle = false; }) ==
        begin + "11 samples in batches of 3, seed 5, in the source's order");
  CHECK(
      message_of([&] { train<float>(cut_in_two(), adam, scratch / "run", {.every = -1, .resume = true}); }) ==
      "Trainer::fit: checkpoints every -1 steps are not possible; give a positive number, or 0 for the ends of epochs "
      "alone");
  CHECK(message_of([&] { train<float>(cut_in_two(), adam, scratch / "run", {.keep = 0}); }) ==
        "CheckpointFolder: at least 1 checkpoint must be kept, not 0");
}

TEST_CASE("checkpoint folder: the newest ones and the best one stay") {
  Scratch const scratch;
  auto const adam = Adam{.rate = 1e-2};
  auto const name = [](std::int64_t step) {
    return "checkpoint-00000000" + std::string(step < 10 ? "0" : "") + std::to_string(step) + ".h5";
  };
  using Names = std::vector<std::string>;
  train<float>(cut_in_two(), adam, scratch / "all", {.every = 3, .keep = 100});
  CHECK(files_in(scratch / "all") == Names{name(3), name(4), name(6), name(8), name(9), name(12), name(15), name(16)});
  for (std::int64_t const best : {1, 2, 3, 4})
    for (auto const better : {io::Better::lower, io::Better::higher}) {
      CAPTURE(best);
      std::string const folder =
          scratch / ("best" + std::to_string(best) + (better == io::Better::lower ? "low" : "high"));
      auto const metric = [&](EpochReport const& r) {
        double const distance = std::abs(static_cast<double>(r.epoch - best));
        return better == io::Better::lower ? distance : -distance;
      };
      train<float>(cut_in_two(), adam, folder, {.every = 3, .keep = 2, .metric = metric, .better = better});
      Names expected{name(15), name(16)};
      if (best < 4) expected.insert(expected.begin(), name(4 * best));
      CHECK(files_in(folder) == expected);
    }
  // The validation loss by default, and without one the training's; what is not a number is never best.
  Folder const folder(world(), scratch / "best1low");
  TrainingState state;
  CHECK(folder.best(state).empty());
  state.reports = {
      {1, 0.5, std::nan(""), 0, 4}, {2, 0.7, 0.4, 0, 8}, {3, 0.1, 0.6, 0, 12}, {4, std::nan(""), std::nan(""), 0, 16}};
  CHECK(folder.best(state) == scratch / ("best1low/" + name(8)));
  CHECK(folder.latest() == scratch / ("best1low/" + name(16)));
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(Folder(world(), scratch / "new/and/deep").latest().empty());
}

TEST_CASE("checkpoint folder: an earlier training is not overwritten, and leftovers go") {
  Scratch const scratch;
  auto const adam = Adam{.rate = 1e-2};
  std::string const folder = scratch / "run";
  train<float>(cut_in_two(), adam, folder, {.every = 1}, 3);
  once([&] {
    std::ofstream(folder + "/checkpoint-0000000004.h5.part") << "half";
    std::ofstream(folder + "/notes.txt") << "mine";
    std::ofstream(folder + "/checkpoint-4.h5") << "of another name";
  });
  CHECK(message_of([&] { train<float>(cut_in_two(), adam, folder, {}); }) ==
        "CheckpointFolder: the folder '" + folder + "' holds checkpoints of an earlier training, '" + folder +
            "/checkpoint-0000000003.h5' is the newest; resume it, or choose another folder");
  CHECK(files_in(folder) == std::vector<std::string>{"checkpoint-0000000001.h5", "checkpoint-0000000002.h5",
                                                     "checkpoint-0000000003.h5", "checkpoint-4.h5", "notes.txt"});
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(message_of([&] {
          Folder(world(), folder + "/notes.txt");
        }).starts_with("CheckpointFolder: the folder '" + folder + "/notes.txt' must be there, or creatable ("));
}

TEST_CASE("checkpoint folder: a newest one that cannot be used is refused, and the one before it is offered") {
  Scratch const scratch;
  auto const adam = Adam{.rate = 1e-2};
  std::string const folder = scratch / "run";
  auto const path = [&](int step) { return folder + "/checkpoint-000000000" + std::to_string(step) + ".h5"; };
  Outcome const whole = train<float>(cut_in_two(), adam, "", {});
  train<float>(cut_in_two(), adam, folder, {.every = 1}, 7);
  flip_a_byte(path(7));
  once([&] { std::filesystem::resize_file(path(6), 3000); });
  auto const resume = [&](bool use_previous) {
    return train<float>(cut_in_two(), adam, folder,
                        {.every = 1, .keep = 50, .resume = true, .use_previous = use_previous});
  };
  std::string const damaged = "load_checkpoint: '" + path(7) +
                              "' is damaged: the checksum of its bytes is not what was written; take another copy";
  CHECK(message_of([&] { resume(false); }) == "CheckpointFolder: " + damaged + "; the previous good checkpoint is '" +
                                                  path(5) + "': allow use-previous to go on from it");
  CHECK(files_in(folder).size() == 4);  // three newest, and the best
  MPI_Barrier(MPI_COMM_WORLD);
  Outcome const rest = resume(true);
  CHECK(rest.losses.size() == 11);
  CHECK(rest.numbers == whole.numbers);
  CHECK(rest.reports == whole.reports);
  auto const files = files_in(folder);
  CHECK(std::count(files.begin(), files.end(), "checkpoint-0000000006.h5.unusable") == 1);
  CHECK(std::count(files.begin(), files.end(), "checkpoint-0000000007.h5.unusable") == 1);
  CHECK(std::count(files.begin(), files.end(), "checkpoint-0000000007.h5") == 1);  // written anew

  // What it says when none can be used.
  std::string const other = scratch / "other";
  train<float>(cut_in_two(), adam, other, {.every = 1}, 2);
  flip_a_byte(other + "/checkpoint-0000000001.h5");
  flip_a_byte(other + "/checkpoint-0000000002.h5");
  std::string const refusal = "load_checkpoint: '" + other +
                              "/checkpoint-0000000002.h5' is damaged: the checksum of its " +
                              "bytes is not what was written; take another copy";
  for (bool const use_previous : {false, true})
    CHECK(message_of([&] {
            train<float>(cut_in_two(), adam, other, {.resume = true, .use_previous = use_previous});
          }) == "CheckpointFolder: " + refusal + "; nor can any other checkpoint in '" + other + "' be used");
  once([&] { std::filesystem::remove(other + "/checkpoint-0000000001.h5"); });
  CHECK(message_of([&] { train<float>(cut_in_two(), adam, other, {.resume = true}); }) == refusal);
}
