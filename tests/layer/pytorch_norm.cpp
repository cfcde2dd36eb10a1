// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Norms, activations and softmax against PyTorch (tests/fixtures/make.py), in double and float, on 1 rank and on 4,
// with the channels cut too.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/fixture.hpp"
#include "support/pytorch.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/group_norm.hpp"
#include "tessera/layer/softmax.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

std::vector<Counts> const splits{{.channel = 4}, {.channel = 2, .width = 2}, {.sample = 2, .height = 2}};

/// In double norm-wise; in float each cell within its bound, in roundings of float.
template <class T>
void check_within(std::string const& what, std::vector<double> const& got, Array const& expected,
                  std::vector<double> const& roundings) {
  if constexpr (in_double<T>)
    check_norm_wise(what, got, expected);
  else
    check_roundings(what + " in float", got, expected, roundings, 1);
}

std::vector<double> everywhere(std::size_t count, double value) { return std::vector<double>(count, value); }

double largest(Array const& array) {
  double most = 0.0;
  for (double const value : array.values) most = std::max(most, std::abs(value));
  return most;
}

/// The largest 1 / sqrt(variance + epsilon) and the largest normalised x, over `parts` equal parts of consecutive
/// cells: in PyTorch's order these are the groups of samples. With the statistics given per channel, or else those of
/// x.
struct NormScale {
  double inverse = 0.0;
  double normalised = 0.0;

  NormScale(Array const& x, std::size_t parts, double epsilon, std::vector<double> const& mean = {},
            std::vector<double> const& variance = {}) {
    std::size_t const each = x.values.size() / parts;
    for (std::size_t part = 0; part < parts; ++part) {
      double const* const first = x.values.data() + part * each;
      double m = 0.0, v = 0.0, n = static_cast<double>(each);
      for (std::size_t i = 0; i < each; ++i) m += first[i] / n;
      for (std::size_t i = 0; i < each; ++i) v += (first[i] - m) * (first[i] - m) / n;
      if (!mean.empty()) {
        m = mean[part % mean.size()];
        v = variance[part % mean.size()];
      }
      inverse = std::max(inverse, 1.0 / std::sqrt(v + epsilon));
      for (std::size_t i = 0; i < each; ++i)
        normalised = std::max(normalised, std::abs(first[i] - m) / std::sqrt(v + epsilon));
    }
  }
};

/// Compares what one pass of a norm left with the fixture's arrays of names that end so. x is exact in float and
/// statistics are in double: the normalised x has 4 roundings (two differences, the inverse deviation, a product). In y
/// follow gamma, beta, a product and a sum. In dx the three terms, none larger than gamma dy (1 + normalised), have up
/// to 4 + 7 + 1 roundings; differences, the inverse deviation and products add 7.
template <class T>
void check_pass(FixtureCase const& c, Driven<T>& layer, std::string const& after, NormScale const& s) {
  bool const affine = c.has("gamma");
  double const gamma = affine ? largest(c["gamma"]) : 1.0, beta = affine ? largest(c["beta"]) : 0.0;
  double const h = s.normalised, dy = largest(c["dy"]);
  std::size_t const cells = c["x"].values.size();
  check_within<T>("y" + after, layer.y(), c["y" + after], everywhere(cells, 7 * (gamma * h + beta)));
  check_within<T>("dx" + after, layer.dx(), c["dx" + after],
                  everywhere(cells, 19 * gamma * s.inverse * dy * (1 + h) * 2));
  if (!affine) return;
  std::size_t const channels = c["gamma"].values.size();
  double const count = static_cast<double>(cells / channels);
  // Each of up to four ranks rounds its part of a gradient, and adds it.
  check_within<T>("dgamma" + after, layer.gradient(0), c["dgamma" + after], everywhere(channels, 11 * count * dy * h));
  check_within<T>("dbeta" + after, layer.gradient(1), c["dbeta" + after], everywhere(channels, 7 * count * dy));
}

std::vector<Array> learnt(FixtureCase const& c) {
  return c.has("gamma") ? std::vector<Array>{c["gamma"], c["beta"]} : std::vector<Array>{};
}

}  // namespace

TEST_CASE("group and layer norm agree with PyTorch") {
  int cases = 0;
  for_each_case(
      "norm",
      [&](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
        using T = decltype(t);
        if (c.kind == "instance_norm") return;
        ++cases;
        double const epsilon = c.number("epsilon");
        bool const layer = c.kind == "layer_norm";
        auto const groups = layer ? 1 : static_cast<std::int64_t>(c.number("groups"));
        NormScale const scale(c["x"], static_cast<std::size_t>(c["x"].shape[0] * groups), epsilon);
        auto const check = [&](auto const& spec) {
          for (Mode const mode : {Mode::training, Mode::inference}) {
            Driven<T> driven(ranks, c["x"], spec, learnt(c));
            driven.forward(c["x"], mode).backward(c["dy"], mode);
            check_pass(c, driven, "", scale);
          }
        };
        if (layer)
          check(layer_norm({.epsilon = epsilon}));
        else
          check(group_norm(groups, {.epsilon = epsilon}));
      },
      splits);
  CHECK(cases >= 80);
}

