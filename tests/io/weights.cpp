// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/io/weights.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "support/full_disk.hpp"
#include "support/scratch.hpp"
#include "tessera/layer/batch_norm.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/flat_dense.hpp"
#include "tessera/layer/flatten.hpp"
#include "tessera/layer/redistribute.hpp"
#include "tessera/layer/transposed_conv.hpp"
#include "tessera/model/model.hpp"

namespace {

using namespace tessera;
using namespace tessera::axes;
using tessera::test::FullDisk;
using tessera::test::message_of;
using tessera::test::Scratch;
using Spatial = Distribution<Sample, Depth, Width>;
using Net = Model<float>;
using Extents = std::vector<hsize_t>;

Communicator<Mpi> world() { return Communicator<Mpi>::borrow(MPI_COMM_WORLD); }

Net network(Counts const& counts, std::int64_t channels = 3, std::int64_t outputs = 2) {
  return sequential<float>(RankGrid<Spatial>(world(), counts), SampleShape<3>{.channels = 2, .space = {4, 3, 5}},  //
                           conv3d<3>(channels, same), batch_norm(), redistribute<Distribution<Sample>>(), flatten(),
                           dense(outputs));
}

/// All ranks along one axis or another.
Counts first() { return {.sample = world().size()}; }
Counts second() { return world().size() == 4 ? Counts{.depth = 2, .width = 2} : Counts{.depth = world().size()}; }

/// Parameters, then running statistics, one list per dataset.
std::vector<std::vector<double>> values_of(Net const& net) {
  std::vector<std::vector<double>> all;
  for (auto const* p : net.parameters()) {
    auto const values = p->download();
    all.emplace_back(values.begin(), values.end());
  }
  net.for_each_buffer([&](std::string const&, std::vector<double>& values) { all.push_back(values); });
  return all;
}

/// A network with statistics of its own.
Net trained(Counts const& counts, std::uint64_t seed) {
  Net net = network(counts);
  net.allocate(4, seed);
  double next = 0.1 + static_cast<double>(seed);
  net.for_each_buffer([&](std::string const&, std::vector<double>& values) {
    for (double& value : values) value = next /= 1.37;
  });
  return net;
}

std::vector<double> all_of(std::string const& path, std::string const& name, Extents const& extents) {
  std::vector<Interval> box;
  for (hsize_t const n : extents) box.push_back({0, static_cast<std::int64_t>(n)});
  return io::detail::ShardReader{"test", path}.box<double>(name, {extents.begin(), extents.end()}, box);
}

std::size_t files_in(Scratch const& scratch) {
  std::filesystem::directory_iterator const all(scratch.folder());
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

}  // namespace

TEST_CASE("weights: what one decomposition saves, another loads") {
  Scratch const scratch;
  std::string const path = scratch / "weights.h5";
  Net const saved = trained(first(), 3);
  io::save_weights(saved, path);
  CHECK(files_in(scratch) == 1);

  Net const loaded = trained(second(), 4);
  REQUIRE(values_of(loaded) != values_of(saved));
  io::load_weights(loaded, path);
  CHECK(values_of(loaded) == values_of(saved));

  // Once more on top of the old file.
  io::save_weights(trained(second(), 5), path);
  io::load_weights(loaded, path);
  CHECK(values_of(loaded) == values_of(trained(first(), 5)));
  CHECK(files_in(scratch) == 1);
}

TEST_CASE("weights: shards are saved as one whole, and any decomposition takes its own") {
  using Split = Distribution<Sample, Channel, Depth>;
  auto const with = [](Counts const& counts) {
    return sequential<float>(RankGrid<Split>(world(), counts), SampleShape<3>{.channels = 4, .space = {4, 3, 2}},
                             conv3d<3>(5, same, Stationary::x), conv3d<3>(4, same, Stationary::y), dense(3, flattened));
  };
  auto const whole = [](Net const& net) {
    std::vector<std::vector<float>> all;
    for (auto const* p : net.parameters()) all.push_back(p->download_whole(net.input_ranks().world()));
    return all;
  };
  Scratch const scratch;
  std::string const path = scratch / "weights.h5";
  Net saved = with({.channel = world().size()});
  saved.allocate(2, 3);
  io::save_weights(saved, path);
  if (world().size() > 1) CHECK(saved.parameters()[0]->count() < saved.parameters()[0]->whole_count());
  for (Counts const& counts : {Counts{.sample = world().size()}, Counts{.depth = world().size()}}) {
    Net loaded = with(counts);
    loaded.allocate(2, 4);
    CHECK(whole(loaded) != whole(saved));
    io::load_weights(loaded, path);
    CHECK(whole(loaded) == whole(saved));
  }
}

TEST_CASE("weights: a dataset for each parameter under PyTorch's name, with PyTorch's shape") {
  Scratch const scratch;
  std::string const path = scratch / "weights.h5";
  Net const net = trained(first(), 3);
  io::save_weights(net, path);
  std::vector<std::pair<std::string, Extents>> const expected{
      {"conv1.weight", {3, 2, 3, 3, 3}}, {"conv1.bias", {3}},
      {"batch_norm1.weight", {3}},       {"batch_norm1.bias", {3}},
      {"dense1.weight", {2, 180}},       {"dense1.bias", {2}},
      {"batch_norm1.running_mean", {3}}, {"batch_norm1.running_var", {3}}};
  auto const values = values_of(net);
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    auto const& [name, extents] = expected[i];
    CAPTURE(name);
    io::Hdf5Dataset const set("test", path, name);
    CHECK(set.extents() == extents);
    CHECK(set.type() == (i < 6 ? io::detail::FileType::float32 : io::detail::FileType::float64));
    CHECK(all_of(path, name, extents) == values[i]);
  }
}

