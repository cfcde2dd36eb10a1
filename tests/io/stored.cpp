// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/io/stored.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/property.hpp"
#include "support/scratch.hpp"
#include "support/stored_memory.hpp"
#include "tessera/io/batch.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/flatten.hpp"
#include "tessera/layer/redistribute.hpp"
#include "tessera/train/predict.hpp"
#include "tessera/train/trainer.hpp"

namespace {

using namespace tessera;
using namespace tessera::axes;
using io::CellOrder;
using io::CellType;
using io::Part;
using io::StoredField;
using io::Transform;
using tessera::test::cell_index;
using tessera::test::coded;
using tessera::test::message_of;
using tessera::test::StoredMemory;

constexpr CellType types[] = {CellType::int8,  CellType::uint8,   CellType::int16,  CellType::uint16,
                              CellType::int32, CellType::float32, CellType::float64};

/// What a stored value becomes, in double, and how far from it a T may be. With u the unit roundoff of T and e that of
/// double: the conversion into T, u each; a logarithm is good to 2 u (glibc and CUDA say 1 ulp = 2 u), the product and
/// the sum to 2 e of their terms.
template <class T>
struct Expected {
  double value = 0.0, tolerance = 0.0;

  Expected(double v, Transform const& t, bool exact) {
    double const u = std::numeric_limits<T>::epsilon() / 2.0, e = std::numeric_limits<double>::epsilon() / 2;
    double const f = t.logarithm ? std::log1p(v) : v;
    value = f * t.scale + t.shift;
    double const terms = std::abs(f * t.scale) + std::abs(t.shift);
    tolerance = t == Transform::none ? 0.0 : 4 * e * terms;
    if (t.logarithm) tolerance += 2 * (exact ? u : e) * std::abs(f * t.scale);
    if (t == Transform::none)
      value = static_cast<double>(static_cast<T>(v));
    else
      tolerance += u * (std::abs(value) + tolerance);
  }
};

Transform draw_transform(CellType type, std::int64_t most) {
  auto const number = [](char const* name) { return *rc::gen::inRange(-1000, 1001).as(name) / 37.0; };
  // The logarithm needs values above -1.
  bool const counts =
      type == CellType::uint8 || type == CellType::uint16 || (type == CellType::int32 && most < std::int64_t{1} << 20);
  switch (*rc::gen::inRange(0, counts ? 4 : 2).as("kind of transform")) {
    case 0: return Transform::none;
    case 1: return {.scale = number("scale"), .shift = number("shift")};
    case 2: return Transform::log1p;
    default: return {number("scale"), number("shift"), true};
  }
}

template <class T>
void check_conversion(io::Converter<T, Kokkos::DefaultExecutionSpace>& convert) {
  auto const extent = [](char const* name) { return *rc::gen::inRange<std::int64_t>(1, 6).as(name); };
  Shape const shape{extent("samples"), extent("depth"), extent("height"), extent("width"), extent("channels")};
  StoredField field{.shape = shape.with_samples(1),
                    .type = *rc::gen::elementOf(std::vector<CellType>(std::begin(types), std::end(types))).as("type"),
                    .order = *rc::gen::element(CellOrder::channels_last, CellOrder::channels_first).as("order")};
  auto const transforms = *rc::gen::element<std::int64_t>(0, 1, shape.channel).as("transforms");
  for (std::int64_t i = 0; i < transforms; ++i) field.transforms.push_back(draw_transform(field.type, shape.volume()));

  // The box lies anywhere in the tensor, the tile holds more than it.
  Box box = shape.box(), held = box;
  for (int a = 0; a < axis_count; ++a) {
    Interval& i = box.axis[a];
    i.begin = *rc::gen::inRange<std::int64_t>(0, i.end).as("begin");
    i.end = *rc::gen::inRange<std::int64_t>(i.begin + 1, i.end + 1).as("end");
    held.axis[a] = {i.begin - *rc::gen::inRange<std::int64_t>(0, 3).as("margin"),
                    i.end + *rc::gen::inRange<std::int64_t>(0, 3).as("margin")};
  }

  std::vector<std::byte> bytes(static_cast<std::size_t>(field.bytes(box)));
  std::byte* next = bytes.data();
  StoredMemory const memory{shape.sample, field, field};
  for (std::int64_t n = box.axis[0].begin; n < box.axis[0].end; ++n, next += field.bytes(box) / box.axis[0].size())
    memory.read_stored(Part::input, n, box, next);

  std::vector<T> cells(static_cast<std::size_t>(held.volume()), T(-7));
  Tile<T> const tile = dense_tile(cells.data(), held);
  convert(field, box, bytes.data(), tile);

  bool const exact = field.type != CellType::int32 && field.type != CellType::float64;
  for (std::int64_t n = held.axis[0].begin; n < held.axis[0].end; ++n)
    for (std::int64_t d = held.axis[1].begin; d < held.axis[1].end; ++d)
      for (std::int64_t h = held.axis[2].begin; h < held.axis[2].end; ++h)
        for (std::int64_t w = held.axis[3].begin; w < held.axis[3].end; ++w)
          for (std::int64_t c = held.axis[4].begin; c < held.axis[4].end; ++c) {
            T const found = tile(n, d, h, w, c);
            if (!box.contains(Box{{{n, n + 1}, {d, d + 1}, {h, h + 1}, {w, w + 1}, {c, c + 1}}})) {
              RC_ASSERT(found == T(-7));
              continue;
            }
            double const v = coded(field.type, cell_index(shape, n, d, h, w, c));
            std::size_t const which = transforms > 1 ? static_cast<std::size_t>(c) : 0;
            Expected<T> const expected(v, transforms == 0 ? Transform::none : field.transforms[which], exact);
            RC_ASSERT(std::abs(static_cast<double>(found) - expected.value) <= expected.tolerance);
          }
}

}  // namespace

