// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// kernels: ConvertCells

#include <tessera/io/split.hpp>
#include <tessera/io/stored.hpp>
#include <tessera/train/predict.hpp>

#include "on_device.hpp"

namespace {

using namespace tessera;

struct Zeros {
  std::int64_t size() const { return 8; }
  io::StoredField field(io::Part part) const {
    if (part == io::Part::target) return {.shape = {}, .type = io::CellType::float32};
    return {.shape = {1, 16, 16, 16, 4}, .type = io::CellType::int16, .transforms = {io::Transform::log1p}};
  }
  void read_stored(io::Part part, std::int64_t, Box const& box, std::byte* cells) const {
    for (std::int64_t i = 0; i < field(part).bytes(box); ++i) cells[i] = std::byte{0};
  }
};

}  // namespace

/// Cells go to the device as they are stored, and are converted there, to float and to double.
float stored(test::Net const& net) {
  Zeros zeros;
  io::Subset some(zeros, io::split_samples(zeros.size()).validation);
  Shard<double, test::Device> const shard(Partition(Grid(Counts{}), some.input_shape()), 0);
  io::BatchReader<double, test::Device>{}.read(some, io::Part::input, shard, shard.owned(),
                                               [](std::int64_t n) { return n; });
  return predict(net, some, 1)[0];
}
