// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/io/hdf5.hpp"

#include <cmath>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/scratch.hpp"
#include "tessera/io/batch.hpp"
#include "tessera/tensor/shard.hpp"

namespace {

using namespace tessera;
using io::detail::Hdf5Handle;
using tessera::test::message_of;
using Extents = std::vector<hsize_t>;

static_assert(io::Source<io::Hdf5Source, float> && io::Source<io::Hdf5Source, double>);

Communicator<Mpi> world() { return Communicator<Mpi>::borrow(MPI_COMM_WORLD); }

/// What a file's elements are, and a value for each index that its type holds exactly.
struct Elements {
  char const* name;
  hid_t type;
  std::int64_t bytes;
  double scale, offset;
  std::int64_t period;

  double value(std::int64_t index) const { return scale * static_cast<double>(index % period) + offset; }
};

std::vector<Elements> const& element_types() {
  H5open();
  static std::vector<Elements> const types{{"int8", H5T_STD_I8LE, 1, 1, -125, 251},
                                           {"uint8", H5T_STD_U8LE, 1, 1, 0, 251},
                                           {"int16", H5T_STD_I16LE, 2, 1, -20000, 40000},
                                           {"int16, big-endian", H5T_STD_I16BE, 2, 1, -20000, 40000},
                                           {"uint16", H5T_STD_U16LE, 2, 1, 40000, 25000},
                                           {"int32", H5T_STD_I32LE, 4, -1, 2000000000, 1 << 20},
                                           {"float", H5T_IEEE_F32LE, 4, 0.25, -100, 1 << 20},
                                           {"double", H5T_IEEE_F64LE, 8, 1, 0x1p-40, 1 << 20},
                                           {"double, big-endian", H5T_IEEE_F64BE, 8, -1, 0x1p-40, 1 << 20}};
  return types;
}

/// A new file, or one more dataset in it; HDF5 converts the values to the file's type.
void put(std::string const& path, char const* name, Extents const& extents, Elements const& elements,
         bool first = true) {
  hsize_t const count = std::accumulate(extents.begin(), extents.end(), hsize_t{1}, std::multiplies<>());
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = elements.value(static_cast<std::int64_t>(i));
  Hdf5Handle const file(first ? H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)
                              : H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT),
                        H5Fclose);
  Hdf5Handle const space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), H5Sclose);
  Hdf5Handle const set(H5Dcreate2(file.get(), name, elements.type, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                       H5Dclose);
  require(H5Dwrite(set.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0, "put",
          "HDF5 must write");
}

std::int64_t index_of(Shape const& s, std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t c) {
  return (((n * s.depth + d) * s.height + h) * s.width + w) * s.channel + c;
}

/// Whether a rank's shard holds what the file holds at its indices.
template <class T>
bool is_right(Shard<T> const& shard, Elements const& elements, bool log) {
  Interval const* own = shard.owned().axis;
  for (std::int64_t n = own[0].begin; n < own[0].end; ++n)
    for (std::int64_t d = own[1].begin; d < own[1].end; ++d)
      for (std::int64_t h = own[2].begin; h < own[2].end; ++h)
        for (std::int64_t w = own[3].begin; w < own[3].end; ++w)
          for (std::int64_t c = own[4].begin; c < own[4].end; ++c) {
            T const value = static_cast<T>(elements.value(index_of(shard.shape(), n, d, h, w, c)));
            if (shard(n, d, h, w, c) != (log ? std::log1p(value) : value)) return false;
          }
  return true;
}

/// One rank of a grid reads all samples of a file. Returns the bytes that this took, or -1 if a value is wrong.
template <class T>
std::int64_t read_as(std::string const& path, Grid const& grid, std::int64_t rank, Elements const& x, Elements const& y,
                     bool log) {
  io::Hdf5Source source(path, {.transform = log ? io::Transform::log1p : io::Transform::none});
  io::BatchReader<T, Kokkos::DefaultExecutionSpace> reader;
  Shard<T> const input(Partition(grid, source.input_shape().with_samples(source.size())), rank);
  Shard<T> const target(Partition(grid, source.target_shape().with_samples(source.size())), rank);
  reader(input, [&](std::int64_t n, Box const& box, T* cells) { source.read_input(n, box, cells); });
  reader(target, [&](std::int64_t n, Box const& box, T* cells) { source.read_target(n, box, cells); });
  if (source.bytes_read() != input.owned().volume() * x.bytes + target.owned().volume() * y.bytes) return -2;
  return is_right(input, x, log) && is_right(target, y, false) ? source.bytes_read() : -1;
}

/// Random counts with a given product.
Counts draw_counts(int ranks) {
  Counts counts;
  for (int prime : {2, 3})
    for (; ranks % prime == 0; ranks /= prime)
      counts[*rc::gen::element(AxisId::sample, AxisId::depth, AxisId::height, AxisId::width).as("axis that is cut")] *=
          prime;
  return counts;
}

}  // namespace

