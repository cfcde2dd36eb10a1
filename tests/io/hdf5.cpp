// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/io/hdf5.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/scratch.hpp"
#include "support/stored_memory.hpp"
#include "tessera/io/batch.hpp"
#include "tessera/tensor/shard.hpp"

namespace {

using namespace tessera;
using io::CellOrder;
using io::CellType;
using io::Hdf5Axes;
using io::Hdf5Schema;
using io::Hdf5Source;
using io::Part;
using io::Transform;
using io::detail::Hdf5Handle;
using tessera::test::cell_index;
using tessera::test::coded;
using tessera::test::message_of;
using Extents = std::vector<hsize_t>;

static_assert(io::Source<Hdf5Source, float> && io::Source<Hdf5Source, double> && io::StoredSource<Hdf5Source>);

Communicator<Mpi> world() { return Communicator<Mpi>::borrow(MPI_COMM_WORLD); }

/// The types that files have, and how each is kept.
struct Elements {
  char const* name;
  hid_t file;
  CellType type;
};

std::vector<Elements> const& element_types() {
  H5open();
  static std::vector<Elements> const types{{"int8", H5T_STD_I8LE, CellType::int8},
                                           {"uint8", H5T_STD_U8LE, CellType::uint8},
                                           {"int16", H5T_STD_I16LE, CellType::int16},
                                           {"int16, big-endian", H5T_STD_I16BE, CellType::int16},
                                           {"uint16", H5T_STD_U16LE, CellType::uint16},
                                           {"int32", H5T_STD_I32LE, CellType::int32},
                                           {"float", H5T_IEEE_F32LE, CellType::float32},
                                           {"double", H5T_IEEE_F64LE, CellType::float64},
                                           {"double, big-endian", H5T_IEEE_F64BE, CellType::float64}};
  return types;
}

enum class Layout { contiguous, chunked, packed, filtered };

/// A dataset to be written: its extents in a file, and how it lies there.
struct Dataset {
  std::string name;
  Extents extents;
  hid_t type = H5T_STD_I16LE;
  Layout storage = Layout::contiguous;
  Extents chunk = {};
  H5Z_filter_t filter = 0;
};

/// A new file, or one more dataset in it, with cells in memory of a type.
void put(std::string const& path, Dataset const& d, CellType type, std::byte const* cells, bool first = true) {
  Hdf5Handle const file(first ? H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)
                              : H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT),
                        H5Fclose);
  Hdf5Handle const space(H5Screate_simple(static_cast<int>(d.extents.size()), d.extents.data(), nullptr), H5Sclose);
  Hdf5Handle const made(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  if (d.storage != Layout::contiguous) H5Pset_chunk(made.get(), static_cast<int>(d.chunk.size()), d.chunk.data());
  if (d.storage == Layout::packed) {
    H5Pset_shuffle(made.get());
    H5Pset_deflate(made.get(), 1);
  }
  if (d.storage == Layout::filtered) H5Pset_filter(made.get(), d.filter, H5Z_FLAG_MANDATORY, 0, nullptr);
  Hdf5Handle const set(
      H5Dcreate2(file.get(), d.name.c_str(), d.type, space.get(), H5P_DEFAULT, made.get(), H5P_DEFAULT), H5Dclose);
  require(H5Dwrite(set.get(), io::detail::memory_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, cells) >= 0, "put",
          "HDF5 must write");
}

/// The same, with the numbers 0, 1, 2, ... in it.
void put(std::string const& path, std::string const& name, Extents const& extents, bool first = true,
         hid_t type = H5T_STD_I16LE) {
  std::vector<double> values(std::accumulate(extents.begin(), extents.end(), hsize_t{1}, std::multiplies<>()));
  std::iota(values.begin(), values.end(), 0.0);
  put(path, {name, extents, type}, CellType::float64, reinterpret_cast<std::byte const*>(values.data()), first);
}

std::vector<int> axes_of(Hdf5Axes axes) {
  switch (axes) {
    case Hdf5Axes::channels_last: return {1, 2, 3, 4};
    case Hdf5Axes::channels_first: return {4, 1, 2, 3};
    case Hdf5Axes::no_channel: return {1, 2, 3};
    case Hdf5Axes::values: break;
  }
  return {4};
}

