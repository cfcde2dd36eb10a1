// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Convolutions with groups, depthwise and with padding modes, transposed ones, and dense layers, against PyTorch
// (tests/fixtures/make.py): in double and float, on 1 rank and on 4 ranks that cut space, samples and channels.

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "support/fixture.hpp"
#include "support/pytorch.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/flat_dense.hpp"
#include "tessera/layer/transposed_conv.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

std::vector<Counts> const splits{{.depth = 2, .width = 2},
                                 {.sample = 2, .height = 2},
                                 {.channel = 2, .width = 2},
                                 {.channel = 4},
                                 {.sample = 2, .channel = 2}};

/// What may be stationary: with groups there is no choice, and weights need a product of blocks.
std::vector<Stationary> choices(std::int64_t groups, std::int64_t channel_blocks) {
  if (groups > 1 || channel_blocks == 1) return {Stationary::automatic};
  std::vector<Stationary> all{Stationary::x, Stationary::y};
  if (channel_blocks == 4) all.push_back(Stationary::w);
  return all;
}

template <class Spec>
Spec with_window(Spec spec, FixtureCase const& c) {
  set_window(spec, c);
  set_each(
      spec, [](auto... n) { return dilation(n...); }, c["dilation"]);
  spec.set(groups(static_cast<std::int64_t>(c.number("groups"))));
  if (!c.has("b")) spec.set(no_bias);
  return spec;
}

/// How many cells beyond the border may take the value of one cell of x, and that cell.
double images(FixtureCase const& c) {
  double all = 1.0;
  for (std::size_t i = 0; i < c["low"].values.size(); ++i) all *= 1.0 + c["low"].values[i] + c["high"].values[i];
  return all;
}

/// Any of the convolutions whose weights are (out, in / groups, kernel).
template <class T>
void check_conv(FixtureCase const& c, RankGrid<All> const& ranks, Padding mode) {
  auto const& w = c["w"].shape;
  std::int64_t const out = w[0];
  ConvSpec spec = with_window(w.size() == 3 ? conv1d(out) : w.size() == 4 ? conv2d(out) : conv3d(out), c);
  set_each(
      spec, [](auto... n) { return padding_low(n...); }, c["low"]);
  set_each(
      spec, [](auto... n) { return padding_high(n...); }, c["high"]);
  spec.set(mode);
  double const taps = product(w, 2), parts = static_cast<double>(ranks.size());
  for (Stationary const kept : choices(spec.groups, ranks.grid().counts().channel)) {
    spec.set(kept);
    check_linear<T>(c, ranks, spec, taps * static_cast<double>(w[1]) + 1 + parts,
                    taps * images(c) * static_cast<double>(out / spec.groups) + parts,
                    product(c["y"].shape) / static_cast<double>(out) + parts);
  }
}

}  // namespace

TEST_CASE("convolutions with groups, and depthwise ones, agree with PyTorch") {
  for_each_case(
      "grouped_conv",
      [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
        check_conv<decltype(t)>(c, ranks, Padding::zeros);
      },
      splits);
}

TEST_CASE("convolutions with padding modes agree with PyTorch") {
  for_each_case(
      "padded_conv",
      [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
        check_conv<decltype(t)>(c, ranks,
                                c.kind == "circular"  ? Padding::circular
                                : c.kind == "reflect" ? Padding::reflect
                                                      : Padding::replicate);
      },
      splits);
}

TEST_CASE("transposed convolutions agree with PyTorch") {
  for_each_case(
      "transposed_conv",
      [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
        auto const& w = c["w"].shape;
        std::int64_t const out = c["y"].shape[1];
        TransposedConvSpec spec = with_window(w.size() == 3   ? transposed_conv1d(out)
                                              : w.size() == 4 ? transposed_conv2d(out)
                                                              : transposed_conv3d(out),
                                              c);
        set_each(
            spec, [](auto... n) { return padding(n...); }, c["padding"]);
        set_each(
            spec, [](auto... n) { return output_padding(n...); }, c["output_padding"]);
        double const taps = product(w, 2), parts = static_cast<double>(ranks.size()),
                     inputs = static_cast<double>(w[0] / spec.groups);
        for (Stationary const kept : choices(spec.groups, ranks.grid().counts().channel)) {
          spec.set(kept);
          check_linear<decltype(t)>(c, ranks, spec, taps * inputs + 1 + parts, taps * static_cast<double>(w[1]) + parts,
                                    product(c["y"].shape) / static_cast<double>(out) + parts);
        }
      },
      splits);
}

TEST_CASE("dense layers agree with PyTorch where channels are cut, and without gathering what they flatten") {
  for_each_case(
      "dense",
      [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
        using T = decltype(t);
        auto const& w = c["w"].shape;
        double const parts = static_cast<double>(ranks.size());
        auto const check = [&](auto const& spec) {
          check_linear<T>(c, ranks, spec, static_cast<double>(w[1]) + 1 + parts, static_cast<double>(w[0]) + parts,
                          static_cast<double>(c["x"].shape[0]) + parts);
        };
        DenseSpec spec = dense(w[0]);
        if (!c.has("b")) spec.set(no_bias);
        if (c.kind == "flatten_dense") return check(FlatDenseSpec{spec});
        for (Stationary const kept : choices(1, ranks.grid().counts().channel)) {
          spec.set(kept);
          check(spec);
        }
      },
      splits);
}
