// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/model/residual.hpp"

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
#include "support/oracle/pointwise.hpp"
#include "tessera/comm/rank_grid.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/conv.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// What lies beside the main branch, and whether the main branch ends in a layer that reads its own output.
enum class Kind { identity, identity_after_relu, conv_shortcut, relu_shortcut };

struct Case {
  Kind kind = Kind::identity;
  std::array<Window, 3> first, second, beside;  ///< of the two convolutions of the main branch, and of the shortcut's
  std::int64_t middle = 1, out_channels = 1;
  Partition input;
  bool adds = false;
  std::int64_t samples = 1;
  std::uint64_t seed = 0;

  bool has_shortcut() const { return kind == Kind::conv_shortcut || kind == Kind::relu_shortcut; }
  oracle::Conv conv(std::array<Window, 3> const& w, std::int64_t in, std::int64_t out) const {
    return {{w[0], w[1], w[2]}, in, out};
  }

  std::string text() const {
    return tessera::detail::text("residual ", static_cast<int>(kind), " of ", test::text(input), " by ", middle, " to ",
                                 out_channels, " channels, ", test::text(first[0]), " | ", test::text(first[1]), " | ",
                                 test::text(first[2]), " then ", test::text(second[0]), " | ", test::text(second[1]),
                                 " | ", test::text(second[2]), adds ? ", adds" : "", ", then ", samples,
                                 " samples, seed ", seed);
  }
};

ConvSpec spec_of(std::array<Window, 3> const& windows, std::int64_t out) {
  auto const& [d, h, w] = windows;
  return conv3d(out, kernel(d.kernel, h.kernel, w.kernel), stride(d.stride, h.stride, w.stride),
                padding_low(d.low, h.low, w.low), padding_high(d.high, h.high, w.high), no_bias);
}

Case draw_case(std::int64_t ranks) {
  Case c;
  c.kind = static_cast<Kind>(draw(0, 3, "kind (identity, identity after relu, conv shortcut, relu shortcut)"));
  std::int64_t const space = draw(1, 3, "spatial axes");
  Counts const counts = draw_counts(ranks, space);
  Shape shape = draw_shape(counts, space);
  shape.channel = draw(1, 4, "channels");
  shape.sample = smaller(shape.sample, larger(counts.sample, 3));
  for (std::int64_t i = 3 - space; i < 3; ++i) {
    auto const at = static_cast<std::size_t>(i);
    std::int64_t const n = shape[space_in_order[at]], step = c.has_shortcut() ? draw(1, 2, "stride") : 1;
    c.first[at] = same_window(n, draw(1, 4, "first kernel"), step, 1);
    c.beside[at] = same_window(n, draw(1, 3, "kernel of the shortcut"), step, 1);
    c.second[at] = same_window(ceil_div(n, step), draw(1, 3, "second kernel"), 1, 1);
  }
  c.middle = draw(1, 4, "channels in the middle");
  c.out_channels = c.has_shortcut() ? draw(1, 4, "output channels") : shape.channel;
  c.input = draw_partition(shape, counts);
  c.adds = draw(0, 1, "adds") == 1;
  c.samples = draw(1, shape.sample, "samples of an incomplete batch");
  c.seed = static_cast<std::uint64_t>(draw(0, 1'000'000, "seed"));
  return c;
}

/// The oracle's weights (d, h, w, in, out) in PyTorch's order.
std::vector<double> in_torch_order(oracle::Conv const& conv, std::vector<double> const& w) {
  std::vector<double> torch;
  std::int64_t const taps = static_cast<std::int64_t>(w.size()) / conv.in_channels / conv.out_channels;
  for (std::int64_t co = 0; co < conv.out_channels; ++co)
    for (std::int64_t ci = 0; ci < conv.in_channels; ++ci)
      for (std::int64_t tap = 0; tap < taps; ++tap)
        torch.push_back(w[static_cast<std::size_t>((tap * conv.in_channels + ci) * conv.out_channels + co)]);
  return torch;
}

