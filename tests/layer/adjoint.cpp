// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Linear layers without a bias: <A x, y> = <x, A' y> = <w, dw(x, y)>, whatever is cut, without any oracle.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/host_tensor.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/mixing_cases.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// This rank's part of the inner product with a whole tensor.
double inner(Shard<double, Host> const& shard, HostTensor const& whole) {
  double sum = 0.0;
  for_each_cell(shard.owned(),
                [&](auto n, auto d, auto h, auto w, auto c) { sum += shard(n, d, h, w, c) * whole.at(n, d, h, w, c); });
  return sum;
}

double inner(std::vector<double> const& a, std::vector<double> const& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

HostTensor magnitude(HostTensor tensor) {
  for (double& value : tensor.values) value = std::abs(value);
  return tensor;
}

template <class Spec>
void check(MixingCase const& c, Spec const& spec, RankGrid<AnySplit> const& world, std::uint64_t seed, bool adds) {
  RankGrid<AnySplit> const ranks(world, c.input.grid().counts());
  Driver<double> driver(ranks, c.input, spec);
  std::int64_t weights = 0;
  driver.layer().for_each_parameter([&](Parameter<double, Host>& p) { weights += p.whole_count(); });
  Shape const in = c.input.shape(), out = driver.layer().output(c.input).shape();
  HostTensor const x = random_tensor(in, seed), y = random_tensor(out, seed + 1), start = random_tensor(in, seed + 2);
  auto const w = random_values(weights, seed + 3);

  driver.set_shard(".weight", w);
  driver.forward(c.input, x);
  double const forward = ranks.world().all_reduce(inner(driver.y(), y));
  driver.backward(y, {}, adds ? &start : nullptr);
  double const added = adds ? inner(start.values, x.values) : 0.0;
  double const backward = ranks.world().all_reduce(inner(driver.dx(), x)) - added;
  double const filter = inner(driver.whole_gradient(".weight", ranks.world()), w);

  std::vector<double> size(w);
  for (double& value : size) value = std::abs(value);
  driver.set_shard(".weight", size);
  driver.forward(c.input, magnitude(x));
  double most = ranks.world().all_reduce(inner(driver.y(), magnitude(y)));
  if (adds) most += 2 * inner(magnitude(start).values, magnitude(x).values);

  together([&] {
    driver.expect_clean();
    // Roundings that touch a product: those of the sum that it enters, whose terms are a part of the weights (or the
    // images of a cell times them), or of the positions; and those of the inner product.
    std::int64_t images = 1;
    for (Window const& window : c.windows) images *= 1 + std::abs(window.low) + std::abs(window.high);
    std::int64_t const roundings = 2 * (weights * images + in.volume() + out.volume() + ranks.size() + 4);
    double const bound = gamma_n<double>(roundings) * most;
    expect(std::isfinite(forward), "y has cells that nobody wrote\n  in " + c.text());
    expect(near(forward, backward, bound),
           tessera::detail::text("<A x, y> is ", forward, " but <x, A' y> is ", backward, ", allowed difference ",
                                 bound, "\n  in ", c.text()));
    expect(near(forward, filter, bound), tessera::detail::text("<A x, y> is ", forward, " but <w, dw> is ", filter,
                                                               ", allowed difference ", bound, "\n  in ", c.text()));
  });
}

}  // namespace

TEST_CASE("linear layers: both gradients are adjoints of the forward pass under every cut") {
  poison_fresh_memory();
  auto const world = world_ranks();
  Coverage coverage("adjoints", world.size());
  distributed_property(
      "<A x, y> = <x, A' y> = <w, dw>",
      [&] {
        auto const kind =
            static_cast<Mixing>(larger(0, draw(-3, 3, "kind (to 0: conv, transposed, dense, flattened)")));
        std::int64_t const space = draw(1, 3, "spatial axes");
        Counts const counts = draw_counts(world.size(), space, ChannelCuts::yes);
        MixingCase c = draw_mixing(kind, counts, draw_shape(counts, space), space);
        c.bias = false;
        bool const adds = draw(0, 1, "adds") == 1;
        auto const seed = static_cast<std::uint64_t>(draw(0, 1'000'000, "seed"));
        coverage.begin_case();
        coverage.count_decomposition(c.input, c.input);
        for (Mixing each : {Mixing::conv, Mixing::transposed, Mixing::dense, Mixing::flattened})
          coverage.count(test::name(each), kind == each);
        coverage.count("groups", c.groups > 1);
        for (Padding mode : {Padding::circular, Padding::reflect, Padding::replicate})
          coverage.count(std::string(tessera::name(mode)), c.padding == mode);
        coverage.count("channels cut", cuts_channels(c.input), world.size() > 1);
        c.with_spec([&](auto const& spec) { check(c, spec, world, seed, adds); });
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}
