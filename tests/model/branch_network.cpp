// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Networks with branches: a small U-Net, a gate, and what is refused.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/volume.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/flat_dense.hpp"
#include "tessera/layer/global_pool.hpp"
#include "tessera/layer/pool.hpp"
#include "tessera/layer/redistribute.hpp"
#include "tessera/layer/transposed_conv.hpp"
#include "tessera/model/concat.hpp"
#include "tessera/model/model.hpp"
#include "tessera/model/multiply.hpp"
#include "tessera/model/residual.hpp"
#include "tessera/model/summary.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Net = Model<double, Host>;
using Text = doctest::Contains;

/// An encoder halves each extent, and a transposed convolution brings the cells back, to an odd or even extent. Blocks
/// with given boundaries do not come back as they were.
auto half(std::int64_t channels) { return conv3d<3>(channels, stride(2), padding(1)); }
auto back(std::int64_t channels, std::int64_t d, std::int64_t h, std::int64_t w) {
  auto const more = [](std::int64_t n) { return n % 2 == 0 ? 1 : 0; };
  return transposed_conv3d<3>(channels, stride(2), padding(1), output_padding(more(d), more(h), more(w)));
}

/// Two levels. The innermost branch ends in a layer that reads its output again, where it lies in the concatenation.
Net u_net(RankGrid<AnySplit> const& ranks, Partition const& input) {
  Shape const s = input.shape();
  auto const up = [](std::int64_t n) { return (n + 1) / 2; };
  return sequential<double, Host>(
      ranks, input, conv3d<3>(3, same), scaled_tanh(1.5),
      concat_skip(
          half(4), scaled_tanh(1.5),
          concat_skip(half(5), scaled_tanh(1.5), back(4, up(s.depth), up(s.height), up(s.width)), scaled_tanh(1.2)),
          conv3d<3>(4, same), scaled_tanh(1.5), back(3, s.depth, s.height, s.width)),
      conv3d<3>(2, same));
}

/// Squeeze and excitation with residual connections, and a concatenation within a sum, whose branches read their
/// outputs again.
Net gated_net(RankGrid<AnySplit> const& ranks, Partition const& input) {
  Shape const s = input.shape();
  auto const squeeze = avg_pool3d(kernel(s.depth, s.height, s.width));
  auto const gate = branch(squeeze, conv3d<1>(2), scaled_tanh(1.0), conv3d<1>(4), scaled_tanh(0.9));
  return sequential<double, Host>(
      ranks, input, conv3d<3>(4, same), multiply(branch(), gate), residual(multiply(gate, branch(conv3d<2>(4, same)))),
      add(branch(concat(branch(conv3d<1>(1), scaled_tanh(1.1)), branch(conv3d<2>(3, same), scaled_tanh(0.7)))),
          branch(), branch(conv3d<1>(4))),
      multiply(branch(avg_pool3d(kernel(s.depth, 1, 1))), branch(avg_pool3d(kernel(1, s.height, s.width)))),
      concat(branch(), branch(scaled_tanh(0.5))), concat(branch(scaled_tanh(0.6)), branch()), conv3d<1>(2));
}

void fill(Shard<double, Host> const& shard, std::uint64_t seed) {
  HostTensor const all = random_tensor(shard.shape(), seed);
  for_each_cell(shard.owned(), [&](auto... at) { shard(at...) = all.at(at...); });
}

/// The sum of the outputs, each with a weight of its own: what `error` holds.
double weighted_sum(Net net, std::int64_t samples) {
  net.forward(samples);
  auto const &y = net.output(samples), &dy = net.error(samples);
  double sum = 0.0;
  for_each_cell(y.owned(), [&](auto... at) { sum += y(at...) * dy(at...); });
  return net.input_ranks().world().all_reduce(sum);
}

std::vector<std::vector<double>> gradients_of(Net net, std::int64_t samples) {
  fill(net.input(samples), 1);
  fill(net.error(samples), 2);
  net.forward(samples);
  net.zero_gradients();
  net.backward(samples);
  net.finish_gradients();
  std::vector<std::vector<double>> all;
  for (auto const* p : net.parameters()) all.push_back(p->download_gradient());
  return all;
}

