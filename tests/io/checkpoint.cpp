// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/io/checkpoint.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/full_disk.hpp"
#include "support/scratch.hpp"
#include "tessera/io/crc32.hpp"
#include "tessera/layer/batch_norm.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/flat_dense.hpp"
#include "tessera/model/frozen.hpp"
#include "tessera/model/model.hpp"
#include "tessera/partition/counts_text.hpp"

namespace {

using namespace tessera;
using tessera::test::FullDisk;
using tessera::test::message_of;
using tessera::test::Scratch;
using AnySplit = Distribution<axes::Sample, axes::Channel, axes::Depth, axes::Height, axes::Width>;
using Net = Model<float>;
using Method = Optimizer<float, Net::execution_space, Adam>;
using Storages = Storage<float, Net::execution_space>;

Communicator<Mpi> world() { return Communicator<Mpi>::borrow(MPI_COMM_WORLD); }

Net network(RankGrid<AnySplit> const& ranks, std::optional<Partition> const& cut = {}, std::int64_t outputs = 5) {
  Partition const sample =
      cut.value_or(Partition(ranks.grid(), SampleShape<3>{.channels = 6, .space = {4, 3, 5}}.shape()));
  return sequential<float>(ranks, sample, conv3d<3>(6, same, Stationary::x), batch_norm(),
                           conv3d<3>(4, same, Stationary::y), dense(3, flattened), dense(outputs));
}

/// What a training must have for a checkpoint.
struct Run {
  explicit Run(Net const& net) : model(net) { model.allocate(2); }
  Net model;
  Method optimizer{Adam{}};
};

/// All ways to cut over so many ranks.
std::vector<Counts> all_counts(std::int64_t ranks) {
  std::vector<Counts> found;
  std::function<void(Counts, std::size_t, std::int64_t)> const go = [&](Counts counts, std::size_t axis,
                                                                        std::int64_t left) {
    if (axis == axis_count) {
      if (left == 1) found.push_back(counts);
      return;
    }
    for (std::int64_t n = 1; n <= left; ++n)
      if (left % n == 0) {
        counts[rank_order[axis]] = n;
        go(counts, axis + 1, left / n);
      }
  };
  go({}, 0, ranks);
  return found;
}

/// A whole parameter, or what the optimizer keeps of it, as it shall be: from its name in files alone.
std::vector<float> whole(std::string const& name, std::int64_t count) {
  RandomStream const random = random_stream(7, name);
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(random.uniform(i, 1.0)));
  return values;
}

/// The part of it that a shard holds, element by element.
std::vector<float> part_of(std::vector<float> const& all, std::vector<std::int64_t> const& shape,
                           std::vector<Interval> const& shard) {
  std::vector<float> part;
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    bool inside = true;
    for (std::size_t axis = shape.size(); axis-- > 0; rest /= shape[axis])
      inside = inside && shard[axis].contains(rest % shape[axis]);
    if (inside) part.push_back(all[i]);
  }
  return part;
}

/// visit(name in files, parameter, where its numbers are) for everything that has shards.
void for_each_stored(Run& run, std::function<void(std::string const&, Parameter<float, Net::execution_space> const&,
                                                  Storages const&)> const& visit) {
  auto const& parameters = run.model.parameters();
  auto const& states = run.optimizer.states(parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto const& p = *parameters[i];
    visit(p.name(), p, p.storage());
    if (!p.trainable()) continue;
    visit("optimizer/adam/mean/" + p.name(), p, states[i][0]);
    visit("optimizer/adam/square/" + p.name(), p, states[i][1]);
  }
}

/// A run whose every number follows from its name, and from nothing else.
Run marked(Net const& net) {
  Run run(net);
  for_each_stored(run, [](std::string const& name, auto const& p, Storages const& numbers) {
    p.set(part_of(whole(name, p.whole_count()), p.shape(), p.shard()), numbers);
  });
  net.for_each_buffer([](std::string const& name, std::vector<double>& values) {
    RandomStream const random = random_stream(8, name);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = random.uniform(static_cast<std::int64_t>(i), 1.0);
  });
  run.optimizer.set_steps(41);
  return run;
}

