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
#include "support/linear_layer.hpp"
#include "support/oracle/conv.hpp"
#include "support/window_options.hpp"
#include "tessera/comm/rank_grid.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Case {
  std::array<Window, 3> windows;
  bool same_padding = false;  ///< the pads are left to the layer; `windows` has those that it must choose
  Shape x;
  std::int64_t out_channels = 1;
  std::int64_t groups = 1;
  Padding padding = Padding::zeros;
  Stationary stationary = Stationary::automatic;
  LinearCase linear;

  oracle::Conv oracle() const {
    return {{windows[0], windows[1], windows[2]}, x.channel, out_channels, groups, padding};
  }

  /// How often a term may stand in for another beyond the border.
  std::int64_t images() const {
    std::int64_t all = 1;
    for (Window const& w : windows) all *= padding == Padding::zeros ? 1 : 1 + std::abs(w.low) + std::abs(w.high);
    return all;
  }

  ConvSpec spec() const {
    ConvSpec with = conv3d(out_channels);
    set_windows(with, windows, same_padding);
    with.bias = linear.bias;
    with.groups = groups;
    with.padding = padding;
    with.stationary = stationary;
    return with;
  }

  std::string text() const {
    return tessera::detail::text("conv to ", out_channels, " channels, ", test::text(windows[0]), " | ",
                                 test::text(windows[1]), " | ", test::text(windows[2]), same_padding ? " same, " : ", ",
                                 groups, " groups, ", name(padding), ", stationary ", static_cast<int>(stationary));
  }
};