TEST_CASE("stored: cells of every type, order and box are converted, in float") {
  io::Converter<float, Kokkos::DefaultExecutionSpace> convert;  // one for all, as in a reader
  tessera::test::property("conversion to float", [&] { check_conversion(convert); });
}

TEST_CASE("stored: cells of every type, order and box are converted, in double") {
  io::Converter<double, Kokkos::DefaultExecutionSpace> convert;  // one for all, as in a reader
  tessera::test::property("conversion to double", [&] { check_conversion(convert); });
}

TEST_CASE("stored: no precision is lost on the way") {
  io::Converter<float, Kokkos::DefaultExecutionSpace> convert;
  auto const converted = [&](auto value, CellType type, Transform const& transform) {
    StoredField const field{.shape = {}, .type = type, .order = CellOrder::channels_last, .transforms = {transform}};
    float cell = 0;
    convert(field, field.shape.box(), reinterpret_cast<std::byte const*>(&value), dense_tile(&cell, field.shape.box()));
    return cell;
  };
  // In float, 1 + v is 0; an int32 loses its last bits before they matter; large terms that cancel leave nothing.
  CHECK(converted(-1 + 0x1p-40, CellType::float64, Transform::log1p) == static_cast<float>(-40 * std::log(2.0)));
  CHECK(converted(std::int32_t{(1 << 30) + 1}, CellType::int32, {.scale = 1, .shift = -0x1p30}) == 1.0f);
  CHECK(converted(std::int16_t{30000}, CellType::int16, {.scale = 1e-3, .shift = -29.999}) ==
        static_cast<float>(30000 * 1e-3 - 29.999));
  CHECK(converted(std::uint16_t{3}, CellType::uint16, {.scale = 1 / std::log(2.0), .logarithm = true}) ==
        doctest::Approx(2.0).epsilon(1e-7));
  // A negative zero, an infinity and a NaN are passed on.
  CHECK(std::signbit(converted(-0.0f, CellType::float32, Transform::none)));
  CHECK(std::isinf(converted(std::numeric_limits<double>::infinity(), CellType::float64, Transform::none)));
  CHECK(std::isnan(converted(std::nanf(""), CellType::float32, {.scale = 2})));
}

TEST_CASE("stored: transforms must be as many as channels") {
  StoredField const field{
      .shape = {.channel = 3}, .type = CellType::int8, .order = {}, .transforms = std::vector<Transform>(2)};
  std::vector<std::byte> bytes(3);
  float cells[3];
  io::Converter<float, Kokkos::DefaultExecutionSpace> convert;
  CHECK(message_of([&] { convert(field, field.shape.box(), bytes.data(), dense_tile(cells, field.shape.box())); }) ==
        "Converter: the transforms must be none, one for all channels, or one for each of 3, but there are 2");
}

TEST_CASE("stored: types have names and sizes") {
  std::string names;
  std::int64_t bytes = 0;
  for (CellType const type : types) {
    names += std::string(io::name(type)) + ' ';
    bytes = 10 * bytes + io::size_of(type);
  }
  CHECK(names == "int8 uint8 int16 uint16 int32 float32 float64 ");
  CHECK(bytes == 1122448);
}

TEST_CASE("stored: training, evaluation and prediction take a stored source, and do what they do with the values") {
  Communicator<Mpi> const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  std::int64_t const samples = 5;
  Shape const in{1, 4, 3, 5, 2}, out{1, 1, 1, 1, 3};
  StoredMemory stored{samples,
                      {in, CellType::int16, CellOrder::channels_first, {{.scale = 0x1p-15}, {.shift = 0.5}}},
                      {out, CellType::float64, CellOrder::channels_last, {{.scale = 0x1p-4}}}};
  stored.input.transforms[1].scale = 0x1p-16;
  std::vector<float> inputs, targets;
  for (std::int64_t i = 0; i < samples * in.volume(); ++i) {
    Transform const& t = stored.input.transforms[static_cast<std::size_t>(i % 2)];
    inputs.push_back(static_cast<float>(coded(CellType::int16, i) * t.scale + t.shift));
  }
  for (std::int64_t i = 0; i < samples * out.volume(); ++i)
    targets.push_back(static_cast<float>(coded(CellType::float64, i) * 0x1p-4));
  io::MemorySource<float> plain(in, inputs, out, targets);

  RankGrid<Distribution<Depth>> const ranks(world);
  auto const results = [&](auto& data) {
    auto const net = sequential<float>(ranks, SampleShape<3>{.channels = 2, .space = {4, 3, 5}}, conv3d<3>(3, same),
                                       redistribute<Distribution<Sample>>(), flatten(), dense(3));
    Trainer trainer{net, Sgd{.rate = 1e-3}, MeanSquaredError{}};
    auto const report = trainer.fit(data, data, {.epochs = 2, .batch = 2, .micro_batch = 1, .seed = 3});
    trainer.refresh_statistics(data, 2);
    std::vector<float> all = predict(net, data, 2);
    all.push_back(static_cast<float>(report.back().train_loss));
    all.push_back(static_cast<float>(trainer.evaluate(data, 2)));
    return all;
  };
  std::vector<float> const expected = results(plain);
  for (std::size_t k = 0; k < 3; ++k)  // no sample is taken for another
    for (std::size_t i = 0; i + 1 < 5; ++i) CHECK(expected[3 * i + k] != expected[3 * i + 3 + k]);
  CHECK(expected[0] != expected[6]);
  CHECK(results(stored) == expected);
}
