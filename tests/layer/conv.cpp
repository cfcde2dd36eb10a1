// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/layer/conv.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/host_tensor.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/oracle/conv.hpp"
#include "tessera/comm/rank_grid.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Case {
  std::array<Window, 3> windows;
  Shape x;
  std::int64_t out_channels = 1;
  std::int64_t groups = 1;
  Padding padding = Padding::zeros;
  Stationary stationary = Stationary::automatic;
  bool bias = true;
  Partition input;
  bool adds = false;         ///< dx is added to what is there
  bool without_dx = false;   ///< as the first layer of a network
  std::int64_t samples = 1;  ///< of an incomplete batch after the whole one
  std::uint64_t seed = 0;

  oracle::Conv oracle() const {
    return {{windows[0], windows[1], windows[2]}, x.channel, out_channels, groups, padding};
  }

  /// Whether outputs, and input gradients, sum their terms as on one rank.
  bool same_order_forward() const { return !cuts_channels(input); }
  bool same_order_backward() const { return !cuts_channels(input) && padding == Padding::zeros; }
  /// How often a term may stand in for another beyond the border.
  std::int64_t images() const {
    std::int64_t all = 1;
    for (Window const& w : windows) all *= padding == Padding::zeros ? 1 : 1 + std::abs(w.low) + std::abs(w.high);
    return all;
  }

  ConvSpec spec() const {
    auto const& [d, h, w] = windows;
    ConvSpec const made = conv3d(out_channels, kernel(d.kernel, h.kernel, w.kernel),
                                 stride(d.stride, h.stride, w.stride), dilation(d.dilation, h.dilation, w.dilation),
                                 padding_low(d.low, h.low, w.low), padding_high(d.high, h.high, w.high));
    ConvSpec with = made;
    with.bias = bias;
    with.groups = groups;
    with.padding = padding;
    with.stationary = stationary;
    return with;
  }

  std::string text() const {
    return tessera::detail::text("conv of ", test::text(input), " to ", out_channels, " channels, ",
                                 test::text(windows[0]), " | ", test::text(windows[1]), " | ", test::text(windows[2]),
                                 ", ", groups, " groups, ", name(padding), ", stationary ",
                                 static_cast<int>(stationary), bias ? ", bias" : "", adds ? ", adds" : "",
                                 without_dx ? ", no dx" : "", ", then ", samples, " samples, seed ", seed);
  }
};

bool is_product(std::int64_t n) { return n == 4 || n == 6 || n == 8; }

Case draw_case(std::int64_t ranks) {
  Case c;
  std::int64_t const space = draw(1, 3, "spatial axes");
  Counts const counts = draw_counts(ranks, space, ChannelCuts::yes);
  c.x = draw_shape(counts, space);
  c.out_channels = draw(1, 9, "output channels");
  std::int64_t const kind = draw(0, 4, "channels (0-2 free, 3 groups, 4 depthwise)");
  if (kind >= 3) {
    c.groups = draw(2, kind == 3 ? 3 : 9, "groups");
    c.x.channel = c.groups * (kind == 3 ? draw(1, 3, "inputs of a group") : 1);
    c.out_channels = c.groups * (kind == 3 ? draw(1, 3, "outputs of a group") : 1);
  } else {
    c.stationary = static_cast<Stationary>(draw(0, 3, "stationary (automatic, x, y, w)"));
    if (c.stationary == Stationary::w && !is_product(counts.channel)) c.stationary = Stationary::automatic;
  }
  if (draw(0, 1, "a padding mode") == 1)
    c.padding = static_cast<Padding>(draw(1, 3, "mode (circular, reflect, replicate)"));
  for (std::int64_t i = 3 - space; i < 3; ++i) {
    Window& w = c.windows[static_cast<std::size_t>(i)];
    std::int64_t const extent = c.x[space_in_order[static_cast<std::size_t>(i)]];
    w.kernel = draw(1, draw_one_in(3, "a wide kernel") ? 7 : 4, "kernel");
    w.stride = draw(0, 1, "strided") == 0 ? 1 : draw(2, 4, "stride");
    w.dilation = draw_one_in(3, "dilated") ? draw(2, 3, "dilation") : 1;
    w.low = draw(-2, larger(2, w.span() - 1), "low");
    w.high = draw(-2, larger(2, w.span() - 1), "high");
    if (c.padding == Padding::reflect) {
      w.low = smaller(w.low, extent - 1);
      w.high = smaller(w.high, extent - 1);
      while (w.kernel > 1 && w.span() > extent + w.low + w.high) --w.kernel;
      if (w.span() > extent + w.low + w.high) w.low = w.high = 0;
    }
    w.high = larger(w.high, w.span() - extent - w.low);
  }
  auto const work = [&] {
    Shape const y = c.oracle().output(c.x);
    return y.volume() * c.oracle().taps() * c.oracle().group_inputs();
  };
  while (work() > 30000) {
    if (c.groups > 1)
      c.groups = c.x.channel = c.out_channels = 1;
    else if (c.x.channel * c.out_channels > 1)
      (c.x.channel > c.out_channels ? c.x.channel : c.out_channels) -= 1;
    else if (c.x.sample > 1)
      --c.x.sample;
    else
      break;
  }
  c.bias = draw(0, 2, "bias") > 0;
  c.input = draw_partition(c.x, counts);
  c.adds = draw(0, 1, "adds") == 1;
  c.without_dx = draw_one_in(8, "no data gradient");
  c.samples = draw(1, c.x.sample, "samples of an incomplete batch");
  c.seed = static_cast<std::uint64_t>(draw(0, 1'000'000, "seed"));
  return c;
}