TEST_CASE("hdf5: the ranks of any decomposition read what they own, and no more") {
  tessera::test::Scratch const scratch;
  std::string const path = scratch / "samples.h5";
  int empty = 0, cases = 0;
  tessera::test::distributed_property(
      "every rank's box",
      [&] {
        auto const extent = [](char const* name, int most) {
          return *rc::gen::inRange<std::int64_t>(1, most + 1).as(name);
        };
        Elements const& x = element_types()[*rc::gen::inRange<std::size_t>(0, element_types().size()).as("type of x")];
        Elements const& y = element_types()[*rc::gen::inRange<std::size_t>(0, element_types().size()).as("type of y")];
        bool const leading = *rc::gen::weightedElement<bool>({{3, true}, {1, false}}).as("leading axis");
        bool const log = x.offset >= 0 && x.scale > 0 && *rc::gen::arbitrary<bool>().as("log1p");
        bool const in_float = *rc::gen::arbitrary<bool>().as("read as float");
        Shape const shape{leading ? extent("samples", 5) : 1, extent("depth", 7), extent("height", 6),
                          extent("width", 5), extent("channels", 3)};
        std::int64_t const values = extent("values", 4);
        Counts const counts = draw_counts(world().size());

        if (world().rank() == 0) {
          Extents in, out;
          if (leading) in = out = {static_cast<hsize_t>(shape.sample)};
          for (std::int64_t const n : {shape.depth, shape.height, shape.width, shape.channel})
            in.push_back(static_cast<hsize_t>(n));
          out.push_back(static_cast<hsize_t>(values));
          put(path, "x", in, x);
          put(path, "y", out, y, false);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        auto const read = in_float ? read_as<float> : read_as<double>;
        std::int64_t const bytes = read(path, Grid(counts), world().rank(), x, y, log);
        std::int64_t const least = world().all_reduce(bytes, Reduce::min), all = world().all_reduce(bytes);
        RC_ASSERT(least >= 0);
        RC_ASSERT(all == shape.volume() * x.bytes + shape.sample * values * y.bytes);
        empty += least == 0;
        ++cases;
      },
      MPI_COMM_WORLD);
  if (world().size() > 1) CHECK_MESSAGE(10 * empty >= cases, empty << " of " << cases << " cases have an empty rank");
}

TEST_CASE("hdf5: an odd depth on 3 ranks loses nothing") {
  // One process plays all three ranks.
  tessera::test::Scratch const scratch;
  std::string const path = scratch / ("odd" + std::to_string(world().rank()));
  Elements const& int16 = element_types()[2];
  Elements const& float32 = element_types()[6];
  put(path, "x", {2, 5, 4, 3, 2}, int16);
  put(path, "y", {2, 4}, float32, false);
  std::int64_t bytes = 0;
  for (int rank = 0; rank < 3; ++rank) {
    std::int64_t const read = read_as<float>(path, Grid(Counts{.depth = 3}), rank, int16, float32, false);
    CHECK(read >= 0);
    bytes += read;
  }
  CHECK(bytes == 2 * 5 * 4 * 3 * 2 * 2 + 2 * 4 * 4);
}

TEST_CASE("hdf5: what is wrong with a file is said with file and dataset") {
  tessera::test::Scratch const scratch;
  std::string const path = scratch / ("bad" + std::to_string(world().rank())), quoted = "'" + path + "'";
  Elements const& number = element_types()[2];
  auto const refusal = [&] { return message_of([&] { io::Hdf5Source(path, {}); }); };
  auto const file = [&](Extents const& x, Extents const& y) {
    put(path, "x", x, number);
    put(path, "y", y, number, false);
    return refusal();
  };

  CHECK(refusal() == "Hdf5Source: the file " + quoted + " must be there and readable (No such file or directory)");
  std::filesystem::create_directory(path);
  CHECK(refusal() == "Hdf5Source: " + quoted + " must be an HDF5 file, but it is a folder");
  std::filesystem::remove(path);
  std::ofstream(path).flush();
  CHECK(refusal() == "Hdf5Source: the file " + quoted + " must be an HDF5 file, but it is empty");
  std::ofstream(path) << "x,y\n1,2\n";
  CHECK(refusal() == "Hdf5Source: the file " + quoted + " must be an HDF5 file, but it does not begin like one");

  CHECK(file({2, 4, 4, 4, 1}, {2, 3}) == "");
  auto const whole = std::filesystem::file_size(path);
  for (auto const bytes : {whole - 1, whole / 2, std::uintmax_t{100}}) {
    std::filesystem::resize_file(path, bytes);
    std::string const said = refusal();
    CHECK_MESSAGE(said.starts_with("Hdf5Source: the file " + quoted + " must be a whole HDF5 file, but HDF5 says: "),
                  said);
    CHECK_MESSAGE(said.ends_with("; make it or copy it again"), said);
  }

  put(path, "z", {2, 3}, number);
  CHECK(refusal() == "Hdf5Source: the file " + quoted + " must hold a dataset 'x', but it holds 'z'");
  put(path, "x", {2, 4, 4, 4, 1}, number);
  CHECK(refusal() == "Hdf5Source: the file " + quoted + " must hold a dataset 'y', but it holds 'x'");
  CHECK(message_of([&] { io::Hdf5Source(path, {.input = "a/b"}); }) ==
        "Hdf5Source: the file " + quoted + " must hold a dataset 'a/b', but it holds 'x'");

  CHECK(file({2, 4, 4}, {2, 3}) == "Hdf5Source: dataset 'x' of " + quoted +
                                       " must have the axes (sample, depth, height, width, channel) or, for one " +
                                       "sample, (depth, height, width, channel), but its shape is (2, 4, 4)");
  CHECK(file({2, 4, 4, 4, 1}, {6}) ==
        "Hdf5Source: dataset 'y' of " + quoted + " must have the axes (sample, value), but its shape is (6)");
  CHECK(file({4, 4, 4, 1}, {1, 6}) ==
        "Hdf5Source: dataset 'y' of " + quoted + " must have the axes (value), but its shape is (1, 6)");
  std::string const both = "Hdf5Source: datasets 'x' and 'y' of " + quoted;
  CHECK(file({2, 4, 4, 4, 1}, {3, 3}) ==
        both + " must have the same number of samples, but their shapes are (2, 4, 4, 4, 1) and (3, 3)");
  CHECK(file({0, 4, 4, 4, 1}, {0, 3}) == both + " must hold samples, but their shapes are (0, 4, 4, 4, 1) and (0, 3)");

  std::string const types = " must hold int8, uint8, int16, uint16, int32, float or double, but it holds ";
  Hdf5Handle const text(H5Tcopy(H5T_C_S1), H5Tclose);
  Hdf5Handle const pair(H5Tcreate(H5T_COMPOUND, 16), H5Tclose);
  H5Tinsert(pair.get(), "a", 0, H5T_NATIVE_DOUBLE);
  for (auto const& [type, what] :
       {std::pair{text.get(), "something else than numbers"}, std::pair{pair.get(), "something else than numbers"},
        std::pair{H5T_STD_I64LE, "numbers of another size or sign"},
        std::pair{H5T_STD_U32LE, "numbers of another size or sign"}}) {
    put(path, "y", {2, 3}, number);
    {
      Hdf5Handle const h5(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
      Extents const extents{2, 4, 4, 4, 1};
      Hdf5Handle const space(H5Screate_simple(5, extents.data(), nullptr), H5Sclose);
      Hdf5Handle const set(H5Dcreate2(h5.get(), "x", type, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                           H5Dclose);
    }
    CHECK(refusal() == "Hdf5Source: dataset 'x' of " + quoted + types + what);
  }

  put(path, "y", {2, 3}, number);
  {
    Hdf5Handle const h5(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
    Hdf5Handle const group(H5Gcreate2(h5.get(), "x", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
  }
  std::string const said = refusal();
  CHECK_MESSAGE(said.starts_with("Hdf5Source: 'x' in " + quoted + " must be a dataset, but HDF5 says: "), said);
}
