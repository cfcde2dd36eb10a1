// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/layer/transposed_conv.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>

#include "support/distributed_property.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/linear_layer.hpp"
#include "support/oracle/transposed_conv.hpp"
#include "tessera/comm/rank_grid.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Case {
  oracle::TransposedConv conv;
  bool same_padding = false;  ///< pads and output padding are left to the layer; `conv` has those that it must choose
  Shape x;
  Stationary stationary = Stationary::automatic;
  LinearCase linear;

  TransposedConvSpec spec() const {
    auto const& [d, h, w] = conv.window;
    auto const& more = conv.output_padding;
    TransposedConvSpec made =
        transposed_conv3d(conv.out_channels, kernel(d.kernel, h.kernel, w.kernel), stride(d.stride, h.stride, w.stride),
                          dilation(d.dilation, h.dilation, w.dilation), groups(conv.groups), stationary);
    if (same_padding) {
      made.set(same);
    } else {
      made.set(padding_low(d.low, h.low, w.low));
      made.set(padding_high(d.high, h.high, w.high));
      made.set(output_padding(more[0], more[1], more[2]));
    }
    made.bias = linear.bias;
    return made;
  }
  std::string text() const {
    auto const& [d, h, w] = conv.window;
    auto const& more = conv.output_padding;
    return tessera::detail::text("transposed conv to ", conv.out_channels, " channels, ", test::text(d), " +", more[0],
                                 " | ", test::text(h), " +", more[1], " | ", test::text(w), " +", more[2],
                                 same_padding ? " same, " : ", ", conv.groups, " groups, stationary ", static_cast<int>(stationary));
  }
};

Case draw_case(std::int64_t ranks) {
  Case c;
  std::int64_t const space = draw(1, 3, "spatial axes");
  Counts const counts = draw_counts(ranks, space, ChannelCuts::yes);
  c.x = draw_shape(counts, space);
  c.conv.out_channels = draw(1, 9, "output channels");
  if (draw_one_in(3, "groups")) {
    c.conv.groups = draw(2, 3, "number of groups");
    c.x.channel = c.conv.groups * draw(1, 3, "inputs of a group");
    c.conv.out_channels = c.conv.groups * draw(1, 3, "outputs of a group");
  } else {
    c.stationary = static_cast<Stationary>(draw(0, 3, "stationary (automatic, x, y, w)"));
    if (c.stationary == Stationary::w && !is_product(counts.channel)) c.stationary = Stationary::automatic;
  }
  c.same_padding = draw_one_in(5, "same padding");
  for (std::int64_t i = 3 - space; i < 3; ++i) {
    Window& w = c.conv.window[i];
    std::int64_t const extent = c.x[space_in_order[static_cast<std::size_t>(i)]];
    w.kernel = draw(1, draw_one_in(3, "a wide kernel") ? 7 : 4, "kernel");
    w.stride = draw(0, 1, "strided") == 0 ? 1 : draw(2, 4, "stride");
    w.dilation = draw_one_in(3, "dilated") ? draw(2, 3, "dilation") : 1;
    if (c.same_padding) {  // n * stride outputs
      std::int64_t const more_than_stride = w.span() - w.stride;
      w.low = larger(0, more_than_stride) / 2;
      w.high = larger(0, more_than_stride) - w.low;
      c.conv.output_padding[i] = larger(0, -more_than_stride);
      continue;
    }
    c.conv.output_padding[i] = draw(0, larger(w.stride, w.dilation) - 1, "output padding");
    w.low = draw(-1, larger(2, w.span() - 1), "low");
    w.high = draw(-1, larger(2, w.span() - 1), "high");
    w.high -= larger(0, 1 - c.conv.outputs(static_cast<int>(i), extent));  // at least one output
  }
  auto const work = [&] { return c.x.volume() * c.conv.taps() * c.conv.out_channels / c.conv.groups; };
  while (work() > 30000) {
    if (c.conv.groups > 1)
      c.conv.groups = c.x.channel = c.conv.out_channels = 1;
    else if (c.x.channel * c.conv.out_channels > 1)
      (c.x.channel > c.conv.out_channels ? c.x.channel : c.conv.out_channels) -= 1;
    else if (c.x.sample > 1)
      --c.x.sample;
    else
      break;
  }
  c.conv.in_channels = c.x.channel;
  c.linear.draw_rest(c.x, counts);
  return c;
}

template <class T>
void check(Case const& c, RankGrid<AnySplit> const& world, RankGrid<AnySplit> const& self) {
  oracle::TransposedConv const conv = c.conv;
  LinearCase linear = c.linear;
  linear.weights = conv.weights();
  linear.out_channels = conv.out_channels;
  linear.output = [=](Shape const& x) { return conv.output(x); };
  linear.oracle = [=](auto const& x, auto const& w, auto const& b, auto const& dy, bool magnitude) {
    return oracle::transposed_conv(conv, x, w, b, dy, magnitude);
  };
  linear.terms_y = conv.taps() * conv.in_channels / conv.groups;
  linear.terms_dx = conv.taps() * conv.out_channels / conv.groups;
  linear.same_order_forward = linear.same_order_backward = !cuts_channels(linear.input);
  check_linear_layer<T>(linear, world, self, c.spec(), c.text());
}