/// PyTorch's order (out, in, d, h, w), from or to the oracle's (d, h, w, in, out).
std::vector<double> reordered(oracle::Conv const& conv, std::vector<double> const& from, bool to_torch) {
  std::vector<double> result(from.size());
  std::int64_t const taps = conv.taps(), inputs = conv.group_inputs();
  for (std::int64_t co = 0; co < conv.out_channels; ++co)
    for (std::int64_t ci = 0; ci < inputs; ++ci)
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        auto const torch = static_cast<std::size_t>((co * inputs + ci) * taps + tap);
        auto const ours = static_cast<std::size_t>((tap * inputs + ci) * conv.out_channels + co);
        if (to_torch)
          result[torch] = from[ours];
        else
          result[ours] = from[torch];
      }
  return result;
}

/// One batch through a layer on all ranks, against the oracle and, bit for bit, against the same layer on one rank.
template <class T>
void check_batch(Case const& c, Partition const& input, Driver<T>& driver, Driver<T>& alone, std::uint64_t seed) {
  oracle::Conv const conv = c.oracle();
  Shape const in = input.shape(), out = conv.output(in);
  HostTensor const x = random_tensor(in, seed), dy = random_tensor(out, seed + 1), start = random_tensor(in, seed + 2);
  auto const w = random_values(static_cast<std::int64_t>(conv.weights()), seed + 3);
  auto const b = c.bias ? random_values(c.out_channels, seed + 4) : std::vector<double>{};
  auto const torch = reordered(conv, w, true);
  std::int64_t const ranks = input.grid().size(), taps = conv.taps() * conv.group_inputs() + ranks,
                     readers = conv.taps() * c.images() * c.out_channels / c.groups + ranks;

  for (Driver<T>* each : {&driver, &alone}) {
    Partition const part = each == &alone ? Partition(Grid(Counts{}), in) : input;
    each->set_shard(".weight", torch);
    if (c.bias) each->set_shard(".bias", b);
    each->forward(part, x);
    each->backward(dy, {}, c.adds ? &start : nullptr, c.without_dx);
  }

  together([&] {
    driver.expect_clean();
    alone.expect_clean();
    HostTensor const y = oracle::conv_forward(conv, x, w, b), y_size = oracle::conv_forward(conv, x, w, b, true);
    expect_owned("y", driver.y(), y, [&](std::size_t i) { return gamma_n<T>(taps + 1) * y_size.values[i]; });
    if (c.same_order_forward()) expect_same_bits("y", driver.y(), alone.y());

    if (!c.without_dx) {
      HostTensor dx = oracle::conv_backward_data(conv, in, w, dy),
                 dx_size = oracle::conv_backward_data(conv, in, w, dy, true);
      if (c.adds)
        for (std::size_t i = 0; i < dx.values.size(); ++i) {
          dx.values[i] += start.values[i];
          dx_size.values[i] += std::abs(start.values[i]);
        }
      expect_owned("dx", driver.dx(), dx, [&](std::size_t i) { return gamma_n<T>(readers + 1) * dx_size.values[i]; });
      if (c.same_order_backward()) expect_same_bits("dx", driver.dx(), alone.dx());
    }

    std::int64_t const terms = out.sample * out.depth * out.height * out.width + ranks;
    std::vector<double> bounds = reordered(conv, oracle::conv_backward_filter(conv, x, dy, true), true);
    for (double& bound : bounds) bound *= gamma_n<T>(terms + 1);
    driver.expect_gradient("dw", ".weight", reordered(conv, oracle::conv_backward_filter(conv, x, dy), true), bounds);
    if (c.bias) {
      bounds = oracle::conv_backward_bias(dy, true);
      for (double& bound : bounds) bound *= gamma_n<T>(terms);
      driver.expect_gradient("db", ".bias", oracle::conv_backward_bias(dy), bounds);
    }
  });
}

