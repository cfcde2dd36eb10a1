// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads all samples of files, cut along depth, as training would; bad_source.py gives it what it cannot read.
//   bad_source <path> <schema> [finite] [rank=<r> path=<what this rank alone is given>]
// A schema is plain, mlperf, lbann, segmentation, masks (without a channel axis) or three (transforms for 3 channels).

#include <cstdint>
#include <string>

#include "tessera/comm/environment.hpp"
#include "tessera/io/batch.hpp"
#include "tessera/io/hdf5.hpp"

namespace {

using namespace tessera;

io::Hdf5Schema schema_of(std::string const& name) {
  if (name == "mlperf") return io::Hdf5Schema::mlperf();
  if (name == "lbann") return io::Hdf5Schema::lbann();
  if (name == "segmentation") return io::Hdf5Schema::segmentation();
  if (name == "masks") return io::Hdf5Schema::segmentation(io::Hdf5Axes::no_channel);
  if (name == "three") return {.transform = std::vector<io::Transform>(3)};
  return {};
}

void read(Communicator<Mpi> const& world, std::string const& path, io::Hdf5Schema const& schema, bool finite) {
  io::Hdf5Source source(world, path, schema, {.check_finite = finite});
  io::BatchReader<float, Kokkos::DefaultExecutionSpace> reader;
  Grid const grid(Counts{.depth = world.size()});
  for (io::Part const part : {io::Part::input, io::Part::target}) {
    Shard<float> const shard(Partition(grid, source.field(part).shape.with_samples(source.size())), world.rank());
    agreed(world, [&] { reader.read(source, part, shard, shard.owned(), [](std::int64_t n) { return n; }); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  Environment const env(argc, argv);
  return env.guard([&] {
    std::string path = argc > 1 ? argv[1] : "";
    bool finite = false, alone = false;
    for (int i = 3; i < argc; ++i) {
      std::string const word = argv[i];
      if (word == "finite") finite = true;
      if (word == "rank=" + std::to_string(env.world().rank())) alone = true;
      if (word.starts_with("path=") && alone) path = word.substr(5);
    }
    read(env.world(), path, schema_of(argc > 2 ? argv[2] : ""), finite);
    return 0;
  });
}