TEST_CASE("weights: those of another network are refused on every rank, and change nothing") {
  Scratch const scratch;
  std::string const path = scratch / "weights.h5", quoted = "'" + path + "'";
  Net const net = trained(first(), 3);
  auto const before = values_of(net);
  auto const refusal = [&] { return message_of([&] { io::load_weights(net, path); }); };
  CHECK(refusal() == "load_weights: the file " + quoted + " must be there and readable (No such file or directory)");

  Net other = network(second(), 3, 5);
  other.allocate(1);
  io::save_weights(other, path);
  CHECK(refusal() == "load_weights: dataset 'dense1.weight' of " + quoted +
                         " must have the shape (2, 180) of this network, " +
                         "but its shape is (5, 180); give weights that were saved from the same network");

  Net plain = sequential<float>(RankGrid<Spatial>(world(), second()), SampleShape<3>{.channels = 2, .space = {4, 3, 5}},
                                conv3d<3>(3, same, no_bias));
  plain.allocate(1);
  io::save_weights(plain, path);
  CHECK(refusal() ==
        "load_weights: the file " + quoted + " must hold a dataset 'conv1.bias', but it holds 'conv1.weight'");
  CHECK(values_of(net) == before);
}

TEST_CASE("weights: a place that cannot be written is said on every rank") {
  Scratch const scratch;
  Net const net = trained(first(), 3);
  auto const refusal = [&](std::string const& path) { return message_of([&] { io::save_weights(net, path); }); };
  std::string const absent = scratch / "absent", folder = scratch.folder().string();
  CHECK(refusal(absent + "/weights.h5") == "save_weights: the folder '" + absent + "' of '" + absent +
                                               "/weights.h5' must exist (No such file or directory); " +
                                               "create it or choose another");
  CHECK(refusal(folder) ==
        "save_weights: '" + folder + "' must be the name of a file, but it is a folder; add a file name");
  CHECK(refusal(absent + "/") == "save_weights: '" + absent + "/' must be the name of a file; add a file name");
  CHECK(refusal("") == "save_weights: '' must be the name of a file; add a file name");
  CHECK(refusal("/dev/null") ==
        "save_weights: '/dev/null' must be the name of a file, but it is a device or pipe; choose another name");
  CHECK(files_in(scratch) == 0);
  MPI_Barrier(MPI_COMM_WORLD);  // nobody makes what others have yet to count

  std::string const path = scratch / "weights.h5";
  if (world().rank() == 0) std::ofstream(path).flush();
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(refusal(path + "/weights.h5") ==
        "save_weights: '" + path + "' in '" + path + "/weights.h5' must be a folder; choose another");
}

TEST_CASE("weights: a disk that fills up leaves what was there before") {
  Scratch const scratch;
  std::string const path = scratch / "weights.h5";
  Net const net = trained(first(), 3);
  io::save_weights(net, path);
  for (rlim_t const bytes : {0, 1, 1000, 5000}) {
    CAPTURE(bytes);
    Net const other = trained(second(), 4);
    std::string said;
    {
      FullDisk const disk;
      disk.begin(bytes);
      said = message_of([&] { io::save_weights(other, path); });
    }
    CHECK(said == "save_weights: '" + path +
                      "' must take what is written to it (File too large); check the disk and its quota");
    CHECK(files_in(scratch) == 1);
    io::load_weights(other, path);
    CHECK(values_of(other) == values_of(net));
  }
}

TEST_CASE("weights of 1-D and 2-D convolutions have the shapes that PyTorch gives them, cut or not") {
  using Filters = Distribution<Sample, Channel>;
  auto const net = [](Counts const& counts, auto const& first, auto const& second) {
    return sequential<float>(RankGrid<Filters>(world(), counts), SampleShape<2>{.channels = 4, .space = {6, 5}}, first,
                             second);
  };
  auto const check = [&](auto const& first, auto const& second, Extents const& one, Extents const& two) {
    Scratch const scratch;
    std::string const path = scratch / "weights.h5";
    Net cut = net({.channel = world().size()}, first, second), whole = net({.sample = world().size()}, first, second);
    cut.allocate(1, 3);
    whole.allocate(1, 4);
    io::save_weights(cut, path);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(io::Hdf5Dataset("test", path, cut.parameters()[0]->name()).extents() == one);
    CHECK(io::Hdf5Dataset("test", path, cut.parameters()[2]->name()).extents() == two);
    io::load_weights(whole, path);
    for (std::size_t i = 0; i < whole.parameters().size(); ++i)
      CHECK(whole.parameters()[i]->download() == cut.parameters()[i]->download_whole(world()));
    io::save_weights(whole, path);
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<std::vector<float>> before;
    for (auto const* p : cut.parameters()) before.push_back(p->download());
    cut.parameters()[0]->set(std::vector<float>(before[0].size(), 0.5f));
    io::load_weights(cut, path);
    for (std::size_t i = 0; i < before.size(); ++i) CHECK(cut.parameters()[i]->download() == before[i]);
  };
  check(conv2d(5, kernel(3, 2), padding(1)), transposed_conv2d(4, kernel(2, 1), stride(2)), {5, 4, 3, 2}, {5, 4, 2, 1});
  check(conv1d(6, kernel(3), padding(1), groups(2)), conv1d<1>(1), {6, 2, 3}, {1, 6, 1});
  check(conv3d(3, kernel(1, 3, 1)), conv2d(2, kernel(1, 1)), {3, 4, 1, 3, 1}, {2, 3, 1, 1});
}