/// The pads with which n cells give one output for each stride, begun ones too; an odd cell goes to the high side.
void pad_for_same(Window& w, std::int64_t n) {
  std::int64_t const begun = n % w.stride == 0 ? w.stride : n % w.stride, total = larger(0, w.span() - begun);
  w.low = total / 2;
  w.high = total - w.low;
}

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
  c.same_padding = draw_one_in(5, "same padding");
  for (std::int64_t i = 3 - space; i < 3; ++i) {
    Window& w = c.windows[static_cast<std::size_t>(i)];
    std::int64_t const extent = c.x[space_in_order[static_cast<std::size_t>(i)]];
    w.kernel = draw(1, draw_one_in(3, "a wide kernel") ? 7 : 4, "kernel");
    w.stride = draw(0, 1, "strided") == 0 ? 1 : draw(2, 4, "stride");
    w.dilation = draw_one_in(3, "dilated") ? draw(2, 3, "dilation") : 1;
    if (c.same_padding) {
      pad_for_same(w, extent);
      while (c.padding == Padding::reflect && w.high >= extent) {
        --w.kernel;
        pad_for_same(w, extent);
      }
      continue;
    }
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
  c.linear.draw_rest(c.x, counts);
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

template <class T>
void check(Case const& c, RankGrid<AnySplit> const& world, RankGrid<AnySplit> const& self) {
  oracle::Conv const conv = c.oracle();
  LinearCase linear = c.linear;
  linear.weights = static_cast<std::int64_t>(conv.weights());
  linear.out_channels = c.out_channels;
  linear.output = [=](Shape const& x) { return conv.output(x); };
  linear.oracle = [=](HostTensor const& x, std::vector<double> const& torch, std::vector<double> const& b,
                      HostTensor const& dy, bool magnitude) {
    auto const w = reordered(conv, torch, false);
    return LinearResult{oracle::conv_forward(conv, x, w, b, magnitude),
                        oracle::conv_backward_data(conv, x.shape, w, dy, magnitude),
                        reordered(conv, oracle::conv_backward_filter(conv, x, dy, magnitude), true),
                        oracle::conv_backward_bias(dy, magnitude)};
  };
  linear.terms_y = conv.taps() * conv.group_inputs();
  linear.terms_dx = conv.taps() * c.images() * c.out_channels / c.groups;
  linear.same_order_forward = !cuts_channels(linear.input);
  linear.same_order_backward = linear.same_order_forward && c.padding == Padding::zeros;
  check_linear_layer<T>(linear, world, self, c.spec(), c.text());
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
        coverage.count_windows(c.linear.input, c.linear.input.scaled_to(c.oracle().output(c.x)), c.windows);
        coverage.count("groups", c.groups > 1);
        coverage.count("padding mode", c.padding != Padding::zeros);
        coverage.count("same", c.same_padding);
        coverage.count("channels cut", cuts_channels(c.linear.input), world.size() > 1);
        check<T>(c, world, self);
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}

/// One named convolution: both types, with bias, with a data gradient that is written.
void check_named(Case c) {
  auto const world = world_ranks(), self = self_ranks();
  c.linear.samples = c.x.sample;
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
    c.linear.input = Partition(Grid(Counts{.width = ranks}), c.x);
  } else {
    // Ranks beyond those that the boundaries name own nothing.
    boundaries.resize(static_cast<std::size_t>(ranks) + 1, n);
    boundaries.back() = n;
    c.linear.input = Partition(Grid(Counts{.width = ranks}),
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
  even.linear.input = Partition(even.linear.input.grid(), even.x);
  check_named(even);
}

TEST_CASE("case 2: even kernels, strides that do not divide, dilation") {
  for (Window const& window :
       {Window{2, 1, 1, 0, 1}, {4, 3, 1, 1, 2}, {3, 1, 3, 3, 3}, {4, 3, 2, 2, 5}, {2, 4, 3, 0, 0}})
    for (std::int64_t n : {7, 11, 12}) check_named(along_width(n, window));
}

TEST_CASE("case 3: k7 s2 p3 with the batch split alone") {
  Case c = along_width(12, {7, 2, 1, 3, 3});
  std::int64_t const ranks = c.linear.input.grid().size();
  c.x.sample = ranks + 1;
  c.linear.input = Partition(Grid(Counts{.sample = ranks}), c.x);
  check_named(c);
}

TEST_CASE("case 4: k4 s4, and the gradient is decomposed as the input is") {
  check_named(along_width(32, {4, 4, 1, 0, 0}));
  check_named(along_width(13, {4, 4, 1, 0, 0}));
}

TEST_CASE("case 5: a first layer computes no data gradient, and the same filter gradient") {
  Case c = along_width(12, {3, 1, 1, 1, 1});
  c.linear.without_dx = true;
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
  c.linear.input = Partition(Grid(Counts{.depth = c.linear.input.grid().size()}), c.x);
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
  Driver<double> driver(ranks, c.linear.input, c.spec());
  auto const w = random_values(static_cast<std::int64_t>(conv.weights()), 1);
  driver.set(".weight", reordered(conv, w, true));
  driver.set(".bias", {0.0, 0.0});
  bool holds = true;
  for (std::uint64_t step = 0; step < 50; ++step) {
    HostTensor const x = random_tensor(c.x, step), y = oracle::conv_forward(conv, x, w, {});
    driver.forward(c.linear.input, x);
    for_each_cell(driver.y().owned(), [&](auto n, auto d, auto h, auto wide, auto co) {
      holds = holds && near(driver.y()(n, d, h, wide, co), y.at(n, d, h, wide, co), 1e-13);
    });
  }
  CHECK(holds);
  driver.expect_clean();
}

TEST_CASE("case 10: padding modes hold at the global border alone, on both sides, along every axis") {
  auto const world = world_ranks();
  for (Padding mode : {Padding::circular, Padding::reflect, Padding::replicate})
    for (int axis = 0; axis < 3; ++axis)
      for (Window const& window : {Window{3, 1, 1, 1, 1}, Window{2, 1, 1, 0, 1}, Window{2, 1, 1, 1, 0}}) {
        Case c;
        c.windows[static_cast<std::size_t>(axis)] = window;
        c.padding = mode;
        c.x = {2, 4, 3, 5, 2};
        Counts counts;
        counts[space_in_order[static_cast<std::size_t>(axis)]] = world.size();
        c.linear.input = Partition(Grid(counts), c.x);
        check_named(c);
      }
  // Reflection is judged by the global extent, however narrow the blocks are.
  Case narrow = along_width(8, {7, 1, 1, 7, 7});
  narrow.padding = Padding::reflect;
  check_named(narrow);
}

TEST_CASE("circular padding may be wider than the extent") {
  Case c = along_width(3, {9, 1, 1, 7, 8});
  c.padding = Padding::circular;
  check_named(c);
}

TEST_CASE("what cannot be is refused by name on every rank, before anything moves") {
  auto const world = world_ranks();
  RankGrid<AnySplit> const ranks(world, Counts{.channel = world.size()});
  Partition const input(ranks.grid(), {1, 1, 1, 9, 6});
  auto const bind = [&](auto const& spec) { Driver<double>(ranks, input, spec); };
  CHECK_THROWS_WITH_AS(bind(conv1d<3>(4, groups(4))),
                       "conv1: the groups must divide the input and the output channels, but 4 groups were asked of 6 "
                       "and 4",
                       Error);
  CHECK_THROWS_WITH_AS(bind(conv1d<3>(4, groups(0))),
                       "conv1: the groups must divide the input and the output channels, but 0 groups were asked of 6 "
                       "and 4",
                       Error);
  CHECK_THROWS_WITH_AS(bind(conv1d<3>(4, padding(9), Padding::reflect)),
                       "conv1: reflect padding must be less than the extent, but along width it is 9 and 9 of 9; use "
                       "less padding or another mode",
                       Error);
  CHECK_THROWS_WITH_AS(bind(conv1d<12>(4, padding(1))),
                       "conv1: the kernel must fit into the padded input, but along width it covers 12 cells of 9 + 1 "
                       "+ 1; use a smaller kernel or more padding",
                       Error);
  CHECK_THROWS_WITH_AS(bind(conv1d<3>(0)), "conv1: the number of output channels must be at least 1, it is 0", Error);
  if (world.size() == 1) return;
  CHECK_THROWS_WITH_AS(bind(conv1d<3>(6, groups(2), Stationary::x)),
                       "conv1: with groups, its outputs stay where they are; leave the choice out", Error);
  if (world.size() == 2 || world.size() == 3)
    CHECK_THROWS_WITH_AS(bind(conv1d<3>(6, Stationary::w)),
                         tessera::detail::text("conv1: stationary weights need a number of channel blocks that is a "
                                               "product, but it is ",
                                               world.size(), "; keep x or y stationary")
                             .c_str(),
                         Error);
}