template <class T>
void check(Case const& c, RankGrid<AnySplit> const& world, RankGrid<AnySplit> const& self) {
  RankGrid<AnySplit> const ranks(world, c.input.grid().counts());
  Driver<T> driver(ranks, c.input, c.spec()), alone(self, Partition(self.grid(), c.x), c.spec());
  try {
    check_batch(c, c.input, driver, alone, c.seed);
    // An incomplete batch, then the large one again, where samples lie in balanced blocks as they do in a model.
    if (c.input.blocks(AxisId::sample).balanced() && c.samples < c.x.sample) {
      check_batch(c, c.input.with_samples(c.samples), driver, alone, c.seed + 10);
      check_batch(c, c.input, driver, alone, c.seed + 20);
    }
  } catch (Error const& error) {
    throw Error(error.what() + std::string("\n  in ") + c.text());
  }
}

template <class T>
void distributed_equals_serial(char const* type) {
  poison_fresh_memory();
  auto const world = world_ranks(), self = self_ranks();
  Coverage coverage(std::string("conv in ") + type, world.size());
  distributed_property(
      std::string("conv in ") + type + ": distributed equals serial",
      [&] {
        Case const c = draw_case(world.size());
        coverage.begin_case();
        coverage.count_windows(c.input, c.input.scaled_to(c.oracle().output(c.x)), c.windows);
        coverage.count("groups", c.groups > 1);
        coverage.count("padding mode", c.padding != Padding::zeros);
        coverage.count("channels cut", cuts_channels(c.input), world.size() > 1);
        check<T>(c, world, self);
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}

/// One named convolution: both types, with bias, with a data gradient that is written.
void check_named(Case c) {
  auto const world = world_ranks(), self = self_ranks();
  c.samples = c.x.sample;
  check<double>(c, world, self);
  check<float>(c, world, self);
}

Case along_width(std::int64_t n, Window const& window, std::vector<std::int64_t> boundaries = {}) {
  Case c;
  std::int64_t const ranks = Communicator<Mpi>::borrow(MPI_COMM_WORLD).size();
  c.windows[2] = window;
  c.x = {2, 1, 1, n, 3};
  c.out_channels = 2;
  if (boundaries.empty()) {
    c.input = Partition(Grid(Counts{.width = ranks}), c.x);
  } else {
    // Ranks beyond those that the boundaries name own nothing.
    boundaries.resize(static_cast<std::size_t>(ranks) + 1, n);
    boundaries.back() = n;
    c.input = Partition(Grid(Counts{.width = ranks}),
                        {Blocks(2, 1), Blocks(1, 1), Blocks(1, 1), Blocks::at(boundaries), Blocks(3, 1)});
  }
  return c;
}

}  // namespace

TEST_CASE("conv in double: forward and every gradient equal the serial ones") {
  distributed_equals_serial<double>("double");
}

TEST_CASE("conv in float: forward and every gradient equal the serial ones") {
  distributed_equals_serial<float>("float");
}

TEST_CASE("cases 1, 14: k3 s2 p1 on uneven shards has the outputs and the data gradient that it has on one rank") {
  for (auto const& boundaries : std::vector<std::vector<std::int64_t>>{{0, 5, 10}, {0, 7, 12}, {0, 3, 6, 10}}) {
    Case const c = along_width(boundaries.back(), {3, 2, 1, 1, 1}, boundaries);
    CHECK(c.oracle().output(c.x).width == ceil_div(boundaries.back(), 2));
    check_named(c);
  }
  Case even = along_width(32, {3, 2, 1, 1, 1});
  CHECK(even.oracle().output(even.x).width == 16);
  check_named(even);
  even.x.height = 8;
  even.windows[1] = {3, 2, 1, 1, 1};
  even.input = Partition(even.input.grid(), even.x);
  check_named(even);
}

TEST_CASE("case 2: even kernels, strides that do not divide, dilation") {
  for (Window const& window :
       {Window{2, 1, 1, 0, 1}, {4, 3, 1, 1, 2}, {3, 1, 3, 3, 3}, {4, 3, 2, 2, 5}, {2, 4, 3, 0, 0}})
    for (std::int64_t n : {7, 11, 12}) check_named(along_width(n, window));
}

TEST_CASE("case 3: k7 s2 p3 with the batch split alone") {
  Case c = along_width(12, {7, 2, 1, 3, 3});
  std::int64_t const ranks = c.input.grid().size();
  c.x.sample = ranks + 1;
  c.input = Partition(Grid(Counts{.sample = ranks}), c.x);
  check_named(c);
}

TEST_CASE("case 4: k4 s4, and the gradient is decomposed as the input is") {
  check_named(along_width(32, {4, 4, 1, 0, 0}));
  check_named(along_width(13, {4, 4, 1, 0, 0}));
}

TEST_CASE("case 5: a first layer computes no data gradient, and the same filter gradient") {
  Case c = along_width(12, {3, 1, 1, 1, 1});
  c.without_dx = true;
  check_named(c);
}

TEST_CASE("case 6: an axis with one rank has nothing to exchange") {
  auto const world = world_ranks();
  RankGrid<AnySplit> const ranks(world, Counts{.sample = world.size()});
  Shape const shape{world.size(), 3, 4, 5, 2};
  Partition const input(ranks.grid(), shape);
  Driver<double> driver(ranks, input, conv3d<3>(2, same));
  std::vector<LayerInfo> info;
  driver.layer().describe(input, true, info);
  CHECK(info.front().halo_cells == 0);
  CHECK(info.front().halo_cells_back == 0);
}

TEST_CASE("cases 7, 18: ranks without a cell take part") {
  Case c = along_width(2, {3, 1, 1, 1, 1});
  check_named(c);  // (2) on up to 8 ranks
  c.x = {2, 3, 2, 2, 3};
  c.windows[0] = c.windows[1] = c.windows[2];
  c.input = Partition(Grid(Counts{.depth = c.input.grid().size()}), c.x);
  check_named(c);
  check_named(along_width(6, {3, 1, 1, 1, 1}, {0, 0, 0, 6}));  // all on one rank, or none before it
}

TEST_CASE("case 8: a halo wider than the block") {
  std::int64_t const ranks = world_ranks().size();
  check_named(along_width(4 * ranks, {11, 1, 1, 5, 5}));
  check_named(along_width(2 * ranks, {7, 1, 3, 9, 9}));
}

TEST_CASE("case 9: halos of consecutive steps do not mix") {
  auto const ranks = world_ranks();
  Case const c = along_width(16, {5, 1, 1, 2, 2});
  oracle::Conv const conv = c.oracle();
  Driver<double> driver(ranks, c.input, c.spec());
  auto const w = random_values(static_cast<std::int64_t>(conv.weights()), 1);
  driver.set(".weight", reordered(conv, w, true));
  driver.set(".bias", {0.0, 0.0});
  bool holds = true;
  for (std::uint64_t step = 0; step < 50; ++step) {
    HostTensor const x = random_tensor(c.x, step), y = oracle::conv_forward(conv, x, w, {});
    driver.forward(c.input, x);
    for_each_cell(driver.y().owned(), [&](auto n, auto d, auto h, auto wide, auto co) {
      holds = holds && near(driver.y()(n, d, h, wide, co), y.at(n, d, h, wide, co), 1e-13);
    });
  }
  CHECK(holds);
  driver.expect_clean();
}
