// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A store reads packed HDF5 files ahead on its thread, while the main thread takes micro-batches, reads other files and
// writes one. Built with the thread sanitizer, which ends the program with an error if two threads get in each other's
// way. threads <folder>

#include <hdf5.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/comm/rank_grid.hpp"
#include "tessera/io/batch.hpp"
#include "tessera/io/hdf5.hpp"
#include "tessera/io/hdf5_draft.hpp"
#include "tessera/io/sample_store.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/shard.hpp"

namespace {

using namespace tessera;
using Split = Distribution<axes::Sample, axes::Depth>;
using Host = Kokkos::DefaultHostExecutionSpace;
using Store = io::SampleStore<io::Hdf5Source>;
constexpr std::int64_t samples = 12, side = 8;

std::int16_t cell(std::int64_t sample, std::int64_t index) { return static_cast<std::int16_t>(sample * 600 + index); }

void write(std::string const& path) {
  io::detail::Hdf5Quiet const quiet;
  io::detail::Hdf5Handle const file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  hsize_t const x_extents[] = {samples, side, side, side, 1}, y_extents[] = {samples, 2}, chunk[] = {1, 4, 4, 4, 1};
  io::detail::Hdf5Handle const form(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_chunk(form.get(), 5, chunk);
  H5Pset_deflate(form.get(), 4);
  std::vector<std::int16_t> x;
  std::vector<float> y;
  for (std::int64_t n = 0; n < samples; ++n) {
    for (std::int64_t i = 0; i < side * side * side; ++i) x.push_back(cell(n, i));
    y.push_back(static_cast<float>(n));
    y.push_back(-1.0f);
  }
  auto const put = [&](char const* name, int rank, hsize_t const* extents, hid_t type, hid_t how, void const* values) {
    io::detail::Hdf5Handle const space(H5Screate_simple(rank, extents, nullptr), H5Sclose);
    io::detail::Hdf5Handle const set(H5Dcreate2(file.get(), name, type, space.get(), H5P_DEFAULT, how, H5P_DEFAULT),
                                     H5Dclose);
    require(H5Dwrite(set.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0, "threads", "cannot write");
  };
  put("x", 5, x_extents, H5T_NATIVE_INT16, form.get(), x.data());
  put("y", 2, y_extents, H5T_NATIVE_FLOAT, H5P_DEFAULT, y.data());
}

void run(Communicator<Mpi> const& world, std::string const& folder) {
  std::string const path = folder + "/samples.h5";
  if (world.rank() == 0) write(path);
  world.barrier();
  RankGrid<Split> const ranks(world, {.sample = 1, .depth = world.size()});
  for (std::int64_t budget : {std::int64_t{0}, std::int64_t{5000}, std::int64_t{1} << 30}) {
    Store store(ranks, io::Hdf5Source(world, path), {.budget_bytes = budget, .ahead = 3});
    io::Hdf5Source beside(world, path);
    io::BatchReader<float, Host> reader;
    std::vector<float> again(static_cast<std::size_t>(side * side * side));
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      auto const order = io::shuffled(samples, 4, epoch);
      auto const request = [&](std::int64_t k) {
        Partition const input(ranks.grid(), Shape{2, side, side, side, 1}), target(ranks.grid(), Shape{2, 1, 1, 1, 2});
        return io::BatchRequest{{order.begin() + 2 * k, order.begin() + 2 * k + 2},
                                epoch,
                                [input](std::int64_t rank) { return input.owned(rank); },
                                [target](std::int64_t rank) { return target.owned(rank); }};
      };
      store.expect(samples / 2, request);
      for (std::int64_t k = 0; k < samples / 2; ++k) {
        auto const wanted = request(k);
        store.fetch(wanted);
        Shard<float, Host> const x(Partition(ranks.grid(), Shape{2, side, side, side, 1}), world.rank());
        reader.take(store, io::Part::input, x, x.owned());
        for_each_position("threads", Host(), x.owned(), [&](std::int64_t const at[4], Interval) {
          auto const value =
              cell(wanted.samples[static_cast<std::size_t>(at[0])], (at[1] * side + at[2]) * side + at[3]);
          require(x(at[0], at[1], at[2], at[3], 0) == static_cast<float>(value), "threads",
                  "a cell has another value than its file's");
        });
        beside.read_input(k, Shape{1, side, side, side, 1}.box(), again.data());
        if (world.rank() == 0) {
          io::Hdf5Draft<float> draft(
              "threads", folder + "/beside.h5", {{"numbers", {3}}}, [](hid_t) {}, 0);
          draft.fill({1, 2, 3});
          draft.commit();
        }
      }
    }
  }
  if (world.rank() == 0) std::printf("threads: good\n");
}

}  // namespace

int main(int argc, char** argv) {
  Environment const env{argc, argv};
  return env.guard([&] {
    require(argc == 2, "threads", "needs a folder");
    run(env.world(), argv[1]);
    return 0;
  });
}
