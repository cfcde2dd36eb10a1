// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// docs/reference/layers/support.md says along which axes the input of each layer may be cut. Here every "yes" is tried.

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/host_tensor.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/adaptive_pool.hpp"
#include "tessera/layer/batch_norm.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/flat_dense.hpp"
#include "tessera/layer/flatten.hpp"
#include "tessera/layer/global_pool.hpp"
#include "tessera/layer/group_norm.hpp"
#include "tessera/layer/pool.hpp"
#include "tessera/layer/redistribute.hpp"
#include "tessera/layer/softmax.hpp"
#include "tessera/layer/transposed_conv.hpp"
#include "tessera/layer/upsample.hpp"
#include "tessera/model/concat.hpp"
#include "tessera/model/model.hpp"
#include "tessera/model/multiply.hpp"
#include "tessera/model/residual.hpp"
#include "tessera/model/sum.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Whole = Distribution<axes::Sample>;
using Net = Model<double, Host>;
using Bind = std::function<Net(RankGrid<AnySplit> const&, Partition const&)>;

constexpr std::int64_t samples = 3, channels = 6;
/// A sample of 1, 2 or 3 spatial axes, of odd extents.
constexpr Shape sample_shape(int rank) { return {1, rank > 2 ? 5 : 1, rank > 1 ? 7 : 1, 9, channels}; }

/// A row of the table, and a network of that layer.
struct Entry {
  std::string row;
  Bind bind;
};

/// The layers behind a pointwise convolution, whose gradient is made of their dx.
template <class... Specs>
Bind network(Specs const&... specs) {
  return [=](RankGrid<AnySplit> const& ranks, Partition const& sample) {
    return sequential<double, Host>(ranks, sample, conv3d<1>(channels), specs...);
  };
}

template <class... Options>
ConvSpec conv(int rank, std::int64_t out, Options const&... options) {
  return rank == 1 ? conv1d<3>(out, options...) : rank == 2 ? conv2d<3>(out, options...) : conv3d<3>(out, options...);
}
template <class... Options>
TransposedConvSpec transposed(int rank, std::int64_t out, Options const&... options) {
  return rank == 1   ? transposed_conv1d<3>(out, options...)
         : rank == 2 ? transposed_conv2d<3>(out, options...)
                     : transposed_conv3d<3>(out, options...);
}
MaxPoolSpec max_pool(int rank) {
  return rank == 1   ? max_pool1d<3>(stride(2), padding(1))
         : rank == 2 ? max_pool2d<3>(stride(2), padding(1))
                     : max_pool3d<3>(stride(2), padding(1));
}
AveragePoolSpec avg_pool(int rank) {
  return rank == 1 ? avg_pool1d<2>(ceil_mode) : rank == 2 ? avg_pool2d<2>(ceil_mode) : avg_pool3d<2>(ceil_mode);
}
AdaptiveAveragePoolSpec adaptive_avg_pool(int rank) {
  return rank == 1 ? adaptive_avg_pool1d(4) : rank == 2 ? adaptive_avg_pool2d({2, 4}) : adaptive_avg_pool3d({3, 2, 4});
}
NearestUpsampleSpec nearest(int rank) {
  return rank == 1   ? upsample_nearest1d(scale(2))
         : rank == 2 ? upsample_nearest2d(scale(2))
                     : upsample_nearest3d(scale(2));
}
LinearUpsampleSpec linear(int rank) {
  auto const to = tessera::size(8);
  return rank == 1 ? upsample_linear1d(to) : rank == 2 ? upsample_linear2d(to) : upsample_linear3d(to);
}

std::vector<Entry> layers(int rank) {
  ConvSpec const same_size = conv(rank, channels, same);
  return {
      {"conv", network(conv(rank, 5, stride(2), padding(1)))},
      {"conv, groups", network(conv(rank, 9, same, groups(3)))},
      {"conv, depthwise", network(conv(rank, channels, same, groups(channels)))},
      {"conv, circular", network(conv(rank, 5, same, Padding::circular))},
      {"conv, reflect", network(conv(rank, 5, same, Padding::reflect))},
      {"conv, replicate", network(conv(rank, 5, same, Padding::replicate))},
      {"transposed_conv", network(transposed(rank, 5, stride(2), padding(1), output_padding(1)))},
      {"transposed_conv, groups", network(transposed(rank, 9, stride(2), groups(3)))},
      {"max_pool", network(max_pool(rank))},
      {"avg_pool", network(avg_pool(rank))},
      {"adaptive_avg_pool", network(adaptive_avg_pool(rank))},
      {"global_avg_pool", network(global_avg_pool())},
      {"upsample_nearest", network(nearest(rank))},
      {"upsample_linear", network(linear(rank))},
      {"batch_norm", network(batch_norm())},
      {"group_norm", network(group_norm(2))},
      {"instance_norm", network(instance_norm())},
      {"layer_norm", network(layer_norm())},
      {"relu", network(relu())},
      {"leaky_relu", network(leaky_relu(0.1))},
      {"elu", network(elu())},
      {"gelu", network(gelu())},
      {"silu", network(silu())},
      {"sigmoid", network(sigmoid())},
      {"scaled_tanh", network(scaled_tanh(2.0))},
      {"prelu", network(prelu())},
      {"softmax", network(softmax())},
      {"log_softmax", network(log_softmax())},
      {"dropout", network(dropout(0.3))},
      {"dense", network(dense(5))},
      {"dense, flattened", network(dense(5, flattened))},
      {"flatten", network(redistribute<Whole>(), flatten())},
      {"redistribute", network(redistribute<Whole>(), relu())},
      {"residual", network(residual(same_size))},
      {"add", network(add(branch(), branch(same_size)))},
      {"concat", network(concat(branch(conv3d<1>(4)), branch(same_size)))},
      {"concat_skip", network(concat_skip(same_size))},
      {"multiply", network(multiply(branch(), branch(global_avg_pool())))},
  };
}