template <class T>
void distributed_equals_serial(std::string const& name) {
  poison_fresh_memory();
  auto const world = world_ranks(), self = self_ranks();
  Coverage coverage(name, world.size());
  distributed_property(
      name + ": distributed equals serial",
      [&] {
        Case const c = draw_case(world.size());
        coverage.begin_case();
        Partition const in = c.linear.input, out = in.scaled_to(c.conv.output(c.x));
        // The outputs take the place of inputs: what an input's block makes may lie several blocks away.
        coverage.count_windows(out, in, {c.conv.window[0], c.conv.window[1], c.conv.window[2]});
        coverage.count("groups", c.conv.groups > 1);
        coverage.count("output padding",
                       c.conv.output_padding[0] + c.conv.output_padding[1] + c.conv.output_padding[2] > 0);
        coverage.count("same", c.same_padding);
        coverage.count("channels cut", cuts_channels(in), world.size() > 1);
        check<T>(c, world, self);
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}

Case along_width(std::int64_t n, Window const& window, std::int64_t more = 0) {
  Case c;
  c.conv.window[2] = window;
  c.conv.output_padding[2] = more;
  c.conv.in_channels = 3;
  c.conv.out_channels = 2;
  c.x = {2, 1, 1, n, 3};
  c.linear.input = Partition(Grid(Counts{.width = world_ranks().size()}), c.x);
  c.linear.samples = 2;
  return c;
}

void check_named(Case const& c) {
  auto const world = world_ranks(), self = self_ranks();
  check<double>(c, world, self);
  check<float>(c, world, self);
}

}  // namespace

TEST_CASE("transposed conv in double: forward and every gradient equal the serial ones") {
  distributed_equals_serial<double>("transposed conv in double");
}
TEST_CASE("transposed conv in float: forward and every gradient equal the serial ones") {
  distributed_equals_serial<float>("transposed conv in float");
}

TEST_CASE(
    "case 14: an odd transposed convolution has a halo of its own, and its output padding is part of the output") {
  for (std::int64_t n : {5, 16, 17}) {
    check_named(along_width(n, {3, 2, 1, 1, 1}, 1));
    check_named(along_width(n, {3, 1, 1, 1, 1}));
    check_named(along_width(n, {2, 2, 1, 0, 0}));
    check_named(along_width(n, {5, 2, 3, 0, 0}, 2));  // output padding of the stride or more, which the dilation allows
  }
  auto const ranks = world_ranks();
  if (ranks.size() == 1) return;
  Partition const input(ranks.grid(), {1, 1, 1, 4 * ranks.size(), 1});
  Driver<double> driver(ranks, input, transposed_conv1d<3>(1, stride(2), padding(1), output_padding(1)));
  std::vector<LayerInfo> info;
  driver.layer().describe(input, true, info);
  CHECK(info.front().output.shape().width == 8 * ranks.size());
  if (ranks.rank() + 1 < ranks.size()) CHECK(info.front().halo_cells == 1);  // the first cell of the next block
}

TEST_CASE("cases 7, 18: ranks without a cell take part in transposed convolutions") {
  check_named(along_width(1, {3, 2, 1, 1, 1}, 1));
  check_named(along_width(2, {4, 3, 1, 0, 0}));
}

TEST_CASE("a transposed convolution refuses too much output padding, groups that do not divide, and nothing to make") {
  auto const ranks = world_ranks();
  Partition const input(ranks.grid(), {1, 1, 1, 9, 4});
  auto const bind = [&](auto const& spec) { Driver<double>(ranks, input, spec); };
  CHECK_THROWS_WITH_AS(bind(transposed_conv1d<3>(2, stride(2), output_padding(2))),
                       "transposed_conv1: the output padding must be less than the stride or the dilation, but along "
                       "width it is 2 with stride 2 and dilation 1",
                       Error);
  CHECK_THROWS_WITH_AS(bind(transposed_conv1d<3>(4, groups(3))),
                       "transposed_conv1: the groups must divide the input and the output channels, but 3 groups were "
                       "asked of 4 and 4",
                       Error);
  CHECK_THROWS_WITH_AS(bind(transposed_conv1d<3>(4, same, stride(2), output_padding(1))),
                       "same: chooses the output padding itself; give either same or output_padding, not both", Error);
  CHECK_THROWS_WITH_AS(bind(transposed_conv1d<1>(2, padding(5))),
                       "transposed_conv1: must make at least one cell, but along width its padding leaves -1; use less "
                       "padding or more output padding",
                       Error);
}

TEST_CASE("same makes stride times as many outputs of a transposed convolution, whatever the kernel") {
  auto const ranks = world_ranks();
  for (std::int64_t n : {1, 5, 8})
    for (std::int64_t k : {1, 2, 3, 4, 5})
      for (std::int64_t s : {1, 2, 3})
        for (std::int64_t d : {1, 2}) {
          Partition const input(ranks.grid(), {1, 1, 1, n, 1});
          Driver<double> driver(ranks, input, transposed_conv1d(1, same, kernel(k), stride(s), dilation(d)));
          CHECK(driver.layer().output(input).shape().width == n * s);
        }
}
