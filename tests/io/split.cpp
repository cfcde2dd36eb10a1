// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/io/split.hpp"

#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "support/property.hpp"
#include "support/scratch.hpp"
#include "support/stored_memory.hpp"
#include "tessera/comm/mpi.hpp"

namespace {

using namespace tessera;
using io::Part;
using io::SampleSplit;
using io::split_samples;
using tessera::test::message_of;
using tessera::test::StoredMemory;
using Numbers = std::vector<std::int64_t>;
using Plain = io::MemorySource<double>;

static_assert(io::StoredSource<io::Subset<StoredMemory>> && !io::StoredSource<io::Subset<Plain>>);
static_assert(io::Source<io::Subset<Plain>, float> && !io::Source<io::Subset<StoredMemory>, float>);

bool ascending(Numbers const& numbers) {
  for (std::size_t i = 1; i < numbers.size(); ++i)
    if (numbers[i] <= numbers[i - 1]) return false;
  return true;
}

}  // namespace

TEST_CASE("split: the three sets are disjoint, complete, and as large as asked for") {
  tessera::test::property("sets", [] {
    auto const samples = *rc::gen::inRange<std::int64_t>(1, 300).as("samples");
    double const validation = *rc::gen::inRange(0, 40).as("validation, percent") / 100.0;
    double const test = *rc::gen::inRange(0, 10).as("test, percent") / 100.0;
    auto const seed = *rc::gen::arbitrary<std::uint64_t>().as("seed");
    SampleSplit const s = split_samples(samples, {validation, test, seed});
    RC_ASSERT(ascending(s.train));
    RC_ASSERT(ascending(s.validation));
    RC_ASSERT(ascending(s.test));
    RC_ASSERT(std::abs(static_cast<double>(s.validation.size()) - validation * static_cast<double>(samples)) <= 0.5);
    RC_ASSERT(std::abs(static_cast<double>(s.test.size()) - test * static_cast<double>(samples)) <= 0.5);
    RC_ASSERT(!s.train.empty());
    Numbers all = s.train;
    all.insert(all.end(), s.validation.begin(), s.validation.end());
    all.insert(all.end(), s.test.begin(), s.test.end());
    std::sort(all.begin(), all.end());
    Numbers expected(static_cast<std::size_t>(samples));
    std::iota(expected.begin(), expected.end(), std::int64_t{0});
    RC_ASSERT(all == expected);
    SampleSplit const again = split_samples(samples, {validation, test, seed});
    RC_ASSERT((again.train == s.train && again.validation == s.validation && again.test == s.test));
  });
}

TEST_CASE("split: the seed draws, and draws for all samples alike") {
  CHECK(split_samples(100, {.validation = 0.3, .seed = 1}).validation !=
        split_samples(100, {.validation = 0.3, .seed = 2}).validation);
  // Each of 10 samples is in a set of 3 for 3 of 10 seeds: 600 of 2000, give or take five standard deviations.
  std::vector<int> times(10, 0);
  for (std::uint64_t seed = 0; seed < 2000; ++seed)
    for (std::int64_t const n : split_samples(10, {.validation = 0.3, .seed = seed}).validation)
      ++times[static_cast<std::size_t>(n)];
  for (int const n : times) CHECK(std::abs(n - 600) < 103);
  // What is drawn does not depend on the ranks.
  auto const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  for (std::int64_t const n : split_samples(50, {.validation = 0.5, .test = 0.2, .seed = 9}).validation)
    CHECK(world.all_reduce(n, Reduce::min) == world.all_reduce(n, Reduce::max));
}

TEST_CASE("split: shares must leave samples to train on") {
  CHECK(message_of([] { split_samples(10, {.validation = 0.7, .test = 0.4}); }) ==
        "split_samples: the shares must be at least 0 and at most 1 together, but validation is 0.7 and test 0.4");
  CHECK(message_of([] { split_samples(10, {.validation = -0.1}); }) ==
        "split_samples: the shares must be at least 0 and at most 1 together, but validation is -0.1 and test 0");
  CHECK(message_of([] { split_samples(2, {.validation = 0.5, .test = 0.3}); }) ==
        "split_samples: a sample must be left for training, but of 2 samples validation takes 1 and test 1; lower the "
        "shares");
  CHECK(message_of([] { split_samples(0); }) ==
        "split_samples: a sample must be left for training, but of 0 samples validation takes 0 and test 0; lower the "
        "shares");
}

TEST_CASE("split: folders") {
  tessera::test::Scratch const scratch;
  std::string const root = scratch / ("data" + std::to_string(Communicator<Mpi>::borrow(MPI_COMM_WORLD).rank()));
  CHECK(message_of([&] { io::split_folders(root); }) ==
        "split_folders: the folder '" + root + "' must hold a folder 'train', and may hold 'validation' and 'test'");
  std::filesystem::create_directories(root + "/train");
  io::FolderSplit split = io::split_folders(root);
  CHECK(split.train == root + "/train");
  CHECK(split.validation + split.test == "");
  std::filesystem::create_directory(root + "/val");
  std::filesystem::create_directory(root + "/test");
  split = io::split_folders(root);
  CHECK(split.validation == root + "/val");
  CHECK(split.test == root + "/test");
  std::filesystem::create_directory(root + "/validation");
  CHECK(message_of([&] { io::split_folders(root); }) ==
        "split_folders: there must be one folder for validation, but there are '" + root + "/validation' and '" + root +
            "/val'; rename one");
}

TEST_CASE("split: a subset is a source of its own, plain or stored as the whole is") {
  StoredMemory memory{5, {{1, 2, 1, 1, 1}, io::CellType::int32}, {{}, io::CellType::uint8}};
  io::Subset stored(memory, {4, 1, 1});
  CHECK(stored.size() == 3);
  CHECK(stored.field(Part::target) == memory.target);
  std::int32_t cells[2];
  for (auto const& [n, whole] : {std::pair{0, 4}, std::pair{2, 1}}) {
    stored.read_stored(Part::input, n, stored.input_shape().box(), reinterpret_cast<std::byte*>(cells));
    CHECK(cells[1] == tessera::test::coded(io::CellType::int32, 2 * whole + 1));
  }

  Plain plain({1, 1, 1, 2, 1}, {0, 1, 2, 3, 4, 5}, {}, {10, 11, 12});
  io::Subset some(plain, {2, 0});
  CHECK(some.input_shape() == Shape{1, 1, 1, 2, 1});
  CHECK(some.target_shape() == Shape{});
  float values[3];
  some.read_input(0, some.input_shape().box(), values);
  some.read_target(1, some.target_shape().box(), values + 2);
  CHECK(values[0] == 4);
  CHECK(values[1] == 5);
  CHECK(values[2] == 10);
  CHECK(message_of([&] {
          io::Subset(plain, {0, 3});
        }) == "Subset: the samples must be among the source's 3, but one is 3");
}
