// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Losses against PyTorch (tests/fixtures/make.py), in double and float, on 1 rank, on 2 x 2, and cut in channels. The
// inputs are exact in float, and losses compute in double: only the error itself is rounded to float.

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/fixture.hpp"
#include "support/loss_harness.hpp"
#include "support/pytorch.hpp"
#include "tessera/train/binary_cross_entropy.hpp"
#include "tessera/train/cross_entropy.hpp"
#include "tessera/train/dice.hpp"
#include "tessera/train/loss.hpp"

using namespace tessera;
using namespace tessera::axes;
using namespace tessera::test;

namespace {

/// A loss on a case's prediction and target, under the ranks' counts and under a cut in channels.
template <class T, class L>
void check(FixtureCase const& c, RankGrid<All> const& given, L const& loss, std::string const& value = "value",
           std::string const& error = "error") {
  for (bool const in_channels : {false, true}) {
    Counts counts = given.grid().counts();
    if (in_channels) counts = {.channel = given.size()};
    RankGrid<All> const ranks(given, counts);
    Partition const partition(ranks.grid(), shape_of(c["prediction"]));
    LossDriver<T> driver(ranks, partition);
    driver.run(loss, channels_last<T>(c["prediction"]), channels_last<T>(c["target"]));
    check_norm_wise(value, {driver.value()}, c[value]);
    std::vector<double> slopes(c[error].values.size(), 0.0);
    for_each_place(partition.shape(), partition.owned(ranks.rank()),
                   [&](auto n, auto d, auto h, auto w, auto channel, std::size_t place) {
                     slopes[place] = driver.slope(n, d, h, w, channel);
                   });
    ranks.world().all_reduce(slopes.data(), static_cast<std::int64_t>(slopes.size()));
    if constexpr (in_double<T>)
      check_norm_wise(error, slopes, c[error]);
    else
      check_roundings(error + " in float", slopes, c[error], c[error].magnitude().values, 2);
  }
}

std::vector<double> weights_of(FixtureCase const& c) {
  return c.has("weights") ? c["weights"].values : std::vector<double>{};
}

}  // namespace

TEST_CASE("huber errors agree with PyTorch") {
  for_each_case("huber", [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
    check<decltype(t)>(c, ranks, HuberError{c.number("delta")});
  });
}

TEST_CASE("cross entropy agrees with PyTorch, over the batch and by samples") {
  for_each_case("cross_entropy", [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
    CrossEntropy loss{.ignore_index = static_cast<std::int64_t>(c.number("ignored")),
                      .class_weights = weights_of(c),
                      .label_smoothing = c.number("smoothing")};
    check<decltype(t)>(c, ranks, loss);
    loss.reduction = Reduction::samples;
    check<decltype(t)>(c, ranks, loss, "samples", "samples_error");
  });
}

TEST_CASE("binary cross entropy agrees with PyTorch") {
  for_each_case("binary_cross_entropy", [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
    check<decltype(t)>(c, ranks, BinaryCrossEntropy{.pos_weight = weights_of(c)});
  });
}

TEST_CASE("dice and generalised dice agree with PyTorch's derivatives of the formulas") {
  for_each_case("dice", [](FixtureCase const& c, RankGrid<All> const& ranks, auto t) {
    Reduction const reduction = c.number("samples") != 0.0 ? Reduction::samples : Reduction::batch;
    TargetForm const form = c.number("labels") != 0.0 ? TargetForm::labels : TargetForm::one_hot;
    double const epsilon = c.number("epsilon");
    check<decltype(t)>(c, ranks, Dice{static_cast<int>(c.number("exponent")), epsilon, reduction, form});
    check<decltype(t)>(c, ranks, GeneralisedDice{epsilon, reduction, form}, "generalised", "generalised_error");
  });
}
