// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "../../examples/cosmoflow/simulate.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../../examples/cosmoflow/universe_file.hpp"
#include "support/full_disk.hpp"

// The file and its failures, shared by all ranks; the physics is tested in cosmology.cpp and universe.cpp.

namespace {

using namespace cosmoflow;
using tessera::test::FullDisk;
namespace fs = std::filesystem;

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

/// A folder that all ranks see, removed with its scope.
class SharedFolder {
 public:
  SharedFolder() {
    std::array<char, 4096> name{};
    if (world_rank() == 0) {
      std::string const pattern = (fs::temp_directory_path() / "cosmoflow_XXXXXX").string();
      REQUIRE(pattern.size() < name.size());
      std::copy(pattern.begin(), pattern.end(), name.begin());
      REQUIRE(::mkdtemp(name.data()) != nullptr);
    }
    MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
    path_ = name.data();
  }
  SharedFolder(SharedFolder const&) = delete;
  SharedFolder& operator=(SharedFolder const&) = delete;
  ~SharedFolder() {
    MPI_Barrier(MPI_COMM_WORLD);
    std::error_code ignored;
    if (world_rank() == 0) fs::remove_all(path_, ignored);
  }

  [[nodiscard]] std::string operator/(char const* file) const { return (path_ / file).string(); }
  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator{path_}, fs::directory_iterator{});
  }

 private:
  fs::path path_;
};

SimulateOptions small(std::string out, std::int64_t count) {
  return {.out = std::move(out), .count = count, .shape = {.size = 10}, .seed = 7, .first_index = 40};
}

/// What this rank is told; "done" if nothing went wrong.
std::string outcome(SimulateOptions const& options) {
  try {
    simulate(options, MPI_COMM_WORLD);
  } catch (std::runtime_error const& error) {
    return error.what();
  }
  return "done";
}