/// Rows of the table that other tests try: tests/train/loss.cpp cuts predictions along any axes.
std::set<std::string> const losses{"MeanSquaredError", "MeanAbsoluteError",  "HuberError",
                                   "CrossEntropy",     "BinaryCrossEntropy", "Dice",
                                   "GeneralisedDice"};

/// What does not compile, and the file of tests/compile_fail that shows it.
std::map<std::string, std::string> const refused{{"flatten", "flatten_split"}};

using Table = std::map<std::string, std::map<std::string, std::string>>;  ///< row, column: what the page says

std::string trimmed(std::string text) {
  std::erase(text, '`');
  auto const begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

std::vector<std::string> cells(std::string const& line) {
  std::vector<std::string> found;
  std::istringstream rest(line.substr(1));
  for (std::string cell; std::getline(rest, cell, '|');) found.push_back(trimmed(cell));
  return found;
}

/// The page's table that begins with the columns "layer" and "sample".
Table read_table() {
  char const* const folder = std::getenv("TESSERA_TESTS");
  require(folder != nullptr, "TESSERA_TESTS", "must name the folder tests; ctest sets it");
  std::string const path = std::string(folder) + "/../docs/reference/layers/support.md";
  std::ifstream page(path);
  require(page.good(), path, "cannot be read");
  Table table;
  std::vector<std::string> head;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with('|')) {
      if (!head.empty()) break;
      continue;
    }
    auto const row = cells(line);
    if (head.empty()) {
      if (row.size() > 2 && row[0] == "layer" && row[1] == "sample") head = row;
    } else if (!row[0].starts_with("---")) {
      require(row.size() == head.size(), path, "the row of ", row[0], " has ", row.size(), " cells");
      require(!table.contains(row[0]), path, "two rows are called ", row[0]);
      for (std::size_t i = 1; i < row.size(); ++i) table[row[0]][head[i]] = row[i];
    }
  }
  require(!table.empty(), path, "holds no table of layers and axes");
  return table;
}

struct Result {
  std::vector<double> y;          ///< the whole output, on every rank
  std::vector<double> gradients;  ///< of all parameters, whole, on every rank
};

Result run_once(RankGrid<AnySplit> const& ranks, Partition const& sample, Bind const& bind) {
  Net net = bind(ranks, sample);
  net.allocate(samples, 5);
  auto const fill = [](Shard<double, Host> const& shard, std::uint64_t seed) {
    HostTensor const values = random_tensor(shard.shape(), seed);
    for_each_cell(shard.owned(),
                  [&](auto n, auto d, auto h, auto w, auto c) { shard(n, d, h, w, c) = values.at(n, d, h, w, c); });
  };
  fill(net.input(samples), 1);
  fill(net.error(samples), 2);
  net.zero_gradients();
  net.forward(samples);
  net.backward(samples);
  net.finish_gradients();
  HostTensor y(net.output(samples).shape());
  for_each_cell(net.output(samples).owned(), [&](auto n, auto d, auto h, auto w, auto c) {
    y.at(n, d, h, w, c) = net.output(samples)(n, d, h, w, c);
  });
  ranks.world().all_reduce(y.values.data(), y.shape.volume());
  Result result{y.values, {}};
  for (auto* const p : net.parameters()) {
    p->set(p->download_gradient());  // the values have served
    auto const whole = p->download_whole(ranks.world());
    result.gradients.insert(result.gradients.end(), whole.begin(), whole.end());
  }
  return result;
}

double difference(std::vector<double> const& got, std::vector<double> const& expected) {
  if (got.size() != expected.size()) return INFINITY;
  double error = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return norm > 0.0 ? std::sqrt(error / norm) : INFINITY;
}

Counts counts_along(AxisId axis, std::int64_t parts) {
  switch (axis) {
    case AxisId::sample: return {.sample = parts};
    case AxisId::channel: return {.channel = parts};
    case AxisId::depth: return {.depth = parts};
    case AxisId::height: return {.height = parts};
    default: return {.width = parts};
  }
}

