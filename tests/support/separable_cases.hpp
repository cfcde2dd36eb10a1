// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "support/adjoint.hpp"
#include "support/alone.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/oracle/separable.hpp"

/// Layers that act on each spatial axis by a matrix, and bring it to any extent.
namespace tessera::test {

struct SeparableCase {
  std::int64_t space = 3;  ///< the last spatial axes, which the layer acts on
  std::array<std::int64_t, 3> outputs{1, 1, 1};
  oracle::Separable map;
  Shape x;
  Partition input;
  bool adds = false;
  std::int64_t samples = 1;
  std::uint64_t seed = 0;

  std::string text() const {
    return tessera::detail::text(test::text(input), " to ", map.output(x), " over ", space, " axes",
                                 adds ? ", adds" : "", ", then ", samples, " samples, seed ", seed);
  }
};

/// `axis_map(n, m)` is the matrix of one axis.
template <class AxisMapOf>
SeparableCase draw_separable(std::int64_t ranks, bool to_one, AxisMapOf axis_map) {
  SeparableCase c;
  c.space = draw(1, 3, "spatial axes");
  Counts const counts = draw_counts(ranks, c.space, ChannelCuts::yes);
  c.x = draw_shape(counts, c.space);
  if (c.space == 1 && draw(0, 1, "a long width") == 1) c.x.width = draw(1, 20, "width");
  c.outputs = {c.x.depth, c.x.height, c.x.width};
  for (std::size_t i = 0; i < 3; ++i) {
    std::int64_t const n = c.x[space_in_order[i]];
    std::int64_t& m = c.outputs[i];
    if (static_cast<std::int64_t>(i) < 3 - c.space && !to_one) {
      c.map.axis[i] = oracle::identity_axis(n);
      continue;
    }
    std::int64_t const kind = draw(0, 4, "outputs (0: any, 1-3: few, 4: a multiple)");
    if (to_one)
      m = 1;
    else if (1 <= kind && kind <= 3)
      m = draw(1, 3, "few outputs");
    else if (kind == 4)
      m = n * draw(1, 3, "times");
    else
      m = draw(1, c.space == 1 ? 20 : c.space == 2 ? 12 : 7, "outputs");
    c.map.axis[i] = axis_map(n, m);
  }
  auto const work = [&] { return c.map.output(c.x).volume() * c.map.terms(); };
  while (work() > 12000 && c.x.channel > 1) --c.x.channel;
  while (work() > 12000 && c.x.sample > 1) --c.x.sample;
  c.input = draw_partition(c.x, counts);
  c.adds = draw(0, 1, "adds") == 1;
  c.samples = draw(1, c.x.sample, "samples of an incomplete batch");
  c.seed = static_cast<std::uint64_t>(draw(0, 1'000'000, "seed"));
  return c;
}

/// How far y and dx may be off, as multiples of their values on magnitudes.
struct SeparableBounds {
  double y, dx;
  bool same_bits = true;  ///< whether every decomposition gives the same
};

template <class T>
void check_separable_batch(SeparableCase const& c, Partition const& input, Driver<T>& driver,
                           SeparableBounds const& bounds, std::uint64_t seed) {
  Shape const in = input.shape(), out = c.map.output(in);
  HostTensor const x = random_tensor(in, seed), dy = random_tensor(out, seed + 1), start = random_tensor(in, seed + 2);
  driver.forward(input, x);
  driver.backward(dy, {}, c.adds ? &start : nullptr);
  together([&] {
    driver.expect_clean();
    HostTensor const y_size = c.map.apply(x, true);
    expect_owned("y", driver.y(), c.map.apply(x), [&](std::size_t i) { return bounds.y * y_size.values[i]; });
    HostTensor dx = c.map.transpose(in, dy), dx_size = c.map.transpose(in, dy, true);
    if (c.adds)
      for (std::size_t i = 0; i < dx.values.size(); ++i) {
        dx.values[i] += start.values[i];
        dx_size.values[i] += std::abs(start.values[i]);
      }
    expect_owned("dx", driver.dx(), dx, [&](std::size_t i) { return bounds.dx * dx_size.values[i]; });
  });
}

template <class T, class Spec>
void check_separable(SeparableCase const& c, RankGrid<AnySplit> const& world, Spec const& spec,
                     SeparableBounds const& bounds) {
  RankGrid<AnySplit> const ranks(world, c.input.grid().counts());
  try {
    Driver<T> driver(ranks, c.input, spec);
    check_separable_batch(c, c.input, driver, bounds, c.seed);
    if (bounds.same_bits && sizeof(T) == sizeof(float) && c.seed % 2 == 0) {
      HostTensor const start = random_tensor(c.x, c.seed + 2);
      expect_bits_of_one_rank(driver, spec, random_tensor(c.x, c.seed), random_tensor(c.map.output(c.x), c.seed + 1),
                              c.adds ? &start : nullptr);
    }
    if (c.input.blocks(AxisId::sample).balanced() && c.samples < c.x.sample) {
      check_separable_batch(c, c.input.with_samples(c.samples), driver, bounds, c.seed + 10);
      check_separable_batch(c, c.input, driver, bounds, c.seed + 20);
    }
  } catch (Error const& error) {
    throw Error(error.what() + std::string("\n  in ") + c.text());
  }
}

/// Whether some block takes from a cell that lies two or more blocks away.
inline bool is_multi_hop(SeparableCase const& c) {
  Partition const out = c.input.scaled_to(c.map.output(c.x));
  for (std::size_t a = 0; a < 3; ++a) {
    Blocks const &from = c.input.blocks(space_in_order[a]), &to = out.blocks(space_in_order[a]);
    for (std::int64_t o = 0; o < to.extent(); ++o)
      for (std::int64_t i = 0; i < from.extent(); ++i)
        if (c.map.axis[a].at(o, i) != 0 && std::abs(to.owner(o) - from.owner(i)) >= 2) return true;
  }
  return false;
}

inline void count_separable(Coverage& coverage, SeparableCase const& c, std::int64_t ranks) {
  coverage.begin_case();
  coverage.count_decomposition(c.input, c.input.scaled_to(c.map.output(c.x)));
  coverage.count("cut channels", cuts_channels(c.input), ranks > 1);
  bool more = false, fewer = false;
  for (oracle::AxisMap const& axis : c.map.axis) {
    more |= axis.m > axis.n;
    fewer |= axis.m < axis.n;
  }
  coverage.count("more outputs than cells", more);
  coverage.count("fewer outputs than cells", fewer);
}

}  // namespace tessera::test