std::string bytes(std::string const& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

template <class T>
std::vector<T> read(std::string const& path, char const* name, hid_t type, std::vector<hsize_t> const& extents) {
  H5Handle const file{H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, "no file"};
  H5Handle const data{H5Dopen2(file.get(), name, H5P_DEFAULT), H5Dclose, "no dataset"};
  H5Handle const space{H5Dget_space(data.get()), H5Sclose, "no space"};
  std::vector<hsize_t> found(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space.get())));
  H5Sget_simple_extent_dims(space.get(), found.data(), nullptr);
  REQUIRE(found == extents);
  H5Handle const stored{H5Dget_type(data.get()), H5Tclose, "no type"};
  CHECK(H5Tequal(stored.get(), type) > 0);
  std::vector<T> values(std::accumulate(found.begin(), found.end(), std::size_t{1}, std::multiplies<>{}));
  REQUIRE(H5Dread(data.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
  return values;
}

TEST_CASE("the file does not depend on the number of ranks") {
  SharedFolder const folder;
  simulate(small(folder / "all.h5", 7), MPI_COMM_WORLD);
  if (world_rank() != 0) return;
  simulate(small(folder / "alone.h5", 7), MPI_COMM_SELF);
  CHECK(bytes(folder / "all.h5").size() > 7 * 8000);
  bool const same = bytes(folder / "all.h5") == bytes(folder / "alone.h5");  // too long to print
  CHECK(same);
  CHECK(folder.files() == 2);  // nothing temporary is left
}

TEST_CASE("more ranks than universes") {
  SharedFolder const folder;
  CHECK(outcome(small(folder / "one.h5", 1)) == "done");
  CHECK(fs::exists(folder / "one.h5"));
}

TEST_CASE("the file holds the universes, in the layout of MLPerf") {
  SharedFolder const folder;
  auto const options = small(folder / "universes.h5", 5);
  simulate(options, MPI_COMM_WORLD);
  auto const x = read<std::int16_t>(options.out, "x", H5T_STD_I16LE, {5, 10, 10, 10, 4});
  auto const y = read<float>(options.out, "y", H5T_IEEE_F32LE, {5, 4});
  auto const parameters = read<double>(options.out, "parameters", H5T_IEEE_F64LE, {5, 4});
  UniverseSimulator simulator{options.shape};
  std::vector<std::int16_t> counts(static_cast<std::size_t>(options.shape.values()));
  for (std::size_t i = 0; i < 5; ++i) {
    Truth const truth = simulator.simulate(options.seed, options.first_index + i, counts);
    CHECK(std::equal(counts.begin(), counts.end(), x.begin() + static_cast<std::ptrdiff_t>(i * counts.size())));
    CHECK(std::equal(truth.target.begin(), truth.target.end(), y.begin() + static_cast<std::ptrdiff_t>(4 * i)));
    Cosmology const centre;
    std::array const centres{centre.omega_m, centre.sigma_8, centre.n_s, centre.h};
    for (std::size_t p = 0; p < 4; ++p) {
      CHECK(std::abs(y[4 * i + p]) <= 1);
      double const from_target = centres[p] * (1 + 0.3 * static_cast<double>(y[4 * i + p]));
      CHECK(parameters[4 * i + p] == doctest::Approx(from_target).epsilon(1e-6));
    }
  }
}

TEST_CASE("an existing file is replaced") {
  SharedFolder const folder;
  auto const options = small(folder / "universes.h5", 2);
  if (world_rank() == 0) std::ofstream{options.out} << "old";
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(outcome(options) == "done");
  CHECK(read<float>(options.out, "y", H5T_IEEE_F32LE, {2, 4}).size() == 8);
}

TEST_CASE("two runs do not write one file") {
  SharedFolder const folder;
  auto const options = small(folder / "universes.h5", 2);
  int other = -1;
  if (world_rank() == 0) {
    other = ::open((options.out + ".part").c_str(), O_WRONLY | O_CREAT, 0600);
    REQUIRE(::flock(other, LOCK_SH) == 0);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(outcome(options) ==
        "simulate: '" + options.out + "' must not be in the making by another run; choose another --out");
  if (world_rank() == 0) ::close(other);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(outcome(options) == "done");  // what a run that was killed left behind is no hindrance
}

TEST_CASE("bad options are refused on every rank, with what to do") {
  SharedFolder const folder;
  auto const good = small(folder / "universes.h5", 1);
  auto const refused = [&](auto change) {
    auto options = good;
    change(options);
    return outcome(options);
  };
  CHECK(refused([](auto& o) { o.out = ""; }) == "simulate: --out must name a file; give one such as universes.h5");
  CHECK(refused([](auto& o) { o.count = 0; }) ==
        "simulate: --count must be at least 1, it is 0; ask for one universe or more");
  CHECK(refused([](auto& o) { o.shape.size = 3; }) ==
        "simulate: --size must lie between 4 and 4096 voxels, it is 3; choose for example 32 or 64");
  CHECK(refused([](auto& o) { o.shape.voxel = -4; }) ==
        "simulate: --voxel must lie between 0.1 and 1000 Mpc/h, it is -4; choose for example 4");
  CHECK(refused([](auto& o) { o.shape.voxel = std::nan(""); }).find("it is nan") != std::string::npos);
  CHECK(refused([](auto& o) {
          o.shape.redshifts = {0, -0.5};
        }) == "simulate: --redshifts must lie between 0 and 1000, one is -0.5; give for example 0,0.5,1.5,3");
  CHECK(refused([](auto& o) { o.shape.redshifts = {}; }) ==
        "simulate: --redshifts must hold at least one redshift; give for example 0,0.5,1.5,3");
  CHECK(refused([](auto& o) { o.first_index = ~std::uint64_t{0}; }) ==
        "simulate: --first-index plus --count must stay below 2^64; choose a smaller --first-index");
  CHECK(refused([&](auto& o) { o.out = folder / "absent/universes.h5"; }) ==
        "simulate: the folder of '" + (folder / "absent/universes.h5") +
            "' must exist and be writable (No such file or directory); create it or choose another --out");
  CHECK(refused([&](auto& o) { o.out = folder / ""; }).find("is a folder; add a file name") != std::string::npos);
  CHECK(refused([](auto& o) { o.count = std::int64_t{1} << 50; }).find("free; free some or lower --count") !=
        std::string::npos);
  CHECK(folder.files() == 0);
}

TEST_CASE("a disk that fills up ends the run on every rank and leaves no file") {
  SharedFolder const folder;
  auto options = small(folder / "universes.h5", 600);
  options.shape.size = 32;  // large enough for the whole run to take long
  auto const part = options.out + ".part";
  {
    FullDisk const disk;
    // On the last rank, once the file is laid out, and long before all its universes are made.
    auto const full = static_cast<std::uintmax_t>(options.count * options.shape.values()) * sizeof(std::int16_t);
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    std::thread filler{[&, unlucky = world_rank() == ranks - 1] {
      std::error_code absent;
      auto const late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (unlucky && (fs::file_size(part, absent) < full || absent) && std::chrono::steady_clock::now() < late)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // HDF5 closes the file once it has its size
      if (unlucky) disk.begin(4096);
    }};
    auto const start = std::chrono::steady_clock::now();
    std::string const told = outcome(options);
    filler.join();
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(6));  // the others did not go on to the end
    CHECK(told ==
          "simulate: '" + part + "' must take what is written to it (File too large); check the disk and its quota");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(folder.files() == 0);
}

TEST_CASE("the subcommand reads its options") {
  CLI::App app;
  SimulateOptions options;
  auto* const command = add_simulate(app, options);
  app.parse("simulate --out u.h5 --count 3 --size 20 --voxel 8 --seed 5 --first-index 9 --redshifts 0,2");
  CHECK(command->parsed());
  CHECK(options.out == "u.h5");
  CHECK(options.count == 3);
  CHECK(options.shape.size == 20);
  CHECK(options.shape.voxel == 8);
  CHECK(options.seed == 5);
  CHECK(options.first_index == 9);
  CHECK(options.shape.redshifts == std::vector{0.0, 2.0});
  CHECK_THROWS_AS(app.parse("simulate --count 3"), CLI::RequiredError);
  CHECK_THROWS_AS(app.parse("simulate --out u.h5 --count 3 --seed -1"), CLI::ParseError);
}

}  // namespace