TEST_CASE("instance norm agrees with PyTorch in two steps of training and in inference") {
  int cases = 0;
  for_each_case(
      "norm",
      [&](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
        using T = decltype(t);
        if (c.kind != "instance_norm") return;
        ++cases;
        bool const tracks = c.number("tracks") != 0.0;
        InstanceNormOptions options{.epsilon = c.number("epsilon")};
        options.momentum = c.number("momentum");
        options.affine = c.has("gamma");
        options.track_running = tracks;
        Driven<T> layer(ranks, c["x1"], instance_norm(options), learnt(c));
        auto const parts = static_cast<std::size_t>(c["x"].shape[0] * c["x"].shape[1]);
        NormScale const scale(c["x"], parts, options.epsilon);
        layer.forward(c["x1"]).forward(c["x"]).backward(c["dy"]);
        check_pass(c, layer, "", scale);
        if (tracks) {
          check_norm_wise("running mean", layer.buffer("running_mean"), c["running_mean"]);
          check_norm_wise("running variance", layer.buffer("running_var"), c["running_var"]);
        }
        layer.forward(c["x"], Mode::inference).backward(c["dy"], Mode::inference);
        check_pass(c, layer, "_eval",
                   tracks ? NormScale(c["x"], parts, options.epsilon, c["running_mean"].values, c["running_var"].values)
                          : scale);
      },
      splits);
  CHECK(cases >= 80);
}

TEST_CASE("elu, gelu, silu, sigmoid and prelu agree with PyTorch, with zeros and NaN") {
  for_each_case(
      "pointwise",
      [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
        using T = decltype(t);
        auto const& x = c["x"].values;
        // Roundings of a cell of y, relative to y, and of dx, relative to dy: x is exact in float. exp, expm1 and erfc
        // have 10; an error of their argument counts by their logarithmic derivative.
        auto const check = [&](auto const& spec, auto of_y, auto of_dx, std::vector<Array> const& parameters = {}) {
          Driven<T> layer(ranks, c["x"], spec, parameters);
          layer.forward(c["x"]).backward(c["dy"]);
          std::vector<double> y = c["y"].magnitude().values, dx = c["dy"].magnitude().values;
          for (std::size_t i = 0; i < x.size(); ++i) {
            y[i] *= of_y(std::abs(x[i]));
            dx[i] *= of_dx(std::abs(x[i]));
          }
          check_within<T>("y", layer.y(), c["y"], y);
          check_within<T>("dx", layer.dx(), c["dx"], dx);
          if (!parameters.empty()) {
            double const count = static_cast<double>(x.size() / parameters[0].values.size());
            check_within<T>("dw", layer.gradient(0), c["dw"],
                            everywhere(parameters[0].values.size(), 8 * count * 20 * largest(c["dy"])));
          }
        };
        if (c.kind == "elu") {
          double const alpha = c.number("setting"), most = std::max(1.0, alpha);
          check(
              elu(alpha), [](double) { return 14.0; }, [&](double) { return 14.0 * most; });
        } else if (c.kind == "gelu") {
          check(
              gelu(), [](double far) { return 16.0 + 2 * far * far; },
              [](double far) { return (19.0 + 2 * far * far) * 1.3; });  // the derivative is below 1.13
        } else if (c.kind == "gelu_tanh") {
          // The argument of exp, at most 1.6 far (1 + 0.045 far^2), has 8 roundings.
          auto const moved = [](double far) { return 8 * 1.6 * far * (1 + 0.045 * far * far); };
          check(
              gelu(tanh_form), [=](double far) { return 15.0 + moved(far); },
              [=](double far) { return (40.0 + 2 * moved(far)) * 1.3; });
        } else if (c.kind == "silu") {
          check(
              silu(), [](double) { return 15.0; }, [](double) { return 33.0 * 1.3; });
        } else if (c.kind == "sigmoid") {
          check(
              sigmoid(), [](double) { return 14.0; }, [](double) { return 20.0; });
        } else {
          bool const shared = c.number("shared") != 0.0;
          double const most = std::max(1.0, largest(c["w"]));
          check(
              prelu({.shared = shared}), [](double) { return 3.0; }, [&](double) { return 3.0 * most; }, {c["w"]});
        }
      },
      splits);
}

TEST_CASE("softmax and log softmax agree with PyTorch") {
  for_each_case(
      "softmax",
      [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
        using T = decltype(t);
        bool const logarithm = c.kind == "log_softmax";
        Driven<T> layer(ranks, c["x"], logarithm ? log_softmax() : softmax());
        layer.forward(c["x"]).backward(c["dy"]);
        // Differences of x, exact in float, are at most 120 and lose at most one rounding; exp has 10, and its
        // argument's rounding counts by the argument. The same of the sum; 4 more for the quotient.
        double const apart = 2 * largest(c["x"]), term = 11 + apart, dy = largest(c["dy"]);
        double const channels = static_cast<double>(c["x"].shape[1]);
        std::size_t const cells = c["x"].values.size();
        std::vector<double> y = c["y"].magnitude().values, dx = everywhere(cells, 0.0);
        for (std::size_t i = 0; i < cells; ++i) {
          double const p = logarithm ? std::exp(c["y"].values[i]) : y[i];
          double const underflow = 0x1p-148 / 0x1p-24;  // of exp and of the quotient, in roundings
          y[i] = logarithm ? term + 2 * apart + 2 * y[i] : (2 * term + 4) * y[i] + underflow;
          // softmax: y (dy - sum of y dy); its logarithm: dy - exp(y) sum of dy. The factors have y's errors.
          dx[i] = logarithm ? dy * 3 + p * channels * dy * (y[i] + 14) : 2 * dy * (p * (4 * term + 14) + 2 * underflow);
        }
        check_within<T>("y", layer.y(), c["y"], y);
        check_within<T>("dx", layer.dx(), c["dx"], dx);
      },
      splits);
}
