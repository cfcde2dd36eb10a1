// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A layer that a user writes, with a window and parameters of its own, among the library's.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/io/batch.hpp"
#include "tessera/io/source.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/redistribute.hpp"
#include "tessera/model/model.hpp"
#include "tessera/train/predict.hpp"

namespace {

using namespace tessera;
using namespace tessera::axes;
using Space = Kokkos::DefaultHostExecutionSpace;
using Spatial = Distribution<Sample, Depth>;
using Whole = Distribution<Sample>;

/// y[d] = x[d] + gate * (x[d-1] - 2 x[d] + x[d+1]) with a gate per channel: smoothing along depth as strong as learnt.
struct GatedSmoothing {
  static constexpr char const* kind = "smooth";
  static double bend(Tile<double const> const& x, std::int64_t const at[4], std::int64_t c) {
    return x(at[0], at[1] - 1, at[2], at[3], c) - 2 * x(at[0], at[1], at[2], at[3], c) +
           x(at[0], at[1] + 1, at[2], at[3], c);
  }

  Windows windows(Shape const&) const { return {{Window{.kernel = 3, .low = 1, .high = 1}, {}, {}}}; }
  std::vector<ParameterSpec> parameters(Shape const& in) const {
    return {{"gate", {in.channel}, {0}, Initial::uniform(0.5)}};
  }

  void forward(ForwardPass<double, Space> const& p) const {
    for_each_position("smooth", p.space, p.box, [p](std::int64_t const at[4], Interval channels) {
      for (std::int64_t c = channels.begin; c < channels.end; ++c)
        p.y(at[0], at[1], at[2], at[3], c) = p.x(at[0], at[1], at[2], at[3], c) + p.parameters[0][c] * bend(p.x, at, c);
    });
  }
  void backward(BackwardPass<double, Space> const& p) const {
    for_each_position("smooth", p.space, p.box, [p](std::int64_t const at[4], Interval channels) {
      for (std::int64_t c = channels.begin; c < channels.end; ++c) {
        double const dx = p.dy(at[0], at[1], at[2], at[3], c) + p.parameters[0][c] * bend(p.dy, at, c);
        double& to = p.dx(at[0], at[1], at[2], at[3], c);
        to = p.accumulate == Accumulate::add ? to + dx : dx;
      }
    });
  }
  void backward_parameters(ParameterPass<double, Space> const& p) const {
    Rows const rows{p.box};
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      std::int64_t at[4];
      rows.position(row, at);
      for (std::int64_t c = p.box.axis[4].begin; c < p.box.axis[4].end; ++c)
        p.gradients[0][c] += p.dy(at[0], at[1], at[2], at[3], c) * bend(p.x, at, c);
    }
  }
};

/// The custom layer between others, and once more on whole samples.
Model<double, Space> network(RankGrid<Spatial> const& ranks) {
  return sequential<double, Space>(ranks, SampleShape<3>{.channels = 2, .space = {7, 3, 4}},  //
                                   conv3d<3>(5, same), GatedSmoothing{}, scaled_tanh(1.5),    //
                                   redistribute<Whole>(), GatedSmoothing{}, conv3d<2>(3, stride(2)));
}

constexpr std::int64_t samples = 3;

double number(std::uint64_t seed, std::int64_t i) { return random_stream(seed, "numbers").uniform(i, 1.0); }

void fill(Shard<double, Space> const& shard, std::uint64_t seed) {
  io::BatchReader<double, Space> reader;
  reader(shard, [&](std::int64_t n, Box const& box, double* cells) {
    Box one = box;
    one.axis[0] = {n, n + 1};
    Rows const rows{one};
    Shape const s = shard.shape();
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      std::int64_t at[4];
      rows.position(row, at);
      for (std::int64_t c = one.axis[4].begin; c < one.axis[4].end; ++c)
        *cells++ = number(seed, (((at[0] * s.depth + at[1]) * s.height + at[2]) * s.width + at[3]) * s.channel + c);
    }
  });
}

/// The sum of the outputs, each with a weight of its own; the weights are what `error` holds.
double weighted_sum(Model<double, Space> net) {
  net.forward(samples);
  Shard<double, Space> const &y = net.output(samples), &dy = net.error(samples);
  double sum = 0.0;
  Rows const rows{y.owned()};
  for (std::int64_t row = 0; row < rows.count(); ++row) {
    std::int64_t at[4];
    rows.position(row, at);
    for (std::int64_t c = y.owned().axis[4].begin; c < y.owned().axis[4].end; ++c)
      sum += y(at[0], at[1], at[2], at[3], c) * dy(at[0], at[1], at[2], at[3], c);
  }
  return net.input_ranks().world().all_reduce(sum);
}

struct Result {
  double sum = 0.0;
  std::vector<double> gradients;
};
Result run_once(Model<double, Space> net) {
  net.allocate(samples, 5);
  fill(net.input(samples), 1);
  fill(net.error(samples), 2);
  Result result{weighted_sum(net), {}};
  net.zero_gradients();
  net.backward(samples);
  net.finish_gradients();
  for (auto const* p : net.parameters())
    for (double const g : p->download_gradient()) result.gradients.push_back(g);
  return result;
}

}  // namespace

TEST_CASE("custom layer: joins a network and equals the serial one") {
  auto const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  Result const serial = run_once(network({Communicator<Mpi>::borrow(MPI_COMM_SELF), Counts{}}));
  for (Counts const& split : {Counts{.sample = world.size()}, Counts{.depth = world.size()},
                              Counts{.sample = 2, .depth = world.size() / 2}}) {
    if (split.product() != world.size()) continue;
    Result const here = run_once(network({world, split}));
    CHECK(here.sum == doctest::Approx(serial.sum).epsilon(1e-13));
    REQUIRE(here.gradients.size() == serial.gradients.size());
    for (std::size_t i = 0; i < serial.gradients.size(); ++i)
      CHECK(here.gradients[i] == doctest::Approx(serial.gradients[i]).epsilon(1e-12).scale(1.0));
  }
}

TEST_CASE("custom layer: its gradients are those of finite differences") {
  auto const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  RankGrid<Spatial> const ranks(world, Counts{.depth = world.size()});
  auto net = network(ranks);
  std::vector<double> const gradients = run_once(net).gradients;
  double const step = 1e-4;
  std::size_t next = 0;
  int gates = 0;
  for (auto* p : net.parameters()) {
    std::vector<double> const start = p->download();
    bool const gate = p->name().starts_with("smooth");
    gates += gate;
    for (std::size_t i = 0; i < start.size(); ++i, ++next) {
      if (!gate && i % 23 != 0) continue;  // some weights of the layer before, which see dx
      // Central differences of fourth order: their error is of the order of step^4.
      double slope = 0.0;
      for (auto const& [way, weight] : {std::pair{-2, 1.0}, {-1, -8.0}, {1, 8.0}, {2, -1.0}}) {
        std::vector<double> moved = start;
        moved[i] += way * step;
        p->set(moved);
        slope += weight * weighted_sum(net) / (12 * step);
      }
      CAPTURE(p->name());
      CAPTURE(i);
      CHECK(std::abs(slope - gradients[next]) <= 1e-6 * std::abs(gradients[next]));
    }
    p->set(start);
  }
  CHECK(gates == 2);
  CHECK(next == gradients.size());
}
