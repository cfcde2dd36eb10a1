// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Pools and upsampling among other layers: a network from cells to a few numbers per sample, without a redistribution.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "tessera/layer/adaptive_pool.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/pool.hpp"
#include "tessera/layer/upsample.hpp"
#include "tessera/model/model.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr std::int64_t samples = 3;

struct Result {
  std::vector<double> y, gradients;
};

Result run_once(RankGrid<AnySplit> const& ranks) {
  auto net = sequential<double, Host>(
      ranks, SampleShape<3>{.channels = 2, .space = {6, 7, 5}}, conv3d<3>(4, same), max_pool3d<2>(ceil_mode),
      conv3d<3>(4, same), upsample_linear3d(tessera::size(5, 6, 7)), conv3d<3>(4, same), adaptive_avg_pool3d({3, 2, 4}),
      upsample_nearest3d(scale(2)), conv3d<3>(5, same), global_avg_pool(), dense(3));
  net.allocate(samples, 7);
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
  Result result;
  auto const& y = net.output(samples);
  result.y.resize(static_cast<std::size_t>(y.shape().volume()));
  for_each_cell(y.owned(), [&](auto n, auto d, auto h, auto w, auto c) {
    result.y[static_cast<std::size_t>(n * y.shape().channel + c)] = y(n, d, h, w, c);
  });
  ranks.world().all_reduce(result.y.data(), static_cast<std::int64_t>(result.y.size()));
  for (auto const* p : net.parameters())
    for (double const g : p->download_gradient()) result.gradients.push_back(g);
  return result;
}

void check_near(std::vector<double> const& got, std::vector<double> const& expected) {
  double error = 0.0, norm = 0.0;
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  CHECK(norm > 0.0);
  CHECK(std::sqrt(error) <= 1e-12 * std::sqrt(norm));
}

}  // namespace

TEST_CASE("a network of pools and upsampling, however it is cut, has the serial one's output and gradients") {
  auto const world = world_ranks();
  std::int64_t const p = world.size();
  Result const serial = run_once(self_ranks());
  for (Counts const& counts : {Counts{.depth = p}, Counts{.height = p}, Counts{.sample = p},
                               Counts{.depth = 2, .width = p / 2}, Counts{.sample = 2, .depth = 2, .height = p / 4}}) {
    if (counts.product() != p) continue;
    Result const here = run_once(RankGrid<AnySplit>(world, counts));
    check_near(here.y, serial.y);
    check_near(here.gradients, serial.gradients);
  }
}