/// Forward with the same bits as on one rank unless channels are cut, gradients within 1e-12 of the largest of their
/// parameter.
template <class Network>
void equals_serial(Network const& network, Partition const& input) {
  CAPTURE(text(input));
  auto const world = world_ranks();
  RankGrid<AnySplit> const ranks(world, input.grid().counts());
  Net net = network(ranks, input.with_samples(1));
  Net serial = network(self_ranks(), Partition(Grid(Counts{}), input.shape().with_samples(1)));
  std::int64_t const samples = input.shape().sample;
  net.allocate(samples, 3);
  serial.allocate(samples, 3);
  for (std::int64_t const batch : {samples, std::int64_t{1}, samples}) {
    auto const got = gradients_of(net, batch), expected = gradients_of(serial, batch);
    together([&] {
      if (cuts_channels(input))  // partial sums over channels travel
        for_each_cell(net.output(batch).owned(), [&](auto... at) {
          double const y = net.output(batch)(at...), whole = serial.output(batch)(at...);
          expect(std::abs(y - whole) <= 1e-12, tessera::detail::text("y is ", y, ", but ", whole, " on one rank"));
        });
      else
        expect_same_bits("y", net.output(batch), serial.output(batch));
      for (std::size_t p = 0; p < expected.size(); ++p) {
        double largest = 0.0;
        for (double const g : expected[p]) largest = std::max(largest, std::abs(g));
        auto const mine = Driver<double>::shard_of(*net.parameters()[p], expected[p]);
        expect_values(net.parameters()[p]->name(), got[p], mine, std::vector<double>(mine.size(), 1e-12 * largest));
      }
    });
  }
}

/// Every way to give the ranks to one axis, and some to several.
std::vector<Counts> cuts(std::int64_t ranks) {
  std::vector<Counts> all;
  for (AxisId axis : {AxisId::sample, AxisId::depth, AxisId::height, AxisId::width}) all.emplace_back()[axis] = ranks;
  all.push_back({.channel = ranks});
  if (ranks % 2 == 0) all.push_back({.sample = 2, .width = ranks / 2});
  if (ranks % 2 == 0) all.push_back({.channel = 2, .height = ranks / 2});
  if (ranks % 4 == 0) all.push_back({.depth = 2, .height = ranks / 4, .width = 2});
  return all;
}

void check_slopes(Net net, std::int64_t samples) {
  auto const gradients = gradients_of(net, samples);
  double const step = 1e-3, rounding = 1e-11;  // of sums of the order of 100, over the step
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    auto* const parameter = net.parameters()[p];
    std::vector<double> const start = parameter->download();
    for (std::size_t i = 0; i < start.size(); i += 1 + start.size() / 5) {
      // Central differences of fourth order.
      double slope = 0.0;
      for (auto const& [way, weight] : {std::pair{-2, 1.0}, {-1, -8.0}, {1, 8.0}, {2, -1.0}}) {
        std::vector<double> moved = start;
        moved[i] += way * step;
        parameter->set(moved);
        slope += weight * weighted_sum(net, samples) / (12 * step);
      }
      CAPTURE(parameter->name());
      CAPTURE(i);
      CHECK(std::abs(slope - gradients[p][i]) <= 1e-6 * std::abs(gradients[p][i]) + rounding);
    }
    parameter->set(start);
  }
}

}  // namespace

TEST_CASE("branches: a U-Net of two levels equals the one on one rank") {
  poison_fresh_memory();
  std::int64_t const ranks = world_ranks().size();
  for (Counts const& counts : cuts(ranks)) equals_serial(u_net, Partition(Grid(counts), {3, 7, 6, 9, 2}));
}

TEST_CASE("branches: boundaries that do not come back from an encoder") {
  std::int64_t const ranks = world_ranks().size();
  std::vector<std::int64_t> boundaries;
  for (std::int64_t i = 0; i <= ranks; ++i) boundaries.push_back(i == ranks ? 11 : i);  // the last block is wide
  std::array<Blocks, axis_count> const blocks{Blocks(2, 1), Blocks::at(boundaries), Blocks(6, 1), Blocks(5, 1),
                                              Blocks(2, 1)};
  equals_serial(u_net, Partition(Grid(Counts{.depth = ranks}), blocks));
  equals_serial(gated_net, Partition(Grid(Counts{.depth = ranks}), blocks));
}