/// All values are small whole numbers, so that every sum is exact in float and the results must be equal.
template <class T, class Spec>
void check_spec(Case const& c, RankGrid<AnySplit> const& ranks, Spec const& spec) {
  Driver<T> driver(ranks, c.input, spec);
  auto const positive = [](double v) { return v > 0 ? v : 0.0; };
  auto const plus = [](double a, double b) { return a + b; };
  auto const masked = [](double out, double error) { return out > 0 ? error : 0.0; };
  auto const exactly = [](std::size_t) { return 0.0; };

  auto const batch = [&](Partition const& part, std::uint64_t seed) {
    Shape const in = part.shape();
    auto const one = c.conv(c.first, in.channel, c.middle), two = c.conv(c.second, c.middle, c.out_channels),
               aside = c.conv(c.beside, in.channel, c.out_channels);
    auto const weights = [&](oracle::Conv const& conv, std::uint64_t more) {
      return whole_numbers({1, 1, 1, 1, static_cast<std::int64_t>(conv.weights())}, seed + more, 2).values;
    };
    auto const w1 = weights(one, 3), w2 = weights(two, 4), w3 = weights(aside, 5);
    HostTensor const x = whole_numbers(in, seed, 3), start = whole_numbers(in, seed + 1, 3);
    driver.set("conv1.weight", in_torch_order(one, w1));
    driver.set("conv2.weight", in_torch_order(two, w2));
    if (c.has_shortcut()) driver.set("conv3.weight", in_torch_order(aside, w3));

    // Forward.
    HostTensor const a = oracle::cell_by_cell(oracle::conv_forward(one, x, w1, {}), positive),
                     b = oracle::conv_forward(two, a, w2, {});
    bool const relu_at_end = c.kind == Kind::identity_after_relu;
    HostTensor const main = relu_at_end ? oracle::cell_by_cell(b, positive) : b;
    HostTensor s = c.has_shortcut() ? oracle::conv_forward(aside, x, w3, {}) : x;
    if (c.kind == Kind::relu_shortcut) s = oracle::cell_by_cell(s, positive);
    HostTensor const y = oracle::cell_by_cell(main, s, plus), dy = whole_numbers(y.shape, seed + 2, 2);
    // Backward.
    HostTensor const db = relu_at_end ? oracle::cell_by_cell(main, dy, masked) : dy;
    HostTensor const da = oracle::cell_by_cell(a, oracle::conv_backward_data(two, a.shape, w2, db), masked);
    HostTensor dx = oracle::conv_backward_data(one, in, w1, da);
    HostTensor const ds = c.kind == Kind::relu_shortcut ? oracle::cell_by_cell(s, dy, masked) : dy;
    dx = oracle::cell_by_cell(dx, c.has_shortcut() ? oracle::conv_backward_data(aside, in, w3, ds) : ds, plus);
    if (c.adds) dx = oracle::cell_by_cell(dx, start, plus);

    driver.forward(part, x);
    driver.backward(dy, {}, c.adds ? &start : nullptr);
    together([&] {
      driver.expect_clean();
      expect_owned("y", driver.y(), y, exactly);
      expect_owned("dx", driver.dx(), dx, exactly);
      auto const gradient = [&](char const* name, oracle::Conv const& conv, HostTensor const& from,
                                HostTensor const& error) {
        auto const expected = in_torch_order(conv, oracle::conv_backward_filter(conv, from, error));
        expect_values(name, driver.gradient(name), expected, std::vector<double>(expected.size(), 0.0));
      };
      gradient("conv1.weight", one, x, da);
      gradient("conv2.weight", two, a, db);
      if (c.has_shortcut()) gradient("conv3.weight", aside, x, ds);
    });
  };
  batch(c.input, c.seed);
  if (c.input.blocks(AxisId::sample).balanced() && c.samples < c.input.shape().sample) {
    batch(c.input.with_samples(c.samples), c.seed + 10);
    batch(c.input, c.seed + 20);
  }
}

template <class T>
void check(Case const& c, RankGrid<AnySplit> const& world) {
  RankGrid<AnySplit> const ranks(world, c.input.grid().counts());
  ConvSpec const one = spec_of(c.first, c.middle), two = spec_of(c.second, c.out_channels),
                 aside = spec_of(c.beside, c.out_channels);
  try {
    switch (c.kind) {
      case Kind::identity: return check_spec<T>(c, ranks, residual(one, relu(), two));
      case Kind::identity_after_relu: return check_spec<T>(c, ranks, residual(one, relu(), two, relu()));
      case Kind::conv_shortcut: return check_spec<T>(c, ranks, residual(one, relu(), two, shortcut(aside)));
      case Kind::relu_shortcut:
        return check_spec<T>(c, ranks, residual(sequence(one, relu(), two), shortcut(aside, relu())));
    }
  } catch (Error const& error) {
    throw Error(error.what() + std::string("\n  in ") + c.text());
  }
}

}  // namespace

TEST_CASE("residual: forward and every gradient equal the serial ones, with and without layers beside") {
  poison_fresh_memory();
  auto const world = world_ranks();
  Coverage coverage("residual", world.size());
  distributed_property(
      "residual: distributed equals serial",
      [&] {
        Case const c = draw_case(world.size());
        coverage.begin_case();
        coverage.count_decomposition(c.input, c.input);
        coverage.count("a shortcut with layers", c.has_shortcut());
        check<float>(c, world);
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}
