// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Input beside the plainest way to get the same bytes, in the same run: boxes of HDF5 files beside pread, a store's
// micro-batch beside MPI_Sendrecv, training from files beside training from memory. Pairs of runs, one of each in turn,
// and a table of their medians; files lie in the page cache. On 1 rank, or on 2 for the store. --folder <path> says
// where the files go (default: a folder in /tmp), --pairs <n> how many pairs.

#include <fcntl.h>
#include <hdf5.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/comm/rank_grid.hpp"
#include "tessera/io/hdf5.hpp"
#include "tessera/io/sample_store.hpp"
#include "tessera/io/source.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/flat_dense.hpp"
#include "tessera/layer/pool.hpp"
#include "tessera/model/model.hpp"
#include "tessera/train/trainer.hpp"

namespace {

using namespace tessera;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t side = 128, channels = 4, samples = 8;
constexpr Shape shape{1, side, side, side, channels};

double seconds(std::function<void()> const& run) {
  auto const begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// A line of the table: peer time / our time, from pairs of runs. Returns that ratio.
double compare(bool speaks, int pairs, char const* what, char const* peer_name, double bytes,
               std::function<void()> const& ours, std::function<void()> const& peer) {
  ours();
  peer();
  std::vector<double> mine, theirs, ratios;
  for (int i = 0; i < pairs; ++i) {
    mine.push_back(seconds(ours));
    theirs.push_back(seconds(peer));
    ratios.push_back(theirs.back() / mine.back());
  }
  std::sort(ratios.begin(), ratios.end());
  double const ratio = ratios[ratios.size() / 2];
  if (speaks)
    std::printf("%-34s %-26s %8.2f ms %8.2f ms %8.0f MB/s   %.2f (%.2f to %.2f)\n", what, peer_name, 1e3 * median(mine),
                1e3 * median(theirs), 1e-6 * bytes / median(mine), ratio, ratios[ratios.size() / 4],
                ratios[3 * ratios.size() / 4]);
  std::fflush(stdout);
  return ratio;
}

enum class Layout { contiguous, chunked, packed };

/// Samples `x` (n, D, H, W, C) of int16 with little noise, and a value `y` for each.
void write(std::string const& path, Layout layout, std::int64_t count, Shape const& s) {
  io::detail::Hdf5Quiet const quiet;
  io::detail::Hdf5Handle const file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  auto const u = [](std::int64_t n) { return static_cast<hsize_t>(n); };
  hsize_t const extents[] = {u(count), u(s.depth), u(s.height), u(s.width), u(s.channel)}, y_extents[] = {u(count), 1},
                chunk[] = {1, u(s.depth / 4), u(s.height / 4), u(s.width / 4), u(s.channel)};
  io::detail::Hdf5Handle const form(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  if (layout != Layout::contiguous) H5Pset_chunk(form.get(), 5, chunk);
  if (layout == Layout::packed) {
    H5Pset_shuffle(form.get());
    H5Pset_deflate(form.get(), 4);
  }
  std::vector<std::int16_t> x(static_cast<std::size_t>(count * s.volume()));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::int16_t>((i * 2654435761u >> 22) % 13);
  std::vector<float> const y(static_cast<std::size_t>(count), 0.5f);
  auto const put = [&](char const* name, int rank, hsize_t const* n, hid_t type, hid_t how, void const* values) {
    io::detail::Hdf5Handle const space(H5Screate_simple(rank, n, nullptr), H5Sclose);
    io::detail::Hdf5Handle const set(H5Dcreate2(file.get(), name, type, space.get(), H5P_DEFAULT, how, H5P_DEFAULT),
                                     H5Dclose);
    require(H5Dwrite(set.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0, "bench_io", "cannot write ", path);
  };
  put("x", 5, extents, H5T_NATIVE_INT16, form.get(), x.data());
  put("y", 2, y_extents, H5T_NATIVE_FLOAT, H5P_DEFAULT, y.data());
}

/// Where the cells of a contiguous dataset begin.
std::int64_t offset_of(std::string const& path) {
  io::detail::Hdf5Quiet const quiet;
  io::detail::Hdf5Handle const file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  io::detail::Hdf5Handle const set(H5Dopen2(file.get(), "x", H5P_DEFAULT), H5Dclose);
  return static_cast<std::int64_t>(H5Dget_offset(set.get()));
}

/// A box of 32 MiB of one sample of 128 MiB, along depth.
double read_large(bool speaks, int pairs, std::string const& folder) {
  Shape const large{1, 256, 256, 256, channels};
  std::string const path = folder + "/large.h5";
  write(path, Layout::contiguous, 1, large);
  std::int64_t const start = offset_of(path), plane = 2 * 256 * 256 * channels, bytes = 64 * plane;
  int const file = ::open(path.c_str(), O_RDONLY);
  io::Hdf5Source source(path);
  std::vector<std::byte> cells(static_cast<std::size_t>(bytes)), others(cells.size());
  Box const slab{{{0, 1}, {96, 160}, {0, 256}, {0, 256}, {0, channels}}};
  double const ratio = compare(
      speaks, pairs, "depth slab of 32 MiB, contiguous", "one pread", static_cast<double>(bytes),
      [&] { source.read_stored(io::Part::input, 0, slab, cells.data()); },
      [&] {
        require(::pread(file, others.data(), others.size(), start + 96 * plane) == bytes, "bench_io",
                "pread must give all bytes");
      });
  ::close(file);
  return ratio;
}

double read_files(bool speaks, int pairs, std::string const& folder) {
  std::string const plain = folder + "/plain.h5", chunked = folder + "/chunked.h5", packed = folder + "/packed.h5";
  write(plain, Layout::contiguous, samples, shape);
  write(chunked, Layout::chunked, samples, shape);
  write(packed, Layout::packed, samples, shape);
  std::int64_t const start = offset_of(plain);
  int const file = ::open(plain.c_str(), O_RDONLY);
  io::Hdf5Source contiguous(plain), in_chunks(chunked), compressed(packed);
  std::vector<std::byte> cells(static_cast<std::size_t>(2 * shape.volume())), others(cells.size());
  std::int64_t at = 0, peer_at = 0;
  auto const slab = [](std::int64_t n) { return Box{{{n, n + 1}, {32, 64}, {0, side}, {0, side}, {0, channels}}}; };
  auto const block = [](std::int64_t n) { return Box{{{n, n + 1}, {0, side}, {0, side}, {32, 64}, {0, channels}}}; };
  auto const pread_at = [&](std::int64_t cell, std::int64_t count, std::byte* to) {
    require(::pread(file, to, static_cast<std::size_t>(2 * count), start + 2 * cell) == 2 * count, "bench_io",
            "pread must give all bytes");
  };
  auto const read_slab = [&](io::Hdf5Source& source) {
    return [&] {
      std::int64_t const n = at++ % samples;
      source.read_stored(io::Part::input, n, slab(n), cells.data());
    };
  };
  auto const peer_slab = [&] {
    std::int64_t const n = peer_at++ % samples, plane = side * side * channels;
    pread_at(n * shape.volume() + 32 * plane, 32 * plane, others.data());
  };
  auto const peer_rows = [&] {
    std::int64_t const n = peer_at++ % samples;
    std::byte* to = others.data();
    for (std::int64_t row = 0; row < side * side; ++row, to += 2 * 32 * channels)
      pread_at(n * shape.volume() + (row * side + 32) * channels, 32 * channels, to);
  };
  double const bytes = 2.0 * 32 * side * side * channels;
  double const ratio =
      compare(speaks, pairs, "depth slab of 4 MiB, contiguous", "one pread", bytes, read_slab(contiguous), peer_slab);
  compare(
      speaks, pairs, "width block, contiguous", "a pread per row", bytes,
      [&] {
        std::int64_t const n = at++ % samples;
        contiguous.read_stored(io::Part::input, n, block(n), cells.data());
      },
      peer_rows);
  compare(speaks, pairs, "depth slab, chunks of 32^3", "one pread, contiguous", bytes, read_slab(in_chunks), peer_slab);
  compare(speaks, pairs, "depth slab, gzip and shuffle", "one pread, contiguous", bytes, read_slab(compressed),
          peer_slab);
  ::close(file);
  return ratio;
}

/// Samples in memory, as they are stored.
struct Cells {
  Shape of;
  std::int64_t count;
  std::vector<std::int16_t> x;

  Cells(Shape const& s, std::int64_t n) : of(s), count(n), x(static_cast<std::size_t>(n * s.volume()), 3) {}
  std::int64_t size() const { return count; }
  io::StoredField field(io::Part part) const {
    if (part == io::Part::input) return {of, io::CellType::int16};
    return {{.channel = 1}, io::CellType::float32};
  }
  void read_stored(io::Part part, std::int64_t sample, Box const& box, std::byte* cells) const {
    if (part == io::Part::input)
      io::copy_stored(field(part), reinterpret_cast<std::byte const*>(x.data() + sample * of.volume()), of.box(), cells,
                      box, box);
    else if (!box.empty())
      std::memset(cells, 0, 4);
  }
};

/// Two ranks want each the sample that the other keeps.
double exchange(bool speaks, int pairs, Communicator<Mpi> const& world) {
  using Policy = Distribution<axes::Sample>;
  RankGrid<Policy> const ranks(world, Counts{.sample = 2});
  io::StoreOptions options{.ahead = 0};
  options.owner = [](std::int64_t sample) { return 1 - sample; };
  io::SampleStore<Cells> store(ranks, Cells(shape, 2), options);
  Partition const input(ranks.grid(), shape.with_samples(2)), target(ranks.grid(), Shape{2, 1, 1, 1, 1});
  io::BatchRequest const request{{0, 1},
                                 {},
                                 [&](std::int64_t rank) { return input.owned(rank); },
                                 [&](std::int64_t rank) { return target.owned(rank); }};
  std::int64_t const bytes = 2 * shape.volume();
  std::vector<std::byte> out(static_cast<std::size_t>(bytes)), in(out);
  int const other = 1 - world.rank();
  return compare(
      speaks, pairs, "store, a sample from rank to rank", "MPI_Sendrecv", static_cast<double>(bytes),
      [&] {
        store.fetch(request);
        world.barrier();
      },
      [&] {
        MPI_Sendrecv(out.data(), static_cast<int>(bytes), MPI_BYTE, other, 0, in.data(), static_cast<int>(bytes),
                     MPI_BYTE, other, 0, world.native(), MPI_STATUS_IGNORE);
        world.barrier();
      });
}

/// An epoch on files that are read again each time, beside one on cells that are in memory.
double training(bool speaks, int pairs, Communicator<Mpi> const& world, std::string const& folder) {
  using Policy = Distribution<axes::Depth>;
  Shape const cube{1, 64, 64, 64, channels};
  std::int64_t const count = 6;
  std::string const path = folder + "/training.h5";
  if (world.rank() == 0) write(path, Layout::contiguous, count, cube);
  world.barrier();
  RankGrid<Policy> const ranks(world, Counts{.depth = world.size()});
  auto const net =
      sequential<float>(ranks, SampleShape<3>{.channels = channels, .space = {64, 64, 64}}, conv3d<3>(8, same),
                        leaky_relu(0.01), avg_pool3d<2>(), conv3d<3>(16, same), leaky_relu(0.01), dense(1, flattened));
  Trainer trainer{net, Adam{.rate = 1e-4}, MeanSquaredError{}};
  io::SampleStore<io::Hdf5Source> files(ranks, io::Hdf5Source(path), {.budget_bytes = 0, .ahead = 2});
  Cells memory(cube, count);
  FitOptions const options{.epochs = 1, .batch = 1};
  return compare(
      speaks, pairs, "training, files read ahead", "samples in memory",
      2.0 * static_cast<double>(count * cube.volume()), [&] { trainer.fit(files, options); },
      [&] { trainer.fit(memory, options); });
}

}  // namespace

int main(int argc, char** argv) {
  Environment const env(argc, argv);
  return env.guard([&] {
    auto const world = env.world();
    std::string folder = "/tmp/tessera_bench_io";
    int pairs = 15;
    for (int i = 1; i + 1 < argc; ++i) {
      if (std::strcmp(argv[i], "--folder") == 0) folder = argv[i + 1];
      if (std::strcmp(argv[i], "--pairs") == 0) pairs = std::max(1, std::atoi(argv[i + 1]));
    }
    require(world.size() <= 2, "bench_io", "runs on 1 or 2 ranks, not on ", world.size());
    bool const speaks = world.rank() == 0;
    if (speaks) {
      std::filesystem::create_directories(folder);
      std::printf("%d pairs, files in the page cache; ratio: median of peer / ours, and its quartiles\n", pairs);
      std::printf("%-34s %-26s %11s %11s %13s   %s\n", "what", "beside", "ours", "peer", "ours", "ratio");
    }
    world.barrier();
    if (world.size() == 1) {
      double const slab = read_files(speaks, pairs, folder), large = read_large(speaks, pairs, folder),
                   trained = training(speaks, pairs, world, folder);
      std::printf("bench_io: slab=%.2f slab_large=%.2f training=%.2f\n", slab, large, trained);
    } else {
      double const moved = exchange(speaks, pairs, world);
      if (speaks) std::printf("bench_io: store=%.2f\n", moved);
    }
    world.barrier();
    if (speaks) std::filesystem::remove_all(folder);
    return 0;
  });
}