TEST_CASE("branches: gates and sums equal those on one rank") {
  poison_fresh_memory();
  std::int64_t const ranks = world_ranks().size();
  for (Counts const& counts : cuts(ranks)) equals_serial(gated_net, Partition(Grid(counts), {3, 3, 4, 5, 2}));
}

TEST_CASE("branches: gradients are those of finite differences") {
  auto const world = world_ranks();
  RankGrid<AnySplit> const ranks(world, Counts{.width = world.size()});
  Net net = gated_net(ranks, Partition(ranks.grid(), {1, 3, 4, 5, 2}));
  net.allocate(2, 3);
  check_slopes(net, 2);
  Net unet = u_net(ranks, Partition(ranks.grid(), {1, 3, 4, 5, 2}));
  unet.allocate(2, 3);
  check_slopes(unet, 2);
}

TEST_CASE("branches: what does not fit is refused with both shapes") {
  auto const world = world_ranks();
  RankGrid<AnySplit> const ranks(world, Counts{.width = world.size()});
  auto const bind = [&](auto const& spec) { sequential<float, Host>(ranks, SampleShape<1>{2, {9}}, spec); };
  CHECK_THROWS_WITH_AS(bind(concat(branch(), branch(relu()), branch(conv1d<2>(3)))),
                       "concat: branches must agree in samples and space, but branch 1 makes (1, 1, 1, 9, 2) and "
                       "branch 3 makes (1, 1, 1, 8, 3); an odd extent that a strided layer halves comes back one cell "
                       "short or long: give the transposed convolution output_padding, or crop a branch by negative "
                       "padding",
                       Error);
  CHECK_THROWS_WITH_AS(bind(concat_skip(conv1d<2>(2, stride(2)), transposed_conv1d<2>(2, stride(2)))),
                       Text("branch 1 makes (1, 1, 1, 9, 2) and branch 2 makes (1, 1, 1, 8, 2); an odd extent"), Error);
  CHECK_THROWS_WITH_AS(bind(concat_skip(conv1d<1>(2, stride(2)))),
                       "concat_skip: branches must agree in samples and space, but branch 1 makes (1, 1, 1, 9, 2) and "
                       "branch 2 makes (1, 1, 1, 5, 2); give them the same strides and padding",
                       Error);
  CHECK_THROWS_WITH_AS(bind(add(branch(), branch(conv1d<1>(3)))),
                       "add: branches must agree in shape, but branch 1 makes (1, 1, 1, 9, 2) and branch 2 makes (1, "
                       "1, 1, 9, 3); give one of them a convolution that makes it fit",
                       Error);
  CHECK_THROWS_WITH_AS(bind(residual(conv1d<2>(2))),
                       Text("residual: branches must agree in shape, but branch 1 makes "
                            "(1, 1, 1, 8, 2) and branch 2 makes (1, 1, 1, 9, 2); an odd"),
                       Error);
  CHECK_THROWS_WITH_AS(bind(multiply(branch(), branch(avg_pool1d<4>()))),
                       "multiply: branches must agree in shape, but for an extent of 1 in space, which is repeated, "
                       "but branch 1 makes (1, 1, 1, 9, 2) and branch 2 makes (1, 1, 1, 2, 2); give one of them a "
                       "convolution that makes it fit",
                       Error);
  CHECK_THROWS_WITH_AS(bind(multiply(branch(), branch(avg_pool1d<9>(), conv1d<1>(1)))),
                       Text("branch 2 makes (1, 1, 1, 1, 1)"), Error);
  if (world.size() > 1)
    CHECK_THROWS_WITH_AS(bind(add(branch(), branch(redistribute<AnySplit>({.depth = world.size()})))),
                         "add: branch 2 must end with the counts that it starts with; redistribute back inside it, or "
                         "after the branches",
                         Error);
}

