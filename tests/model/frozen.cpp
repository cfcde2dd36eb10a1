// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/model/frozen.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "support/layer_harness.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/batch_norm.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/flat_dense.hpp"
#include "tessera/layer/transposed_conv.hpp"
#include "tessera/model/concat.hpp"
#include "tessera/model/model.hpp"
#include "tessera/optim/optimizer.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Net = Model<double, Host>;

/// Layers of every kind that has parameters; the middle ones may be frozen, and so may the first ones.
template <class First, class Middle>
Net network(RankGrid<AnySplit> const& ranks, First const& first, Middle const& middle) {
  return sequential<double, Host>(ranks, SampleShape<2>{.channels = 4, .space = {6, 5}}, first, middle,
                                  dense(3, flattened));
}
auto first_layers() { return sequence(conv2d<3>(4, same), scaled_tanh()); }
auto middle_layers() {
  return sequence(batch_norm(), transposed_conv2d<2>(4, stride(2)), prelu(), conv2d<3>(4, Stationary::x));
}

std::vector<std::vector<double>> whole(Net& net) {
  std::vector<std::vector<double>> all;
  for (auto const* p : net.parameters()) all.push_back(p->download_whole(net.input_ranks().world()));
  return all;
}

/// Three steps on outputs that are to be small; what a trainable parameter's gradient is does not depend on what is
/// frozen behind it.
void train(Net& net, std::int64_t samples, double clip_norm) {
  Optimizer<double, Host, Sgd> optimizer(Sgd{.rate = 1e-3});
  net.allocate(samples, 7);
  for (std::uint64_t step = 0; step < 3; ++step) {
    auto const& x = net.input(samples);
    for_each_cell(x.owned(), [&](auto n, auto d, auto h, auto w, auto c) {
      x(n, d, h, w, c) = 0.1 * static_cast<double>((n * 31 + h * 7 + w * 3 + c * 5 + d) % 11) - 0.5;
    });
    net.zero_gradients();
    net.forward(samples);
    auto const &y = net.output(samples), &error = net.error(samples);
    for_each_cell(y.owned(), [&](auto n, auto d, auto h, auto w, auto c) { error(n, d, h, w, c) = y(n, d, h, w, c); });
    net.backward(samples);
    optimizer.step(net.parameters(), net.input_ranks().world(), 1.0, clip_norm);
  }
}

Counts cut(std::int64_t ranks) { return ranks == 4 ? Counts{.channel = 2, .width = 2} : Counts{.channel = ranks}; }

}  // namespace

TEST_CASE("case 5: frozen parameters keep their values and get no gradient, under every cut") {
  auto const world = world_ranks();
  RankGrid<AnySplit> const ranks(world, cut(world.size()));
  for (bool first_too : {false, true}) {
    Net net = first_too ? network(ranks, frozen(first_layers()), frozen(middle_layers()))
                        : network(ranks, first_layers(), frozen(middle_layers()));
    net.allocate(3, 7);
    auto const before = whole(net);
    train(net, 3, 0.0);
    auto const after = whole(net);
    for (std::size_t i = 0; i < after.size(); ++i) {
      auto const& p = *net.parameters()[i];
      CAPTURE(p.name());
      bool const learns = p.name() == "dense1.weight" || p.name() == "dense1.bias" ||
                          (!first_too && (p.name() == "conv1.weight" || p.name() == "conv1.bias"));
      CHECK(p.trainable() == learns);
      CHECK((before[i] == after[i]) == !learns);
      if (!learns) {
        CHECK(p.gradient() == nullptr);
        CHECK_THROWS_WITH_AS(
            p.download_gradient(),
            (std::string("Parameter::download_gradient: ") + p.name() + " is frozen, and has no gradient").c_str(),
            Error);
      }
    }
  }
}

TEST_CASE("case 5: behind frozen layers the others learn as on one rank, with and without clipping") {
  auto const world = world_ranks(), self = self_ranks();
  RankGrid<AnySplit> const ranks(world, cut(world.size()));
  for (double clip_norm : {0.0, 0.05}) {
    Net net = network(ranks, first_layers(), frozen(middle_layers())),
        alone = network(self, first_layers(), frozen(middle_layers()));
    train(net, 3, clip_norm);
    train(alone, 3, clip_norm);
    auto const got = whole(net), expected = whole(alone);
    for (std::size_t i = 0; i < got.size(); ++i)
      for (std::size_t k = 0; k < got[i].size(); ++k) CHECK(std::abs(got[i][k] - expected[i][k]) <= 1e-12);
  }
}

TEST_CASE("case 5: no error goes to layers behind which nothing learns") {
  auto const world = world_ranks();
  if (world.size() == 1) return;
  RankGrid<AnySplit> const ranks(world, Counts{.width = world.size()});
  Net net = network(ranks, frozen(first_layers()), frozen(middle_layers()));
  for (LayerInfo const& layer : net.describe(2)) CHECK_FALSE((layer.name != "dense1" && layer.keeps_data_gradient));
}

TEST_CASE("case 5: a frozen branch beside one that learns gets no error, and the other learns as it would alone") {
  auto const world = world_ranks();
  RankGrid<AnySplit> const ranks(world, cut(world.size()));
  auto const with = [&](auto const& first) {
    Net net = sequential<double, Host>(ranks, SampleShape<2>{.channels = 4, .space = {6, 5}},
                                       concat(branch(first), branch(conv2d<3>(4, same))), conv2d<1>(4));
    train(net, 3, 0.0);
    return net;
  };
  Net frozen_one = with(frozen(conv2d<1>(4))), free = with(conv2d<1>(4));
  for (LayerInfo const& layer : frozen_one.describe(3))
    if (layer.name == "conv1") CHECK(layer.halo_cells_back == 0);
  CHECK_FALSE(frozen_one.parameters()[0]->trainable());
  CHECK(frozen_one.parameters()[2]->trainable());
  CHECK(free.parameters()[0]->trainable());
}
