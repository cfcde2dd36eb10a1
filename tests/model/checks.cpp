// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What is published of the CosmoFlow networks, counted on models that are bound at full size but not allocated.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "networks.hpp"
#include "tessera/layer/window_binding.hpp"

namespace {

using namespace tessera;

RankGrid<cosmoflow::Spatial> alone() { return {Communicator<Mpi>::borrow(MPI_COMM_SELF), Counts{}}; }

Model<float> paper(std::int64_t side, bool with_norm) {
  return cosmoflow::paper_network<float>(alone(), {.channels = 4, .space = {side, side, side}}, with_norm);
}

struct Flops {
  double all = 0.0;                 ///< a forward pass thrice
  double without_first_data = 0.0;  ///< the first layer computes no data gradient
};
Flops flops_of(Model<float> const& net) {
  Flops flops;
  for (LayerInfo const& layer : net.describe(1)) {
    flops.all += 3 * layer.flops;
    flops.without_first_data += (layer.keeps_data_gradient ? 3 : 2) * layer.flops;
  }
  return flops;
}

/// The paper's accounting of memory: input, and outputs and errors of the layers before the dense ones, all kept.
double gibibytes_of(Model<float> const& net) {
  std::int64_t cells = 2 * net.input_partition(1).shape().volume();
  for (LayerInfo const& layer : net.describe(1)) {
    if (layer.what == "redistribute") break;
    cells += layer.output.shape().volume();
  }
  return 8.0 * static_cast<double>(cells) / (1 << 30);
}

Windows cube(std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  Window const w{.kernel = kernel, .stride = stride, .low = padding, .high = padding};
  return {{w, w, w}};
}

}  // namespace

TEST_CASE("checks: the paper's network has the published parameters, operations and memory") {
  struct Published {
    std::int64_t side;
    double gigaflops, gigaflops_without_first, gibibytes, gibibytes_with_norm;
    double half_digits[4];  ///< half a unit of each number's last digit
  };
  for (Published const& p : {Published{128, 55.6, 48.33, 0.824, 1.15, {0.05, 0.005, 0.0005, 0.005}},
                             Published{256, 443.8, 385.8, 6.59, 9.22, {0.05, 0.05, 0.005, 0.005}},
                             Published{512, 3550.0, 3086.0, 52.7, 73.75, {0.5, 0.5, 0.05, 0.005}}}) {
    CAPTURE(p.side);
    Model<float> const net = paper(p.side, false), with_norm = paper(p.side, true);
    CHECK(net.parameter_count() == 9'437'636);
    CHECK(net.capacity() == 0);
    Flops const flops = flops_of(net);
    CHECK(flops.all / 1e9 == doctest::Approx(p.gigaflops).epsilon(p.half_digits[0] / p.gigaflops));
    CHECK(flops.without_first_data / 1e9 ==
          doctest::Approx(p.gigaflops_without_first).epsilon(p.half_digits[1] / p.gigaflops_without_first));
    CHECK(gibibytes_of(net) == doctest::Approx(p.gibibytes).epsilon(p.half_digits[2] / p.gibibytes));
    CHECK(gibibytes_of(with_norm) ==
          doctest::Approx(p.gibibytes_with_norm).epsilon(p.half_digits[3] / p.gibibytes_with_norm));
    CHECK(net.output_partition(3).shape() == Shape{3, 1, 1, 1, 4});
  }
  // A scale and a shift for each of the 16 + 32 + 64 + 128 + 3 x 256 channels.
  CHECK(paper(512, true).parameter_count() == 9'437'636 + 2 * (16 + 32 + 64 + 128 + 3 * 256));
}