TEST_CASE("branches: a slice is a tensor on the same memory") {
  Partition const whole(Grid(Counts{}), {1, 1, 1, 4, 5}), part(Grid(Counts{}), {1, 1, 1, 4, 2});
  Shard<float, Host> const all(whole, 0, Box{{{0, 1}, {0, 1}, {0, 1}, {-1, 5}, {0, 5}}});
  Shard<float, Host> const slice = all.slice(part, 0, 3);
  all(0, 0, 0, 2, 4) = 7;
  CHECK(slice(0, 0, 0, 2, 1) == 7);
  CHECK(slice.owned() == part.owned(0));
  CHECK(slice.held() == Box{{{0, 1}, {0, 1}, {0, 1}, {-1, 5}, {0, 2}}});
  CHECK_THROWS_WITH_AS(slice.view(), "Shard::view: a slice of channels has no dense view; use its tile", Error);
  CHECK_THROWS_WITH_AS(all.slice(part, 0, 4), Text("Shard::slice: the slice must lie within what is held"), Error);
}

TEST_CASE("branches: a rank without outputs holds the errors that its inputs touch, in all branches' channels") {
  auto const world = world_ranks();
  if (world.size() != 4) return;
  RankGrid<AnySplit> const ranks(world, Counts{.width = 4});
  Partition const input(ranks.grid(), {1, 1, 1, 3, 2});
  auto const pool = avg_pool1d<2>(stride(2), padding_high(1));
  Driver<double> driver(ranks, input, concat(branch(pool), branch(pool)));
  Box const needs = driver.layer().needs_error(input);
  if (world.rank() == 2) CHECK(needs == Box{{{0, 1}, {0, 1}, {0, 1}, {1, 2}, {0, 4}}});
  if (world.rank() == 3) CHECK(needs.empty());
}

TEST_CASE("branches: a dense layer on all cells reads its channels of a joined tensor, and no others") {
  auto const ranks = world_ranks();
  auto const values_of = [&](auto const& inner) {
    auto net = sequential<double>(ranks, SampleShape<1>{.channels = 3, .space = {4}}, dense(5, flattened), dense(6),
                                  concat_skip(inner), dense(2));
    net.allocate(3, 5);
    auto const& x = net.input(3);
    for_each_cell(x.owned(), [&](auto n, auto d, auto h, auto w, auto c) {
      x(n, d, h, w, c) = 0.3 * static_cast<double>((n * 5 + w * 3 + c * 7 + d + h) % 9) - 1.0;
    });
    net.zero_gradients();
    net.forward(3);
    auto const &y = net.output(3), &error = net.error(3);
    for_each_cell(y.owned(), [&](auto n, auto d, auto h, auto w, auto c) { error(n, d, h, w, c) = y(n, d, h, w, c); });
    net.backward(3);
    net.finish_gradients();
    std::vector<double> all;
    for (auto* p : net.parameters())
      for (double const g : p->download_gradient()) all.push_back(g);
    for_each_cell(y.owned(), [&](auto n, auto d, auto h, auto w, auto c) { all.push_back(y(n, d, h, w, c)); });
    return all;
  };
  auto const one = values_of(dense(4, flattened)), other = values_of(dense(4));
  if (ranks.size() > 1) return;  // weights lie elsewhere then; other tests compare with one rank
  REQUIRE(one.size() == other.size());
  for (std::size_t i = 0; i < one.size(); ++i) CHECK(one[i] == doctest::Approx(other[i]).epsilon(1e-12));
}

TEST_CASE("branches: what a summary says of them") {
  auto const world = world_ranks();
  if (world.size() != 2) return;
  RankGrid<AnySplit> const ranks(world, Counts{.width = 2});
  // The input of a level of a U-Net lies in its output, halos of both included.
  auto const level = sequential<float, Host>(ranks, SampleShape<1>{2, {8}}, conv1d<1>(2),
                                             concat_skip(conv1d<5>(3, same)), conv1d<3>(1, same));
  CHECK(level.describe(1)[0].held_cells == 0);
  CHECK(level.describe(1)[2].held_cells == (4 + 2 * 2) * 5);
  auto const net = sequential<float, Host>(ranks, SampleShape<1>{2, {8}}, concat_skip(conv1d<3>(3, same), relu()),
                                           multiply(branch(), branch(avg_pool1d<8>(), scaled_tanh())),
                                           add(branch(), branch(relu(), conv1d<1>(5))));
  auto const layers = net.describe(1);
  std::vector<std::string> names;
  for (LayerInfo const& layer : layers) names.push_back(layer.what);
  CHECK(names == std::vector<std::string>{"conv 3 same, 3 channels, bias", "relu", "concat_skip", "avg_pool 8 stride 8",
                                          "scaled_tanh", "product", "relu", "conv 1, 5 channels, bias", "sum"});
  CHECK(layers[1].held_cells == 0);                                // lies in the concatenation
  CHECK(layers[2].held_cells == (world.rank() == 0 ? 8 : 4) * 5);  // the first rank's pool reads all
  // The gate travels to the rank that does not own it, and its gradient back.
  CHECK(layers[5].halo_cells == (world.rank() == 0 ? 0 : 5));
  CHECK(layers[5].halo_cells_back == (world.rank() == 0 ? 5 : 0));
  CHECK(layers[4].held_cells == (world.rank() == 0 ? 5 : 0) + 5);  // the gate, and the copy that arrives
  CHECK(layers[7].held_cells == 0);                                // writes straight to the sum
}