/// One part of a drawn data set: `shape` is that of a sample.
struct Drawn {
  Hdf5Axes axes;
  Shape shape;
  Elements const* elements;
  Layout storage;
  Extents chunk;

  CellOrder order() const {
    return axes == Hdf5Axes::channels_first ? CellOrder::channels_first : CellOrder::channels_last;
  }

  /// The samples from `first` on, in the order of the file.
  std::vector<std::byte> cells(std::int64_t first, std::int64_t samples) const {
    std::vector<std::byte> all;
    for (std::int64_t n = first; n < first + samples; ++n) {
      std::vector<std::byte> const one = box_of(n, shape.box());
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  std::vector<std::byte> box_of(std::int64_t sample, Box const& box) const {
    std::vector<std::byte> cells(static_cast<std::size_t>(box.volume() * io::size_of(elements->type)));
    std::byte* next = cells.data();
    tessera::test::for_each_stored(order(), box, [&](std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t c) {
      tessera::test::store(elements->type, coded(elements->type, cell_index(shape, sample, d, h, w, c)), next);
      next += io::size_of(elements->type);
    });
    return cells;
  }

  Dataset dataset(std::string const& name, bool leading, std::int64_t samples) const {
    Dataset d{name, {}, elements->file, storage, {}};
    if (leading) d.extents.push_back(static_cast<hsize_t>(samples));
    for (int const axis : axes_of(axes))
      d.extents.push_back(static_cast<hsize_t>(shape.with_samples(1).box().axis[axis].size()));
    for (std::size_t a = 0; a < d.extents.size(); ++a)
      d.chunk.push_back(std::min(chunk[a + (leading ? 0 : 1)], d.extents[a]));
    return d;
  }
};

Drawn draw(std::string const& part, Shape const& space, bool values_too) {
  auto const extent = [&](char const* name, int most) {
    return *rc::gen::inRange<std::int64_t>(1, most + 1).as(part + name);
  };
  std::vector<Elements const*> all;
  for (Elements const& e : element_types()) all.push_back(&e);
  Drawn d{};
  d.elements = *rc::gen::elementOf(all).as(part + " type");
  d.axes = *rc::gen::element(Hdf5Axes::channels_last, Hdf5Axes::channels_first, Hdf5Axes::no_channel,
                             values_too ? Hdf5Axes::values : Hdf5Axes::channels_last)
                .as(part + " axes");
  d.shape = space.with_samples(1);
  d.shape.channel = d.axes == Hdf5Axes::no_channel ? 1 : extent(" channels", 4);
  if (d.axes == Hdf5Axes::values) d.shape = {1, 1, 1, 1, d.shape.channel};
  d.storage = *rc::gen::element(Layout::contiguous, Layout::chunked, Layout::packed).as(part + " layout");
  for (int a = 0; a < 5; ++a) d.chunk.push_back(static_cast<hsize_t>(extent(" chunk", 4)));
  return d;
}

/// Random counts with a given product.
Counts draw_counts(int ranks) {
  Counts counts;
  for (int prime : {2, 3})
    for (; ranks % prime == 0; ranks /= prime)
      counts[*rc::gen::element(AxisId::sample, AxisId::depth, AxisId::height, AxisId::width, AxisId::channel)
                  .as("axis that is cut")] *= prime;
  return counts;
}

/// A box with up to `margin` more cells on each side, as far as the tensor reaches.
Box with_halo(Box box, Shape const& shape, std::int64_t const (&margin)[3]) {
  if (box.empty()) return box;
  for (int a = 1; a < 4; ++a)
    box.axis[a] = intersect({box.axis[a].begin - margin[a - 1], box.axis[a].end + margin[a - 1]}, shape.box().axis[a]);
  return box;
}

/// Whether what a rank reads of a part is what the file holds, byte for byte, and value for value in a shard.
template <class T>
bool reads_right(Hdf5Source& source, Part part, Drawn const& drawn, Grid const& grid, int rank,
                 std::int64_t const (&margin)[3]) {
  Shape const all = drawn.shape.with_samples(source.size());
  Partition const partition(grid, all);
  Box const box = with_halo(partition.owned(rank), all, margin);
  Shard<T> const shard(partition, rank, box);
  io::BatchReader<T, Kokkos::DefaultExecutionSpace> reader;
  std::int64_t const before = source.bytes_read();
  reader.read(source, part, shard, box, [](std::int64_t n) { return n; });
  if (source.bytes_read() - before != box.volume() * io::size_of(drawn.elements->type)) return false;
  if (box.empty()) return true;
  for (std::int64_t n = box.axis[0].begin; n < box.axis[0].end; ++n) {
    Box one = box;
    one.axis[0] = {n, n + 1};
    std::vector<std::byte> cells(static_cast<std::size_t>(source.field(part).bytes(one)));
    source.read_stored(part, n, one, cells.data());
    if (cells != drawn.box_of(n, one)) return false;
    bool good = true;
    tessera::test::for_each_stored(
        drawn.order(), one, [&](std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t c) {
          good = good && shard(n, d, h, w, c) ==
                             static_cast<T>(coded(drawn.elements->type, cell_index(drawn.shape, n, d, h, w, c)));
        });
    if (!good) return false;
  }
  return true;
}

/// Which of the things that are drawn came up how often.
std::map<std::string, int> seen;
void count(Drawn const& d) {
  ++seen[d.elements->name];
  ++seen["axes " + std::to_string(static_cast<int>(d.axes))];
  ++seen["storage " + std::to_string(static_cast<int>(d.storage))];
}

}  // namespace

TEST_CASE("hdf5: every file form is read byte for byte under every decomposition, with halos") {
  tessera::test::Scratch const scratch;
  int empty = 0, cases = 0;
  tessera::test::distributed_property(
      "every rank's box",
      [&] {
        auto const extent = [](char const* name, int most) {
          return *rc::gen::inRange<std::int64_t>(1, most + 1).as(name);
        };
        Shape const space{1, extent("depth", 7), extent("height", 6), extent("width", 5), 1};
        Drawn const x = draw("x", space, false), y = draw("y", space, true);
        std::int64_t const files = extent("files", 3);
        bool const folder = files > 1 || *rc::gen::arbitrary<bool>().as("in a folder");
        std::vector<std::int64_t> samples;  // of each file; 0: one, without the sample axis
        for (std::int64_t f = 0; f < files; ++f)
          samples.push_back(*rc::gen::inRange<std::int64_t>(0, 4).as("samples of a file"));
        bool const in_float = *rc::gen::arbitrary<bool>().as("read as float");
        bool const together = *rc::gen::arbitrary<bool>().as("opened together");
        std::int64_t const margin[] = {*rc::gen::inRange<std::int64_t>(0, 3).as("halo along depth"),
                                       *rc::gen::inRange<std::int64_t>(0, 3).as("halo along height"),
                                       *rc::gen::inRange<std::int64_t>(0, 3).as("halo along width")};
        io::Hdf5Options const options{.cache_bytes = *rc::gen::element<std::int64_t>(0, 300, 1 << 20).as("cache"),
                                      .open_files = *rc::gen::inRange(1, 3).as("open files")};
        Counts const counts = draw_counts(world().size());

        std::string const path = scratch / ("case" + std::to_string(cases) + (folder ? "" : ".h5"));
        if (world().rank() == 0) {
          if (folder) std::filesystem::create_directory(path);
          std::int64_t first = 0;
          for (std::size_t f = 0; f < samples.size(); ++f) {
            std::string const file = folder ? path + "/part" + std::to_string(f) + ".hdf5" : path;
            std::int64_t const n = std::max<std::int64_t>(samples[f], 1);
            put(file, x.dataset("in", samples[f] > 0, n), x.elements->type, x.cells(first, n).data());
            put(file, y.dataset("out", samples[f] > 0, n), y.elements->type, y.cells(first, n).data(), false);
            first += n;
          }
        }
        MPI_Barrier(MPI_COMM_WORLD);
        Hdf5Schema const schema{.input = "in", .target = "out", .input_axes = x.axes, .target_axes = y.axes};
        Hdf5Source source = together ? Hdf5Source(world(), path, schema, options) : Hdf5Source(path, schema, options);
        bool good = source.files() == files && source.input_shape() == x.shape && source.target_shape() == y.shape &&
                    source.field(Part::input).type == x.elements->type;
        auto const right = in_float ? reads_right<float> : reads_right<double>;
        good = good && right(source, Part::input, x, Grid(counts), world().rank(), margin) &&
               right(source, Part::target, y, Grid(counts), world().rank(), margin);
        int const all_good = world().all_reduce(good ? 1 : 0, Reduce::min);
        std::int64_t const least = world().all_reduce(source.bytes_read(), Reduce::min);
        MPI_Barrier(MPI_COMM_WORLD);
        if (world().rank() == 0) std::filesystem::remove_all(path);
        RC_ASSERT(all_good == 1);
        count(x);
        count(y);
        ++seen[folder ? "folder" : "file"];
        empty += least == 0;
        ++cases;
      },
      MPI_COMM_WORLD);
  if (cases < 100) return;  // too few to judge
  for (auto const& [what, times] : seen) CHECK_MESSAGE(20 * times >= cases, what << " came up " << times << " times");
  CHECK(seen.size() == element_types().size() + 4 + 3 + 2);
  if (world().size() > 1) CHECK_MESSAGE(20 * empty >= cases, empty << " of " << cases << " cases have an empty rank");
}

TEST_CASE("case 28: an odd depth on 3 ranks loses nothing") {
  // One process plays all three ranks.
  tessera::test::Scratch const scratch;
  std::string const path = scratch / ("odd" + std::to_string(world().rank()));
  Elements const &int16 = element_types()[2], &float32 = element_types()[6];
  for (Hdf5Axes const axes : {Hdf5Axes::channels_last, Hdf5Axes::channels_first}) {
    Drawn const x{axes, {1, 5, 4, 3, 2}, &int16, Layout::contiguous, Extents(5, 1)};
    Drawn const y{Hdf5Axes::values, {1, 1, 1, 1, 4}, &float32, Layout::contiguous, Extents(5, 1)};
    put(path, x.dataset("x", true, 2), CellType::int16, x.cells(0, 2).data());
    put(path, y.dataset("y", true, 2), CellType::float32, y.cells(0, 2).data(), false);
    std::int64_t bytes = 0;
    for (int rank = 0; rank < 3; ++rank) {
      Hdf5Source source(path, {.input_axes = axes});
      CHECK(reads_right<float>(source, Part::input, x, Grid(Counts{.depth = 3}), rank, {0, 0, 0}));
      CHECK(reads_right<float>(source, Part::target, y, Grid(Counts{.depth = 3}), rank, {0, 0, 0}));
      bytes += source.bytes_read();
    }
    CHECK(bytes == 2 * (2 * 5 * 4 * 3 * 2 * 2 + 2 * 4 * 4));  // each once as a batch, and once sample by sample
  }
}

TEST_CASE("case 27: int16 stays int16, on disk, in memory and on the way") {
  tessera::test::Scratch const scratch;
  std::string const path = scratch / ("int16_" + std::to_string(world().rank()));
  put(path, "x", {1, 2, 2, 3, 1});
  put(path, "y", {1, 1}, false);
  Hdf5Source source(path);
  CHECK(source.field(Part::input).type == CellType::int16);
  std::vector<std::int16_t> cells(14, -1);
  source.read_stored(Part::input, 0, source.input_shape().box(), reinterpret_cast<std::byte*>(cells.data() + 1));
  CHECK(cells == std::vector<std::int16_t>{-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, -1});
  CHECK(source.bytes_read() == 24);
}

TEST_CASE("case 26: ranks with nothing to read take part, and read nothing") {
  tessera::test::Scratch const scratch;
  std::string const path = scratch / "one_plane.h5";
  if (world().rank() == 0) {
    put(path, "x", {1, 1, 4, 4, 1});
    put(path, "y", {1, 1}, false);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  Hdf5Source source(world(), path);
  Shard<float> const shard(Partition(Grid(Counts{.depth = world().size()}), source.input_shape()), world().rank());
  io::BatchReader<float, Kokkos::DefaultExecutionSpace> reader;
  agreed(world(), [&] { reader.read(source, Part::input, shard, shard.owned(), [](std::int64_t n) { return n; }); });
  CHECK(world().all_reduce(source.bytes_read()) == 32);
  CHECK(source.bytes_read() == 2 * shard.owned().volume());
}

namespace {

int unpacked = 0;  // chunks that went through the filter below

std::size_t pass_on(unsigned flags, std::size_t, unsigned const*, std::size_t bytes, std::size_t*, void**) {
  if ((flags & H5Z_FLAG_REVERSE) != 0) ++unpacked;
  return bytes;
}

}  // namespace

TEST_CASE("hdf5: no chunk is decompressed twice where the budget allows") {
  constexpr H5Z_filter_t counting = 400;  // HDF5 leaves these numbers to tests
  H5Z_class2_t const filter{H5Z_CLASS_T_VERS, counting, 1, 1, "counting", nullptr, nullptr, pass_on};
  REQUIRE(H5Zregister(&filter) >= 0);
  tessera::test::Scratch const scratch;
  std::string const path = scratch / ("counted" + std::to_string(world().rank()));
  // 3 x 3 chunks of 2 samples by 3 planes, of which a box of 4 planes touches 2.
  // Two of them are more than the mebibyte that HDF5 keeps by itself.
  constexpr std::int64_t side = 216, chunk = 2 * 3 * side * side * 2;
  std::vector<std::int16_t> const cells(6 * 9 * side * side, 1);
  put(path, {"x", {6, 9, side, side, 1}, H5T_STD_I16LE, Layout::filtered, {2, 3, side, side, 1}, counting},
      CellType::int16, reinterpret_cast<std::byte const*>(cells.data()));
  put(path, "y", {6, 1}, false);
  std::vector<std::byte> memory(2 * 9 * side * side);
  auto const unpacks = [&](std::int64_t cache, std::vector<Interval> const& boxes) {
    Hdf5Source source(path, {}, {.cache_bytes = cache});
    unpacked = 0;
    for (std::int64_t n = 0; n < 6; ++n)
      for (Interval const depth : boxes) {
        Box box = source.input_shape().box();
        box.axis[1] = depth;
        source.read_stored(Part::input, n, box, memory.data());
      }
    return unpacked;
  };
  CHECK(unpacks(6 * chunk, {{0, 4}, {3, 7}, {5, 9}}) == 9);  // the input's half holds a row of three
  CHECK(unpacks(2 * chunk, {{0, 4}}) == 6);                  // as much as the box needs
  CHECK(unpacks(2 * chunk - 1, {{0, 4}}) == 12);             // not enough: each sample anew
  H5Zunregister(counting);
}

TEST_CASE("hdf5: only so many files are open at a time") {
  tessera::test::Scratch const scratch;
  std::string const folder = scratch / ("many" + std::to_string(world().rank()));
  std::filesystem::create_directory(folder);
  for (int i = 0; i < 9; ++i) {
    std::string const path = folder + "/s" + std::to_string(i) + ".h5";
    put(path, "x", {2, 2, 2, 1});
    put(path, "y", {1}, false);
  }
  std::ofstream(folder + "/.hidden.h5") << "not this one";
  std::ofstream(folder + "/README") << "nor this one";
  Hdf5Source source(folder, {}, {.open_files = 3});
  CHECK(source.size() == 9);
  auto const open = [&] {
    std::int64_t files = 0;
    for (auto const& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      files += std::filesystem::read_symlink(entry, gone).string().starts_with(folder);
    }
    return files;
  };
  std::int16_t cells[8];
  for (std::int64_t n : {0, 5, 2, 8, 8, 0, 3, 1}) {
    source.read_stored(Part::input, n, source.input_shape().box(), reinterpret_cast<std::byte*>(cells));
    CHECK(cells[7] == 7);
    CHECK(open() <= 3);
  }
}

TEST_CASE("hdf5: values are converted to what the schema says, and read on their own too") {
  tessera::test::Scratch const scratch;
  std::string const path = scratch / ("values" + std::to_string(world().rank()));
  put(path, "full", {2, 1, 2, 3});
  put(path, "unitPar", {4}, false, H5T_IEEE_F32LE);
  Hdf5Schema schema = Hdf5Schema::lbann();
  schema.transform = {Transform::log1p, {.scale = 0.5, .shift = -1}};
  Hdf5Source source(path, schema);
  CHECK(source.sample_shape().channels == 2);
  CHECK(source.sample_shape().space == std::array<std::int64_t, 3>{1, 2, 3});
  std::vector<double> cells(12), values(2);
  source.read_input(0, source.input_shape().box(), cells.data());
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(cells[2 * i] == std::log1p(static_cast<double>(i)));
    CHECK(cells[2 * i + 1] == 0.5 * static_cast<double>(6 + i) - 1);
  }
  source.read_target(0, Box{{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {1, 3}}}, values.data());
  CHECK(values == std::vector<double>{1, 2});

  put(path + "mlperf", "x", {2, 2, 2, 2, 1});
  put(path + "mlperf", "y", {2, 1}, false);
  Hdf5Source mlperf(path + "mlperf", Hdf5Schema::mlperf());
  mlperf.read_input(1, Box{{{0, 1}, {1, 2}, {1, 2}, {0, 2}, {0, 1}}}, values.data());
  CHECK(values == std::vector<double>{std::log1p(14.0), std::log1p(15.0)});

  put(path + "labels", "volume", {3, 2, 2});
  put(path + "labels", "segmentation", {3, 2, 2}, false, H5T_STD_U8LE);
  Hdf5Source const labels(path + "labels", Hdf5Schema::segmentation(Hdf5Axes::no_channel));
  CHECK(labels.input_shape() == Shape{1, 3, 2, 2, 1});
  CHECK(labels.target_shape() == Shape{1, 3, 2, 2, 1});
  CHECK(labels.field(Part::target).type == CellType::uint8);
}

TEST_CASE("hdf5: what lies beyond 4 GiB is read") {
  tessera::test::Scratch const scratch;
  if (world().rank() != 0) return;
  std::string const path = scratch / "large";
  put(path, "y", {2, 1});
  Extents const extents{2, 1024, 1024, 1024, 2}, start{1, 1000, 1023, 1020, 0}, count{1, 1, 1, 4, 2};
  std::int8_t const cells[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  {
    Hdf5Handle const file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
    Hdf5Handle const space(H5Screate_simple(5, extents.data(), nullptr), H5Sclose);
    Hdf5Handle const some(H5Screate_simple(5, count.data(), nullptr), H5Sclose);
    Hdf5Handle const made(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_fill_time(made.get(), H5D_FILL_TIME_NEVER);  // the file has holes
    Hdf5Handle const set(H5Dcreate2(file.get(), "x", H5T_STD_I8LE, space.get(), H5P_DEFAULT, made.get(), H5P_DEFAULT),
                         H5Dclose);
    H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr);
    REQUIRE(H5Dwrite(set.get(), H5T_NATIVE_INT8, some.get(), space.get(), H5P_DEFAULT, cells) >= 0);
  }
  Hdf5Source source(path);
  std::vector<std::int8_t> found(6);
  source.read_stored(Part::input, 1, Box{{{0, 1}, {1000, 1001}, {1023, 1024}, {1021, 1024}, {0, 2}}},
                     reinterpret_cast<std::byte*>(found.data()));
  CHECK(found == std::vector<std::int8_t>{3, 4, 5, 6, 7, 8});
}

TEST_CASE("hdf5: booleans are what h5py makes of them, an enumeration of int8") {
  tessera::test::Scratch const scratch;
  std::string const path = scratch / ("masks" + std::to_string(world().rank()));
  Hdf5Handle const boolean(H5Tenum_create(H5T_STD_I8LE), H5Tclose);
  for (std::int8_t const value : {std::int8_t{0}, std::int8_t{1}})
    H5Tenum_insert(boolean.get(), value == 0 ? "FALSE" : "TRUE", &value);
  put(path, "volume", {1, 2, 2});
  {
    Hdf5Handle const file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
    Extents const extents{1, 2, 2};
    Hdf5Handle const space(H5Screate_simple(3, extents.data(), nullptr), H5Sclose);
    Hdf5Handle const set(
        H5Dcreate2(file.get(), "segmentation", boolean.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
        H5Dclose);
    std::int8_t const mask[] = {1, 0, 0, 1};
    REQUIRE(H5Dwrite(set.get(), boolean.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, mask) >= 0);
  }
  Hdf5Source source(path, Hdf5Schema::segmentation(Hdf5Axes::no_channel));
  CHECK(source.field(Part::target).type == CellType::int8);
  std::vector<float> mask(4);
  source.read_target(0, source.target_shape().box(), mask.data());
  CHECK(mask == std::vector<float>{1, 0, 0, 1});
}

TEST_CASE("hdf5: what is read must lie within the samples") {
  tessera::test::Scratch const scratch;
  std::string const path = scratch / ("small" + std::to_string(world().rank()));
  put(path, "x", {2, 2, 2, 2, 1});
  put(path, "y", {2, 1}, false);
  Hdf5Source source(path);
  std::vector<std::byte> memory(1000);
  auto const said = [&](std::int64_t sample, Box const& box) {
    return message_of([&] { source.read_stored(Part::input, sample, box, memory.data()); });
  };
  Box const all = source.input_shape().box();
  Box larger = all;
  larger.axis[2].end = 3;
  std::string const begin = "Hdf5Source: what is read must lie within the 2 samples of shape (1, 2, 2, 2, 1) of '" +
                            path + "', but it is the box ";
  CHECK(said(1, all) == "");
  CHECK(said(2, all) == begin + "[0,1)x[0,2)x[0,2)x[0,2)x[0,1) of sample 2");
  CHECK(said(-1, all) == begin + "[0,1)x[0,2)x[0,2)x[0,2)x[0,1) of sample -1");
  CHECK(said(0, larger) == begin + "[0,1)x[0,2)x[0,3)x[0,2)x[0,1) of sample 0");
  CHECK(said(7, Box{}) == "");  // nothing is read of nowhere
  CHECK(message_of([&] { Hdf5Source(path, {}, {.open_files = 0}); }) ==
        "Hdf5Source: open_files must be at least 1 and cache_bytes at least 0, but they are 0 and 67108864");
}

TEST_CASE("hdf5: what one rank cannot read, no rank can, with one message") {
  tessera::test::Scratch const scratch;
  std::string const folder = scratch / "all", one = scratch / "one.h5";
  int const ranks = world().size(), last = ranks - 1;
  if (world().rank() == 0) {
    std::filesystem::create_directory(folder);
    for (std::string const& path : {folder + "/a.h5", folder + "/b.h5", folder + "/c.h5", folder + "/d.h5", one}) {
      put(path, "x", {4, 4, 4, 1});
      put(path, "y", {2}, false);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  std::string const missing = one + ".missing";
  CHECK(message_of([&] { Hdf5Source(world(), world().rank() == last ? missing : one); }) ==
        "Hdf5Source: the file '" + missing + "' must be there and readable (No such file or directory)");
  // A file that just one rank looks at.
  if (world().rank() == 0) {
    put(folder + "/d.h5", "x", {4, 4, 3, 1});
    put(folder + "/d.h5", "y", {2}, false);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(message_of([&] { Hdf5Source(world(), folder); }) ==
        "Hdf5Source: dataset 'x' must hold samples of the same shape and type in all files, but those of '" + folder +
            "/a.h5' are (4, 4, 4, 1) of int16, and those of '" + folder + "/d.h5' (4, 4, 3, 1) of int16");
  CHECK(message_of([&] { Hdf5Source(world(), scratch.folder().string()); }) == "");
}

TEST_CASE("hdf5: values that are no numbers are refused if asked for") {
  tessera::test::Scratch const scratch;
  std::string const path = scratch / ("nan" + std::to_string(world().rank()));
  std::vector<float> cells(2 * 3 * 2 * 4 * 2, 1.0f);
  auto const said = [&](Hdf5Schema const& schema, bool check, Box const& box) {
    put(path, {"x", {2, 3, 2, 4, 2}, H5T_IEEE_F32LE}, CellType::float32, reinterpret_cast<std::byte*>(cells.data()));
    put(path, "y", {2, 1}, false);
    Hdf5Source source(path, schema, {.check_finite = check});
    std::vector<std::byte> to(static_cast<std::size_t>(source.field(Part::input).bytes(box)));
    return message_of([&] { source.read_stored(Part::input, 1, box, to.data()); });
  };
  Box const all{{{0, 1}, {0, 3}, {0, 2}, {0, 4}, {0, 2}}}, part{{{0, 1}, {1, 3}, {1, 2}, {2, 4}, {0, 1}}};
  float& bad = cells[static_cast<std::size_t>(cell_index({2, 3, 2, 4, 2}, 1, 2, 1, 3, 0))];
  std::string const begin = "Hdf5Source: dataset 'x' of '" + path + "' must hold ",
                    where = " at depth 2, height 1, width 3, channel 0";
  CHECK(said({}, true, all) == "");
  bad = std::nanf("");
  CHECK(said({}, false, all) == "");
  for (Box const& box : {all, part})
    CHECK(said({}, true, box) == begin + "finite numbers, but sample 1 has nan" + where);
  bad = -std::numeric_limits<float>::infinity();
  CHECK(said({}, true, part) == begin + "finite numbers, but sample 1 has -inf" + where);
  bad = -1;
  CHECK(said({}, true, all) == "");
  CHECK(said({.transform = {Transform::log1p}}, true, part) ==
        begin + "numbers above -1, to have a logarithm of 1 + x, but sample 1 has -1" + where);
  CHECK(said({.transform = {Transform::log1p, Transform::none}}, true, all).starts_with(begin + "numbers above"));
  CHECK(said({.transform = {Transform::none, Transform::log1p}}, true, all) == "");
}

TEST_CASE("hdf5: what is wrong with a file is said with file and dataset") {
  tessera::test::Scratch const scratch;
  std::string const path = scratch / ("bad" + std::to_string(world().rank())), quoted = "'" + path + "'";
  auto const refusal = [&] { return message_of([&] { Hdf5Source(path, {}); }); };
  auto const file = [&](Extents const& x, Extents const& y) {
    put(path, "x", x);
    put(path, "y", y, false);
    return refusal();
  };

  CHECK(refusal() == "Hdf5Source: the file " + quoted + " must be there and readable (No such file or directory)");
  std::filesystem::create_directory(path);
  CHECK(refusal() == "Hdf5Source: the folder " + quoted +
                         " must hold files whose names end in .h5 or .hdf5 or .hdf, but it holds nothing");
  std::ofstream(path + "/universe.csv") << "x,y\n1,2\n";
  CHECK(refusal() == "Hdf5Source: the folder " + quoted +
                         " must hold files whose names end in .h5 or .hdf5 or .hdf, but it holds only another file");
  std::filesystem::remove_all(path);
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

  put(path, "z", {2, 3});
  CHECK(refusal() == "Hdf5Source: the file " + quoted + " must hold a dataset 'x', but it holds 'z'");
  put(path, "x", {2, 4, 4, 4, 1});
  CHECK(refusal() == "Hdf5Source: the file " + quoted + " must hold a dataset 'y', but it holds 'x'");
  CHECK(message_of([&] { Hdf5Source(path, {.input = "a/b"}); }) ==
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
    put(path, "y", {2, 3});
    {
      Hdf5Handle const h5(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
      Extents const extents{2, 4, 4, 4, 1};
      Hdf5Handle const space(H5Screate_simple(5, extents.data(), nullptr), H5Sclose);
      Hdf5Handle const set(H5Dcreate2(h5.get(), "x", type, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                           H5Dclose);
    }
    CHECK(refusal() == "Hdf5Source: dataset 'x' of " + quoted + types + what);
  }

  put(path, "y", {2, 3});
  {
    Hdf5Handle const h5(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
    Hdf5Handle const group(H5Gcreate2(h5.get(), "x", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
  }
  std::string const said = refusal();
  CHECK_MESSAGE(said.starts_with("Hdf5Source: 'x' in " + quoted + " must be a dataset, but HDF5 says: "), said);
}