TEST_CASE("checks: MLPerf's network has the published parameters") {
  auto const net = cosmoflow::mlperf_network<float>(alone(), {.channels = 4, .space = {128, 128, 128}}, false);
  CHECK(net.parameter_count() == 8'907'556);
  auto const layers = net.describe(1);
  auto const flat = std::find_if(layers.begin(), layers.end(), [](LayerInfo const& l) { return l.what == "flatten"; });
  REQUIRE(flat != layers.end());
  CHECK(flat->output.shape() == Shape{1, 1, 1, 1, 32768});
}

TEST_CASE("checks: boxes and plans of 2,048 ranks follow from formulas on one") {
  Grid const grid(Counts{.depth = 8, .height = 16, .width = 16});
  constexpr int ranks = 2048;
  REQUIRE(grid.size() == ranks);
  struct Layer {
    Windows windows;
    bool mixes;
    std::int64_t channels;
    std::int64_t side;  ///< of the output
  };
  std::vector<Layer> layers;
  std::int64_t side = 512;
  for (std::int64_t const channels : {16, 32, 64, 128, 256, 256, 256}) {
    std::int64_t const stride = channels == 128 ? 2 : 1;
    layers.push_back({cube(3, stride, 1), true, channels, side /= stride});
    layers.push_back({cube(3, 2, 1), false, channels, side /= 2});
  }
  REQUIRE(side == 2);

  Partition input(grid, {1, 512, 512, 512, 4});
  for (Layer const& layer : layers) {
    CAPTURE(layer.side);
    std::int64_t owned = 0, received = 0, sent = 0, received_back = 0, sent_back = 0, idle = 0;
    Partition output;
    for (int rank = 0; rank < ranks; ++rank) {
      Border const border = layer.mixes ? Border::zeros : Border::clipped;
      WindowBinding const binding(rank, reaches_of(layer.windows, border, input.shape()), layer.mixes, layer.channels);
      output = binding.output(input);
      ExchangePlan const there = binding.input_plan(input, Placement::around_owned),
                         back = binding.error_plan(input, Placement::around_owned);
      owned += output.owned(rank).volume();
      idle += output.owned(rank).empty();
      received += there.received_cells();
      sent += there.sent_cells();
      received_back += back.received_cells();
      sent_back += back.sent_cells();
    }
    CHECK(output.shape() == Shape{1, layer.side, layer.side, layer.side, layer.channels});
    CHECK(owned == output.shape().volume());
    CHECK(idle == ranks - std::min<std::int64_t>(layer.side, 8) * std::min<std::int64_t>(layer.side, 16) *
                              std::min<std::int64_t>(layer.side, 16));
    CHECK(received == sent);
    CHECK(received_back == sent_back);
    input = output;
  }

  // The first layer in the middle of the grid: a shell of one cell around 64 x 32 x 32 cells, from 26 neighbours.
  Partition const universe(grid, {1, 512, 512, 512, 4});
  int const middle = static_cast<int>(grid.rank(Coordinates{{0, 4, 8, 8, 0}}));
  WindowBinding const first(middle, reaches_of(cube(3, 1, 1), Border::zeros, universe.shape()), true, 16);
  ExchangePlan const plan = first.input_plan(universe, Placement::around_owned);
  CHECK(universe.owned(middle) == Box{{{0, 1}, {256, 320}, {256, 288}, {256, 288}, {0, 4}}});
  CHECK(plan.received_cells() == 4 * (66 * 34 * 34 - 64 * 32 * 32));
  CHECK(plan.messages_received() == 26);
  CHECK(first.error_plan(universe, Placement::around_owned).received_cells() == 16 * (66 * 34 * 34 - 64 * 32 * 32));
  // At the corner of the cube three faces are border: zeros, not messages.
  WindowBinding const corner(0, reaches_of(cube(3, 1, 1), Border::zeros, universe.shape()), true, 16);
  CHECK(corner.input_plan(universe, Placement::around_owned).received_cells() == 4 * (65 * 33 * 33 - 64 * 32 * 32));
  CHECK(corner.input_plan(universe, Placement::around_owned).messages_received() == 7);
}