/// Whether it holds just these numbers.
bool is_marked(Run& run) {
  bool good = run.optimizer.steps() == 41;
  for_each_stored(run, [&](std::string const& name, auto const& p, Storages const& numbers) {
    good = good && p.download(numbers) == part_of(whole(name, p.whole_count()), p.shape(), p.shard());
  });
  run.model.for_each_buffer([&](std::string const& name, std::vector<double>& values) {
    RandomStream const random = random_stream(8, name);
    for (std::size_t i = 0; i < values.size(); ++i)
      good = good && values[i] == random.uniform(static_cast<std::int64_t>(i), 1.0);
  });
  return good;
}

TrainingState some_state() {
  TrainingState state;
  state.epoch = 2;
  state.samples_done = 6;
  state.loss_sum = 0.1;
  state.seconds = 3.7;
  state.epoch_seconds = 0.3;
  state.reports = {{1, 0.3, std::nan(""), 1.5, 17}, {2, 0.1 / 3, 0.2, 1.7, 34}};
  state.seed = std::numeric_limits<std::uint64_t>::max();
  state.shuffle = false;
  state.batch = 3;
  state.samples = 50;
  return state;
}

void save(Run& run, std::string const& path) { io::save_checkpoint(run.model, run.optimizer, some_state(), path); }

