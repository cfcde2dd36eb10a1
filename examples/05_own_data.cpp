// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Data of one's own. Without arguments: raw files, which are written first, are a source of our own making. With a form
// and a path, 05_own_data lbann universes/, HDF5 files of that form: mlperf, lbann, segmentation or scans.

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

// [hdf5]
#include <tessera/io/hdf5.hpp>
#include <tessera/tessera.hpp>
// [end]

namespace {

using namespace tessera::axes;
using Spatial = tessera::Distribution<Sample, Depth, Height, Width>;
using tessera::Communicator;
using tessera::Mpi;
namespace io = tessera::io;

io::Hdf5Source open(Communicator<Mpi> const& world, std::string const& form, std::string const& path) {
  if (form == "mlperf") {
    // [mlperf]
    io::Hdf5Source data(world, path, io::Hdf5Schema::mlperf());
    // [end]
    return data;
  }
  if (form == "lbann") {
    // [lbann]
    io::Hdf5Source data(world, path, io::Hdf5Schema::lbann());
    // [end]
    return data;
  }
  if (form == "segmentation") {
    // [segmentation]
    io::Hdf5Source data(world, path, io::Hdf5Schema::segmentation(io::Hdf5Axes::no_channel));
    // [end]
    return data;
  }
  tessera::require(form == "scans", "05_own_data", "the form must be mlperf, lbann, segmentation or scans, not '", form,
                   "'");
  // [schema]
  io::Hdf5Schema schema{.input = "scan/density",
                        .target = "scan/organs",
                        .input_axes = io::Hdf5Axes::channels_first,
                        .target_axes = io::Hdf5Axes::no_channel};
  schema.transform = {{.scale = 1.0 / 1000, .shift = 1.0},  // of the first channel: 0.001 v + 1
                      {.logarithm = true}};                 // of the second: log(1 + v)
  io::Hdf5Source data(world, path, schema, {.check_finite = true, .cache_bytes = 256 << 20});
  // [end]
  return data;
}

// [source]
/// Volumes of int16 in raw files of their own, (depth, height, width), and a number for each.
struct RawVolumes {
  std::vector<std::string> files;
  std::vector<float> numbers;
  tessera::Shape shape;

  std::int64_t size() const { return static_cast<std::int64_t>(files.size()); }
  io::StoredField field(io::Part part) const {
    if (part == io::Part::target) return {.shape = {.channel = 1}, .type = io::CellType::float32};
    return {.shape = shape, .type = io::CellType::int16, .transforms = {{.scale = 0.01}}};
  }

  void read_stored(io::Part part, std::int64_t sample, tessera::Box const& box, std::byte* cells) const {
    if (box.empty()) return;
    auto const i = static_cast<std::size_t>(sample);
    if (part == io::Part::target) {
      std::memcpy(cells, &numbers[i], sizeof(float));
      return;
    }
    std::ifstream file(files[i], std::ios::binary);
    auto const [depth, height, width] = std::array{box.axis[1], box.axis[2], box.axis[3]};
    for (auto d = depth.begin; d < depth.end; ++d)
      for (auto h = height.begin; h < height.end; ++h) {
        file.seekg(2 * ((d * shape.height + h) * shape.width + width.begin));
        file.read(reinterpret_cast<char*>(cells), 2 * width.size());
        cells += 2 * width.size();
      }
    tessera::require(file.good(), "RawVolumes", "the file '", files[i], "' must be there and whole");
  }
};
// [end]
static_assert(io::StoredSource<RawVolumes>);

/// Volumes that are brighter the larger their number is. The first rank writes them.
RawVolumes make_volumes(Communicator<Mpi> const& world, std::filesystem::path const& folder) {
  constexpr std::int64_t count = 12;
  RawVolumes volumes{.files = {}, .numbers = {}, .shape = {.depth = 9, .height = 8, .width = 8}};
  tessera::RandomStream const random = tessera::random_stream(1, "volumes");
  for (std::int64_t n = 0; n < count; ++n) {
    volumes.files.push_back(folder / (std::to_string(n) + ".raw"));
    volumes.numbers.push_back(static_cast<float>(random.uniform(n, 1.0)));
    std::vector<std::int16_t> cells(static_cast<std::size_t>(volumes.shape.volume()));
    for (std::size_t i = 0; i < cells.size(); ++i)
      cells[i] =
          static_cast<std::int16_t>(100 * volumes.numbers.back() + 20 * random.uniform(count + std::int64_t(i), 1));
    if (world.rank() == 0)
      std::ofstream(volumes.files.back(), std::ios::binary)
          .write(reinterpret_cast<char const*>(cells.data()), 2 * volumes.shape.volume());
  }
  world.barrier();
  return volumes;
}

/// The error on samples that are kept from training, before and after it.
template <class Data>
std::array<double, 2> train(Communicator<Mpi> const& world, Data& data) {
  using namespace tessera;
  // [split]
  auto const numbers = io::split_samples(data.size(), {.validation = 0.25, .seed = 1});
  io::Subset training(data, numbers.train), validation(data, numbers.validation);
  // [end]
  RankGrid<Spatial> const ranks(world, {.depth = world.size()});
  // [store]
  io::SampleStore store(ranks, training,
                        {.budget_bytes = std::int64_t{8} << 30,  // on each rank
                         .ahead = 2,                             // micro-batches
                         .augmentation = {.flips = true, .rotations = true, .seed = 1}});
  // [end]
  Shape const s = io::shape_of(data, io::Part::input), target = io::shape_of(data, io::Part::target);
  SampleShape<3> const sample{.channels = s.channel, .space = {s.depth, s.height, s.width}};
  auto const errors = [&](auto trainer) {
    double const before = trainer.evaluate(validation, 3);
    return std::array{before, trainer.fit(store, validation, {.epochs = 100, .batch = 3}).back().validation_loss};
  };
  if (target.depth > 1)  // a class for each cell
    return errors(Trainer{sequential<float>(ranks, sample, conv3d<3>(4, same), leaky_relu(0.1), conv3d<3>(2, same)),
                          Adam{.rate = 3e-2}, CrossEntropy{}});
  return errors(Trainer{sequential<float>(ranks, sample, conv3d<3>(4, same), leaky_relu(0.1), global_avg_pool(),
                                          redistribute<Distribution<Sample>>(), flatten(), dense(target.channel)),
                        Adam{.rate = 3e-2}, MeanSquaredError{}});
}

}  // namespace

int main(int argc, char** argv) {
  tessera::Environment const env(argc, argv);
  return env.guard([&] {
    Communicator<Mpi> const world = env.world();
    std::array<double, 2> error{};
    if (argc > 2) {
      io::Hdf5Source data = open(world, argv[1], argv[2]);
      error = train(world, data);
    } else {
      auto const folder = std::filesystem::temp_directory_path() /
                          ("own_data_" + std::to_string(world.size()) + (argc > 1 ? argv[1] : ""));
      if (world.rank() == 0) std::filesystem::create_directory(folder);
      world.barrier();
      RawVolumes data = make_volumes(world, folder);
      error = train(world, data);
      world.barrier();
      if (world.rank() == 0) std::filesystem::remove_all(folder);
    }
    env.out() << "validation error " << error[0] << " before training, " << error[1] << " after\n";
    return error[1] < error[0] / 2 ? 0 : 1;
  });
}