TEST_CASE("what joined branches say of their messages adds up to the formulas") {
  auto const world = world_ranks();
  Coverage coverage("described volumes of branches", world.size());
  distributed_property(
      "described volume of branches",
      [&] {
        std::int64_t const space = draw(1, 3, "spatial axes");
        Counts const counts = draw_counts(world.size(), space, ChannelCuts::yes);
        Shape const in = draw_shape(counts, space);
        Partition const input = draw_partition(in, counts).with_samples(in.sample);  // as a model has them
        auto const join = static_cast<Join>(draw(0, 2, "join (concat, sum, product)"));
        std::int64_t const some = draw(1, 5, "channels of the second branch"),
                           more = draw(1, 5, "channels of the third branch");
        RankGrid<AnySplit> const ranks(world, counts);
        auto const net_of = [&](auto const& joins) {  // behind a layer that learns, so that errors are wanted
          return sequential<double, Host>(ranks, input, conv3d<1>(in.channel), joins);
        };
        auto const net =
            join == Join::concat ? net_of(concat(branch(), branch(conv3d<1>(some)), branch(conv3d<1>(more))))
            : join == Join::sum  ? net_of(add(branch(), branch(conv3d<1>(in.channel))))
                                 : net_of(multiply(branch(conv3d<1>(in.channel)), branch(global_avg_pool())));
        std::vector<Shape> shapes{in};
        if (join == Join::concat) {
          shapes.push_back(in.with_channels(some));
          shapes.push_back(in.with_channels(more));
        } else if (join == Join::sum) {
          shapes.push_back(in);
        } else {
          shapes.push_back({in.sample, 1, 1, 1, in.channel});
        }
        Shape joined = in;
        if (join == Join::concat) joined.channel += some + more;
        Partition const whole = input.scaled_to(joined);
        std::int64_t there = 0, back = 0, first = 0;
        for (Shape const& shape : shapes) {
          Partition const has = input.scaled_to(shape);
          AllNeeds needs = owned(whole);
          for (AxisId axis : space_in_order)
            for (Cells& cells : along(needs, axis))
              if (shape[axis] == 1 && !cells.empty()) cells = {0};
          for (Cells& cells : along(needs, AxisId::channel)) {
            Cells own;
            for (std::int64_t const c : cells)
              if (first <= c && c < first + shape.channel) own.push_back(c - first);
            cells = own;
          }
          if (join == Join::concat) first += shape.channel;
          Flow const moved = flow(has, needs, Padding::zeros);
          there += moved.received(ranks.coordinates());
          back += moved.received_back(ranks.coordinates());
        }
        coverage.begin_case();
        coverage.count_decomposition(input, whole);
        coverage.count("channels cut", cuts_channels(input), world.size() > 1);
        coverage.count("something moves", ranks.world().all_reduce(there, Reduce::max) > 0, world.size() > 1);
        LayerInfo const info = net.describe(in.sample).back();
        together([&] {
          expect(info.halo_cells == there && info.halo_cells_back == back,
                 tessera::detail::text(info.what, ": ", info.halo_cells, " and ", info.halo_cells_back,
                                       " cells are said to move, expected ", there, " and ", back, "\n  in ",
                                       text(input), " and ", some, " and ", more, " channels"));
        });
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}