std::size_t files_in(Scratch const& scratch) {
  std::filesystem::directory_iterator const all(scratch.folder());
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

std::string bytes_of(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("crc32: that of zlib, in pieces of any length") {
  std::string text = "123456789";
  auto const of = [](std::string const& bytes, std::size_t first) {
    io::Crc32 sum;
    sum.add(std::string_view(bytes).substr(0, first));
    sum.add(std::string_view(bytes).substr(first));
    return sum.value();
  };
  CHECK(of("", 0) == 0);
  CHECK(of(text, 0) == 0xcbf43926u);  // the check value of the standard
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i * 37);
  for (std::size_t first = 0; first < text.size(); ++first) CHECK(of(text, first) == 0x0917fb97u);  // zlib.crc32
}

TEST_CASE("checkpoint: what any decomposition writes, any other reads") {
  Scratch const scratch;
  std::string const path = scratch / "checkpoint.h5";
  int pairs = 0;
  for (Counts const& from : all_counts(world().size())) {
    Run written = marked(network({world(), from}));
    save(written, path);
    CHECK(files_in(scratch) == 1);
    for (Counts const& to : all_counts(world().size())) {
      CAPTURE(to_text(from));
      CAPTURE(to_text(to));
      Run read(network({world(), to}));
      CHECK_FALSE(is_marked(read));
      io::load_checkpoint(read.model, read.optimizer, path);
      CHECK(is_marked(read));
      ++pairs;
    }
  }
  CHECK(pairs >= (world().size() == 4 ? 225 : world().size() > 1 ? 25 : 1));
}

TEST_CASE("case 29: a checkpoint of any number of ranks serves any other") {
  Scratch const scratch;
  std::string const path = scratch / "checkpoint.h5";
  // The first `count` ranks, cut along channels; the others get nothing.
  auto const group_of = [](int count) { return world().split(world().rank() < count ? 0 : 1, world().rank()); };
  for (int from = 1; from <= world().size(); ++from)
    for (int to = 1; to <= world().size(); ++to) {
      CAPTURE(from);
      CAPTURE(to);
      auto const writers = group_of(from), readers = group_of(to);
      if (world().rank() < from) {
        Run written = marked(network({writers, {.channel = from}}));
        save(written, path);
      }
      MPI_Barrier(MPI_COMM_WORLD);
      if (world().rank() < to) {
        Run read(network({readers, {.channel = to}}));
        io::load_checkpoint(read.model, read.optimizer, path);
        CHECK(is_marked(read));
      }
      MPI_Barrier(MPI_COMM_WORLD);
    }
}

TEST_CASE("case 29: six channels on four ranks as [2, 2, 2, 0]") {
  if (world().size() != 4) return;
  Scratch const scratch;
  std::string const path = scratch / "checkpoint.h5";
  auto const cut_at = [](std::vector<std::int64_t> boundaries) {
    RankGrid<AnySplit> const ranks(world(), {.channel = 4});
    std::array<Blocks, axis_count> const blocks{Blocks(1, 1), Blocks(4, 1), Blocks(3, 1), Blocks(5, 1),
                                                Blocks::at(std::move(boundaries))};
    return network(ranks, Partition(ranks.grid(), blocks));
  };
  std::vector<std::vector<std::int64_t>> const all{{0, 2, 4, 6, 6}, {0, 0, 6, 6, 6}, {0, 1, 2, 3, 6}};
  for (auto const& from : all) {
    Run written = marked(cut_at(from));
    if (from == all[0]) CHECK(written.model.parameters()[0]->shard()[1].size() == (world().rank() < 3 ? 2 : 0));
    save(written, path);
    for (auto const& to : all) {
      Run read(cut_at(to));
      io::load_checkpoint(read.model, read.optimizer, path);
      CHECK(is_marked(read));
    }
    Run balanced(network({world(), {.channel = 2, .width = 2}}));
    io::load_checkpoint(balanced.model, balanced.optimizer, path);
    CHECK(is_marked(balanced));
  }
}

TEST_CASE("checkpoint: a row of weights that is read in pieces") {
  Scratch const scratch;
  std::string const path = scratch / "weights.h5";
  auto const wide = [](Counts const& counts) {
    return sequential<float>(RankGrid<AnySplit>(world(), counts), SampleShape<3>{.channels = 2, .space = {97, 80, 83}},
                             dense(3, flattened, no_bias));
  };
  int const ranks = world().size();
  Net written = wide({.height = ranks}), read = wide({.width = ranks});
  written.allocate(1, 3);
  read.allocate(1, 4);
  io::save_weights(written, path);
  io::load_weights(read, path);
  Net expected = wide({.width = ranks});  // from the same seed
  expected.allocate(1, 3);
  CHECK(read.parameters()[0]->download() == expected.parameters()[0]->download());
}

TEST_CASE("checkpoint: datasets have PyTorch's names, shapes and order, and attributes say where the training stood") {
  Scratch const scratch;
  std::string const path = scratch / "checkpoint.h5";
  Run run = marked(network({world(), {.channel = world().size()}}));
  save(run, path);
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> const expected{
      {"conv1.weight", {6, 6, 3, 3, 3}}, {"conv1.bias", {6}}, {"batch_norm1.weight", {6}}, {"batch_norm1.bias", {6}},
      {"conv2.weight", {4, 6, 3, 3, 3}}, {"conv2.bias", {4}}, {"dense1.weight", {3, 240}}, {"dense1.bias", {3}},
      {"dense2.weight", {5, 3}},         {"dense2.bias", {5}}};
  io::detail::ShardReader const reader{"test", path, false, true};
  for (std::string const group : {"", "optimizer/adam/mean/", "optimizer/adam/square/"})
    for (auto const& [name, shape] : expected) {
      CAPTURE(group + name);
      std::vector<Interval> all;
      std::int64_t count = 1;
      for (std::int64_t const n : shape) {
        all.push_back({0, n});
        count *= n;
      }
      CHECK(reader.box<float>(group + name, shape, all) == whole(group + name, count));
    }
  for (std::string const name : {"batch_norm1.running_mean", "batch_norm1.running_var"})
    CHECK(reader.box<double>(name, {6}, {{0, 6}}).size() == 6);

  Run read(network({world(), {.depth = world().size()}}));
  TrainingState const is = io::load_checkpoint(read.model, read.optimizer, path), was = some_state();
  CHECK(is.epoch == was.epoch);
  CHECK(is.samples_done == was.samples_done);
  CHECK(is.loss_sum == was.loss_sum);
  CHECK(is.seconds == was.seconds);
  CHECK(is.epoch_seconds == was.epoch_seconds);
  CHECK(is.seed == was.seed);
  CHECK(is.shuffle == was.shuffle);
  CHECK(is.batch == was.batch);
  CHECK(is.samples == was.samples);
  REQUIRE(is.reports.size() == 2);
  CHECK(std::isnan(is.reports[0].validation_loss));
  CHECK(is.reports[1].epoch == 2);
  CHECK(is.reports[1].train_loss == 0.1 / 3);
  CHECK(is.reports[1].validation_loss == 0.2);
  CHECK(is.reports[1].seconds == 1.7);
  CHECK(is.reports[1].step == 34);

  // Its weights serve where weights are asked for.
  Net other = network({world(), {.width = world().size()}});
  other.allocate(1);
  io::load_weights(other, path);
  for (auto const* p : other.parameters())
    CHECK(p->download() == part_of(whole(p->name(), p->whole_count()), p->shape(), p->shard()));
}

TEST_CASE("checkpoint: the same content makes the same file, and the first step needs none before it") {
  Scratch const scratch;
  std::string const first = scratch / "first.h5", second = scratch / "second.h5";
  Run a = marked(network({world(), {.channel = world().size()}})),
      b = marked(network({world(), {.sample = world().size()}}));
  save(a, first);
  save(b, second);
  CHECK(bytes_of(first) == bytes_of(second));

  Run fresh(network({world(), {.depth = world().size()}}));
  io::save_checkpoint(fresh.model, fresh.optimizer, TrainingState{}, first);
  TrainingState const state = io::load_checkpoint(a.model, a.optimizer, first);
  CHECK(state.is_new());
  CHECK(state.reports.empty());
  CHECK(a.optimizer.steps() == 0);
  auto const& first_states = a.optimizer.states(a.model.parameters())[0];
  for (auto const& numbers : first_states) {
    std::vector<float> const values = a.model.parameters()[0]->download(numbers);
    CHECK(std::count(values.begin(), values.end(), 0.0f) == static_cast<std::ptrdiff_t>(values.size()));
  }
}

TEST_CASE("checkpoint: frozen parameters have values and nothing else") {
  Scratch const scratch;
  std::string const path = scratch / "checkpoint.h5";
  auto const half_frozen = [](Counts const& counts) {
    return sequential<float>(RankGrid<AnySplit>(world(), counts), SampleShape<3>{.channels = 6, .space = {4, 3, 5}},
                             frozen(conv3d<3>(6, same, Stationary::x)), dense(3, flattened));
  };
  Run written = marked(half_frozen({.channel = world().size()})), read(half_frozen({.height = world().size()}));
  save(written, path);
  io::load_checkpoint(read.model, read.optimizer, path);
  CHECK(is_marked(read));
  CHECK(message_of([&] { io::Hdf5Dataset("test", path, "optimizer/adam/mean/conv1.weight"); }) ==
        "test: the file '" + path + "' must hold a dataset 'optimizer/adam/mean/conv1.weight', but it holds " +
            "'conv1.bias', 'conv1.weight', 'dense1.bias', 'dense1.weight', 'optimizer', 'training'");
}

TEST_CASE("checkpoint: a disk that fills up leaves the one before, and no other") {
  Scratch const scratch;
  std::string const path = scratch / "checkpoint.h5";
  Run run = marked(network({world(), {.channel = world().size()}}));
  save(run, path);
  std::string const before = bytes_of(path);
  Run other(network({world(), {.depth = world().size()}}));
  for (rlim_t const bytes : {0, 1, 600, 5000, 20000, 50000}) {
    CAPTURE(bytes);
    std::string said;
    {
      FullDisk const disk;
      disk.begin(bytes);
      said = message_of([&] { save(other, path); });
    }
    CHECK(said == "save_checkpoint: '" + path +
                      "' must take what is written to it (File too large); check the disk and its quota");
    CHECK(files_in(scratch) == 1);
    CHECK(bytes_of(path) == before);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  std::string const absent = scratch / "absent";
  CHECK(message_of([&] { save(run, absent + "/checkpoint.h5"); }) ==
        "save_checkpoint: the folder '" + absent + "' of '" + absent +
            "/checkpoint.h5' must exist (No such file or directory); create it or choose another");
}

TEST_CASE("checkpoint: a disk that fails while shards arrive is said by all, and nobody waits") {
  Scratch const scratch;
  std::string const path = scratch / "weights.h5";
  Net net = sequential<float>(RankGrid<AnySplit>(world(), {.channel = world().size()}),
                              SampleShape<3>{.channels = 6, .space = {4, 3, 5}}, dense(64, flattened, no_bias),
                              dense(256, no_bias), dense(64, no_bias));
  net.allocate(1);
  FullDisk const disk;
  // The outline is on the disk by then, and the first parameter, which is not the last one sent, does not fit.
  auto const fill_up = [&](hid_t) { disk.begin(20000); };
  auto const save_all = [&](auto finish) {
    io::detail::write_stored("test", net, path, io::detail::stored_weights(net), fill_up, 0, 0, finish);
  };
  CHECK(message_of([&] { save_all([](io::WholeFile&) {}); }) ==
        "test: '" + path + "' must take what is written to it (File too large); check the disk and its quota");
  CHECK(files_in(scratch) == 0);
}

namespace {

/// Writes what change(bytes) makes of a file's bytes.
void rewrite(std::string const& from, std::string const& to, std::function<void(std::string&)> const& change) {
  if (world().rank() == 0) {
    std::string bytes = bytes_of(from);
    change(bytes);
    std::ofstream(to, std::ios::binary | std::ios::trunc) << bytes;
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/// Lets HDF5 change a copy of a checkpoint, and gives it the header of one that was meant to be so.
void edit(std::string const& from, std::string const& to, std::function<void(hid_t)> const& change) {
  if (world().rank() == 0) {
    std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
    {
      io::detail::Hdf5Handle const file(H5Fopen(to.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
      change(file.get());
    }
    io::detail::Descriptor const file(to, O_RDWR);
    io::CheckpointHeader header;
    CHECK(io::make_header(file.get(), header));
    std::string const text = header.text();
    CHECK(::pwrite(file.get(), text.data(), text.size(), 0) == io::CheckpointHeader::size);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

void set_float(hid_t file, char const* name, float value) {
  io::detail::Hdf5Handle const set(H5Dopen2(file, name, H5P_DEFAULT), H5Dclose);
  io::detail::Hdf5Handle const space(H5Dget_space(set.get()), H5Sclose);
  hsize_t const start[] = {0, 0}, count[] = {1, 1};
  H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start, nullptr, count, nullptr);
  io::detail::Hdf5Handle const one(H5Screate_simple(2, count, nullptr), H5Sclose);
  H5Dwrite(set.get(), H5T_NATIVE_FLOAT, one.get(), space.get(), H5P_DEFAULT, &value);
}

}  // namespace

TEST_CASE("checkpoint: damaged and foreign ones are refused on every rank, and change nothing") {
  Scratch const scratch;
  std::string const good = scratch / "good.h5", bad = scratch / "bad.h5", quoted = "'" + bad + "'";
  Run run = marked(network({world(), {.channel = world().size()}}));
  save(run, good);
  auto const size = static_cast<std::int64_t>(std::filesystem::file_size(good));
  int cases = 0;
  auto const refused = [&](std::string const& reason) {
    std::string const said = message_of([&] { io::load_checkpoint(run.model, run.optimizer, bad); });
    CHECK(said == "load_checkpoint: " + reason);
    CHECK(is_marked(run));
    ++cases;
  };
  refused("the file " + quoted + " must be there and readable (No such file or directory)");

  for (std::int64_t const bytes : {std::int64_t{1}, std::int64_t{19}, std::int64_t{511}, std::int64_t{512},
                                   std::int64_t{2000}, size / 2, size - 1}) {
    CAPTURE(bytes);
    rewrite(good, bad, [&](std::string& all) { all.resize(static_cast<std::size_t>(bytes)); });
    refused(quoted + " must have " + (bytes < 512 ? "at least 512" : std::to_string(size)) + " bytes, but it has " +
            std::to_string(bytes) + "; it was not written or copied to its end");
  }
  rewrite(good, bad, [](std::string& all) { all.clear(); });
  refused(quoted + " must be a checkpoint, but it is empty");
  rewrite(good, bad, [](std::string& all) { all += '\0'; });
  refused(quoted + " must have " + std::to_string(size) + " bytes, but it has " + std::to_string(size + 1) +
          "; it was not written or copied to its end");

  io::save_weights(run.model, bad);
  refused(quoted + " must be a checkpoint of Tessera, but it does not begin like one; it is another HDF5 file");
  rewrite(good, bad, [](std::string& all) { all = "universe,omega_m\n"; });
  refused(quoted + " must be a checkpoint of Tessera, but it does not begin like one");
  rewrite(good, bad, [](std::string& all) { all[all.find("format 1") + 7] = '2'; });
  refused(quoted + " is of format 2, written by Tessera " +
          tessera::detail::text(version.major_number, ".", version.minor_number, ".", version.patch_number) +
          ", but this version reads formats up to 1; use the newer one");

  auto const edited = [&](auto change, std::string const& reason) {
    edit(good, bad, change);
    refused(reason);
  };
  edited(
      [](hid_t file) { H5Ldelete(file, "conv2.weight", H5P_DEFAULT); },
      "the file " + quoted + " must hold a dataset 'conv2.weight', but it holds 'batch_norm1.bias', " +
          "'batch_norm1.running_mean', 'batch_norm1.running_var', 'batch_norm1.weight', 'conv1.bias', " +
          "'conv1.weight', 'conv2.bias', 'dense1.bias', 'dense1.weight', 'dense2.bias', 'dense2.weight', 'optimizer'" +
          " and 1 more");
  std::string const top =
      "but it holds 'batch_norm1.bias', 'batch_norm1.running_mean', 'batch_norm1.running_var', "
      "'batch_norm1.weight', 'conv1.bias', 'conv1.weight', 'conv2.bias', 'conv2.weight', 'dense1.bias', "
      "'dense1.weight', 'dense2.bias', 'dense2.weight' and 2 more";
  edited([](hid_t file) { H5Ldelete(file, "optimizer/adam/square/dense1.bias", H5P_DEFAULT); },
         "the file " + quoted + " must hold a dataset 'optimizer/adam/square/dense1.bias', " + top);
  edited([](hid_t file) { H5Ldelete(file, "training/epochs", H5P_DEFAULT); },
         "the file " + quoted + " must hold a dataset 'training/epochs', " + top);
  edited([](hid_t file) { H5Ldelete(file, "training", H5P_DEFAULT); },
         "the file " + quoted + " must hold a group 'training', but it does not");
  edited([](hid_t file) { H5Adelete_by_name(file, "training", "seed", H5P_DEFAULT); },
         "the group 'training' in " + quoted + " must have an attribute 'seed', but it does not");
  edited(
      [](hid_t file) {
        H5Adelete_by_name(file, "training", "batch", H5P_DEFAULT);
        io::detail::Hdf5Handle const group(H5Gopen2(file, "training", H5P_DEFAULT), H5Gclose);
        io::detail::write_text(group.get(), "batch", "three");
      },
      "the attribute 'batch' of 'training' in " + quoted + " must be a number");
  edited(
      [](hid_t file) {
        H5Adelete_by_name(file, "training", "samples_done", H5P_DEFAULT);
        io::detail::Hdf5Handle const group(H5Gopen2(file, "training", H5P_DEFAULT), H5Gclose);
        io::detail::write_number(group.get(), "samples_done", std::int64_t{51});
      },
      quoted +
          " must say where the training stood, but says 2 epochs, 51 of 50 samples and 41 steps; take another "
          "checkpoint");
  edited(
      [](hid_t file) {
        H5Ldelete(file, "dense2.weight", H5P_DEFAULT);
        io::detail::write_dataset(file, "dense2.weight", {5, 3}, std::vector<double>(15, 0.5));
      },
      "dataset 'dense2.weight' of " + quoted +
          " must hold float as this network does, but it holds double; take its "
          "weights alone, with load_weights");
  edited(
      [](hid_t file) {
        H5Ldelete(file, "dense2.weight", H5P_DEFAULT);
        io::detail::write_dataset(file, "dense2.weight", {5, 3}, std::vector<std::int64_t>(15, 1));
      },
      "dataset 'dense2.weight' of " + quoted +
          " must hold int8, uint8, int16, uint16, int32, float or double, but it "
          "holds numbers of another size or sign");
  edited(
      [](hid_t file) {
        H5Ldelete(file, "dense2.weight", H5P_DEFAULT);
        io::detail::write_dataset(file, "dense2.weight", {3, 5}, std::vector<float>(15, 1.0f));
      },
      "dataset 'dense2.weight' of " + quoted +
          " must have the shape (5, 3) of this network, but its shape is (3, 5); "
          "give weights that were saved from the same network");

  // Another network, another optimizer.
  rewrite(good, bad, [](std::string&) {});
  Run larger = marked(network({world(), {.depth = world().size()}}, {}, 7));
  CHECK(
      message_of([&] { io::load_checkpoint(larger.model, larger.optimizer, bad); }) ==
      "load_checkpoint: dataset 'dense2.weight' of " + quoted +
          " must have the shape (7, 3) of this network, but its shape is (5, 3); give weights that were saved from the "
          "same network");
  CHECK(is_marked(larger));
  Net fewer = sequential<float>(RankGrid<AnySplit>(world(), {.depth = world().size()}),
                                SampleShape<3>{.channels = 6, .space = {4, 3, 5}}, conv3d<3>(6, same));
  Method adam{Adam{}};
  CHECK(message_of([&] { io::load_checkpoint(fewer, adam, bad); }) ==
        "load_checkpoint: " + quoted +
            " holds a network of 12 parameters and statistics, but this one has 2; resume with the same network");
  Optimizer<float, Net::execution_space, Sgd> sgd{Sgd{}};
  CHECK(message_of([&] { io::load_checkpoint(run.model, sgd, bad); }) ==
        "load_checkpoint: " + quoted + " was written with the optimizer 'adam', but this run has 'sgd'; resume with " +
            "the same, or take the weights alone with load_weights");

  // Values that are not finite, where they are not wanted. One rank alone may hold the value.
  edit(good, bad, [](hid_t file) { set_float(file, "dense2.weight", std::numeric_limits<float>::quiet_NaN()); });
  CHECK(message_of([&] { io::load_checkpoint(run.model, run.optimizer, bad, {.finite = true}); }) ==
        "load_checkpoint: dataset 'dense2.weight' of " + quoted +
            " must hold finite numbers alone; take a file from before the training went wrong");
  CHECK(message_of([&] { io::load_weights(run.model, bad, {.finite = true}); }) ==
        "load_weights: dataset 'dense2.weight' of " + quoted +
            " must hold finite numbers alone; take a file from before the training went wrong");
  CHECK(is_marked(run));
  io::load_checkpoint(run.model, run.optimizer, bad);
  CHECK(world().all_reduce(is_marked(run) ? 1 : 0, Reduce::min) == 0);
  CHECK(cases >= 22);

  Net none = network({world(), {.depth = world().size()}});
  CHECK(message_of([&] { io::save_checkpoint(none, adam, {}, bad); }) ==
        "save_checkpoint: the network has no parameters yet; allocate it first");
}

TEST_CASE("checkpoint: a byte that was flipped anywhere is found") {
  Scratch const scratch;
  std::string const good = scratch / "good.h5", bad = scratch / "bad.h5", quoted = "'" + bad + "'";
  Run run = marked(network({world(), {.channel = world().size()}}));
  save(run, good);
  auto const size = std::filesystem::file_size(good);
  RandomStream const random = random_stream(5, "flips");
  for (std::int64_t i = 0; i < 600; ++i) {
    // Each byte of the header's text, then anywhere.
    std::size_t const at = i < 100 ? static_cast<std::size_t>(i) : random.word(2 * i) % size;
    auto const bit = static_cast<char>(1 << random.word(2 * i + 1) % 8);
    CAPTURE(at);
    if (world().rank() == 0) {
      std::string bytes = bytes_of(good);
      bytes[at] = static_cast<char>(bytes[at] ^ bit);
      std::ofstream(bad, std::ios::binary | std::ios::trunc) << bytes;
      std::string const said = message_of([&] { io::read_header("test", bad, true); });
      CHECK(said.starts_with("test: " + quoted + " "));
      if (at >= 512)
        CHECK(said ==
              "test: " + quoted + " is damaged: the checksum of its bytes is not what was written; take another copy");
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(message_of([&] {
          io::load_checkpoint(run.model, run.optimizer, bad);
        }).starts_with("load_checkpoint: " + quoted + " "));
  CHECK(is_marked(run));
}

TEST_CASE("checkpoint: what one rank cannot read, and what ranks see differently, is said by all") {
  if (world().size() == 1) return;
  Scratch const scratch;
  Run run = marked(network({world(), {.channel = world().size()}}));
  std::string const path = scratch / "checkpoint.h5", other = scratch / "other.h5";
  save(run, path);
  bool const last = world().rank() == world().size() - 1;
  CHECK(message_of([&] { io::load_checkpoint(run.model, run.optimizer, last ? scratch / "absent.h5" : path); }) ==
        "load_checkpoint: the file '" + scratch / "absent.h5" +
            "' must be there and readable (No such file or directory)");
  run.optimizer.set_steps(42);
  save(run, other);
  run.optimizer.set_steps(41);
  CHECK(message_of([&] {
          io::load_checkpoint(run.model, run.optimizer, last ? other : path);
        }).ends_with("', but they do not; put it where all of them see it"));
  CHECK(is_marked(run));
}