/// The axis in uneven blocks: the first of one cell, the second empty if there are three or more.
Partition uneven(Partition const& balanced, AxisId axis, std::int64_t parts) {
  std::vector<std::int64_t> boundaries{0, 1};
  for (std::int64_t i = 2; i < parts; ++i) boundaries.push_back(i == 2 ? 1 : i);
  boundaries.push_back(balanced.shape()[axis]);
  std::array<Blocks, axis_count> blocks;
  for (AxisId each : rank_order) blocks[static_cast<std::size_t>(each)] = balanced.blocks(each);
  blocks[static_cast<std::size_t>(axis)] = Blocks::at(boundaries);
  return Partition(balanced.grid(), blocks);
}

/// One row, in `rank` spatial axes.
void check_row(Entry const& entry, int rank, std::map<std::string, std::string> const& says) {
  auto const world = world_ranks(), self = self_ranks();
  Shape const shape = sample_shape(rank);
  Result const serial = run_once(self, Partition(self.grid(), shape), entry.bind);
  CHECK_MESSAGE(says.at("uneven and empty") == "yes", entry.row);
  CHECK_MESSAGE(says.at("1-D, 2-D, 3-D") == "yes", entry.row);
  for (AxisId axis : rank_order) {
    if (axis != AxisId::sample && axis != AxisId::channel && shape[axis] == 1) continue;
    std::string const column(name(axis));
    std::string const word = says.at(column);
    INFO(entry.row << ", " << column << ", " << rank << "-D");
    bool const is_refused = axis != AxisId::sample && refused.contains(entry.row);
    CHECK(word == (is_refused ? "no" : "yes"));
    if (word != "yes" || is_refused) continue;
    RankGrid<AnySplit> const ranks(world, counts_along(axis, world.size()));
    Partition const balanced(ranks.grid(), shape);
    std::vector<Partition> cuts{balanced};
    if (axis != AxisId::sample) cuts.push_back(uneven(balanced, axis, world.size()));  // samples are always balanced
    for (Partition const& cut : cuts) {
      Result const here = run_once(ranks, cut, entry.bind);
      CHECK(difference(here.y, serial.y) <= 1e-10);
      CHECK(difference(here.gradients, serial.gradients) <= 1e-10);
    }
  }
}

}  // namespace

TEST_CASE("the table of supported layers names the layers that are tried here, and no others") {
  std::set<std::string> listed, tried = losses;
  for (auto const& [row, columns] : read_table()) listed.insert(row);
  for (Entry const& entry : layers(3)) tried.insert(entry.row);
  for (std::string const& row : listed) CHECK_MESSAGE(tried.contains(row), row << " is in the table alone");
  for (std::string const& row : tried) CHECK_MESSAGE(listed.contains(row), row << " is not in the table");
  std::string const folder = std::getenv("TESSERA_TESTS");
  for (auto const& [row, file] : refused)
    CHECK_MESSAGE(std::ifstream(folder + "/compile_fail/" + file + ".cpp").good(), row);
}

TEST_CASE("every layer cut along every axis of the table has the output and the gradients of one rank") {
  Table const table = read_table();
  for (int rank : {3, 2, 1})
    for (Entry const& entry : layers(rank))
      if (table.contains(entry.row)) check_row(entry, rank, table.at(entry.row));
}

TEST_CASE("what the pages of the layers say fails, fails with that sentence") {
  auto const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  RankGrid<AnySplit> const ranks(world, Counts{.channel = world.size()});
  Partition const sample(ranks.grid(), sample_shape(1));
  auto const bind = [&](auto const& spec) { sequential<double, Host>(ranks, sample, spec); };
  CHECK_THROWS_WITH_AS(dropout(1.5), "dropout: the rate must be within [0, 1], it is 1.5", Error);
  CHECK_THROWS_WITH_AS(bind(dense(0)), "dense1: the number of outputs must be at least 1, it is 0", Error);
  CHECK_THROWS_WITH_AS(bind(dense(0, flattened)), "dense1: the number of outputs must be at least 1, it is 0", Error);
  CHECK_THROWS_WITH_AS(bind(transposed(1, 9, groups(3), Stationary::y)),
                       "transposed_conv1: with groups, its inputs stay where they are; leave the choice out", Error);
  CHECK_THROWS_WITH_AS(
      bind(transposed(1, 5, stride(0))),
      "transposed_conv1: kernel, stride and dilation must be at least 1, but along width they are 3, 0, 1", Error);
  CHECK_THROWS_WITH_AS(bind(conv(1, 5, same, padding(1))),
                       "same: chooses the padding itself; give either same or padding, not both", Error);
  CHECK_THROWS_WITH_AS(conv2d<3>(5, stride(1, 2, 3)),
                       "stride: takes one number, or one per spatial axis (2), but was given 3", Error);
  if (world.size() == 2)
    CHECK_THROWS_WITH_AS(bind(dense(5, Stationary::w)),
                         "dense1: stationary weights need a number of channel blocks that is a product, but it is 2; "
                         "keep x or y stationary",
                         Error);
}
