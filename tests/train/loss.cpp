// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/train/loss.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/host_tensor.hpp"
#include "support/layer_cases.hpp"
#include "support/loss_harness.hpp"
#include "support/oracle/loss.hpp"
#include "tessera/train/binary_cross_entropy.hpp"
#include "tessera/train/cross_entropy.hpp"
#include "tessera/train/dice.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Case {
  Partition partition;
  std::uint64_t seed = 0;

  Shape shape() const { return partition.shape(); }
  std::string text() const { return tessera::detail::text(test::text(partition), ", seed ", seed); }
};

Case draw_case(std::int64_t ranks) {
  Case c;
  std::int64_t const space = draw(1, 3, "spatial axes");
  Counts const counts = draw_counts(ranks, space, ChannelCuts::yes);
  Shape shape = draw_shape(counts, space);
  while (shape.volume() > 1500 && shape.sample + shape.channel > 2)
    (shape.sample > shape.channel ? shape.sample : shape.channel) -= 1;
  c.partition = draw_partition(shape, counts);
  c.seed = static_cast<std::uint64_t>(draw(0, 1'000'000, "seed"));
  return c;
}

/// Small whole numbers from a seed.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed * 2654435761u + 12345) {}
  std::int64_t below(std::int64_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>(state_ >> 33) % n;
  }

 private:
  std::uint64_t state_;
};

constexpr double ignored = -100;

/// Which labels a target holds.
enum class Labels { any, two_classes, some_ignored, a_shard_ignored, all_ignored };

HostTensor draw_labels(Case const& c, Labels kind) {
  Shape const s = c.shape();
  HostTensor labels(s.with_channels(1));
  Draws random(c.seed + 17);
  std::int64_t const one = random.below(s.channel), other = random.below(s.channel);
  for (double& label : labels.values) {
    std::int64_t const any = random.below(s.channel);
    label = static_cast<double>(kind != Labels::two_classes ? any : random.below(2) == 0 ? one : other);
    if (kind == Labels::all_ignored || (kind == Labels::some_ignored && random.below(3) > 0)) label = ignored;
  }
  if (kind == Labels::a_shard_ignored) {
    Box box = c.partition.owned(random.below(c.partition.grid().size()));
    box[AxisId::channel] = {0, 1};
    for_each_cell(box, [&](auto n, auto d, auto h, auto w, auto ch) { labels.at(n, d, h, w, ch) = ignored; });
  }
  return labels;
}

Labels draw_label_kind() {
  return static_cast<Labels>(draw(0, 4, "labels (any, two classes, some, a shard's, all ignored)"));
}

/// The ranks under the counts of a case; kept, since making groups of ranks anew takes longer than a case.
RankGrid<AnySplit> const& ranks_of(Case const& c) {
  static std::list<RankGrid<AnySplit>> made{world_ranks()};
  for (auto const& ranks : made)
    if (ranks.grid() == c.partition.grid()) return ranks;
  return made.emplace_back(RankGrid<AnySplit>(made.front(), c.partition.grid().counts()));
}

/// The comparison of the value, and of the error on all that this rank owns.
template <class T, class L>
void check(Case const& c, L const& loss, HostTensor const& prediction, HostTensor const& target,
           oracle::LossResult const& expected) {
  RankGrid<AnySplit> const& ranks = ranks_of(c);
  LossDriver<T> driver(ranks, c.partition);
  driver.run(loss, prediction, target);
  double const with_error = driver.sum();
  if constexpr (std::is_same_v<T, double>) {
    LossDriver<T> alone(ranks, c.partition);
    expect(alone.run(loss, prediction, target, false).sum() == with_error,
           "the value depends on whether the error is wanted");
  }
  together([&] {
    driver.expect_clean();
    if (!near(driver.value(), expected.value, expected.value_error + 1e-300))
      throw Error(tessera::detail::text("the loss is ", driver.value(), ", expected ", expected.value,
                                        ", allowed error ", expected.value_error));
    for_each_cell(c.partition.owned(ranks.rank()), [&](auto n, auto d, auto h, auto w, auto ch) {
      double const got = driver.slope(n, d, h, w, ch), right = expected.slope.at(n, d, h, w, ch),
                   bound = expected.slope_error.at(n, d, h, w, ch) + 4 * unit_roundoff<T> * std::abs(right) +
                           16 * static_cast<double>(std::numeric_limits<T>::denorm_min());
      if (!near(got, right, bound))
        throw Error(tessera::detail::text("the error at (", n, ", ", d, ", ", h, ", ", w, ", ", ch, ") is ", got,
                                          ", expected ", right, ", allowed error ", bound));
    });
  });
}

/// draw_and_check(case) on random cases.
template <class F>
void distributed_equals_serial(std::string const& name, F draw_and_check) {
  poison_fresh_memory();
  auto const world = world_ranks();
  Coverage coverage(name, world.size());
  distributed_property(
      name + ": distributed equals serial",
      [&] {
        Case const c = draw_case(world.size());
        coverage.begin_case();
        coverage.count_decomposition(c.partition, c.partition);
        coverage.count("channels cut", cuts_channels(c.partition), world.size() > 1);
        draw_and_check(c, coverage);
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}

template <class F>
void explained(Case const& c, std::string const& what, F f) {
  try {
    f();
  } catch (Error const& error) {
    throw Error(tessera::detail::text(error.what(), "\n  in ", what, " of ", c.text()));
  }
}

HostTensor scaled(HostTensor tensor, double by) {
  for (double& value : tensor.values) value *= by;
  return tensor;
}

/// Multiples of 1/8 in [0, 1].
HostTensor eighths(Shape const& shape, std::uint64_t seed) {
  HostTensor tensor(shape);
  Draws random(seed);
  for (double& value : tensor.values) value = static_cast<double>(random.below(9)) / 8;
  return tensor;
}

/// Each position's label as the shares of classes; NaN where it is left out.
HostTensor one_hot(HostTensor const& labels, std::int64_t classes) {
  HostTensor shares(labels.shape.with_channels(classes));
  for (std::size_t i = 0; i < shares.values.size(); ++i) {
    auto const at = static_cast<std::int64_t>(i);
    double const label = labels.values[static_cast<std::size_t>(at / classes)];
    shares.values[i] = label == ignored ? std::nan("") : label == static_cast<double>(at % classes) ? 1 : 0;
  }
  return shares;
}

struct DiceCase {
  oracle::DiceOptions options;
  bool labels = true;
  HostTensor prediction, target, shares;

  std::string text() const {
    return tessera::detail::text(options.generalised ? "generalised dice" : "dice", ", exponent ", options.exponent,
                                 ", epsilon ", options.epsilon, options.per_sample ? ", per sample" : ", whole batch",
                                 labels ? ", labels" : ", one-hot");
  }
  Dice dice() const {
    return {options.exponent, options.epsilon, options.per_sample ? Reduction::samples : Reduction::batch,
            labels ? TargetForm::labels : TargetForm::one_hot};
  }
  GeneralisedDice generalised() const {
    return {options.epsilon, options.per_sample ? Reduction::samples : Reduction::batch,
            labels ? TargetForm::labels : TargetForm::one_hot};
  }
};

DiceCase draw_dice(Case const& c, bool generalised) {
  DiceCase d;
  d.options.generalised = generalised;
  if (!generalised) d.options.exponent = static_cast<int>(draw(1, 2, "exponent"));
  d.options.epsilon = draw(0, 1, "epsilon") == 0 ? 0.0 : 1e-3;
  d.options.per_sample = draw(0, 1, "per sample") == 1;
  d.labels = draw(0, 2, "one-hot (0)") > 0;
  Labels const kind = draw_label_kind();
  Shape const s = c.shape();
  d.prediction = eighths(s, c.seed + 3);
  if (draw(0, 1, "a class that is not predicted") == 1)
    for (std::size_t i = 0; i < d.prediction.values.size(); i += static_cast<std::size_t>(s.channel))
      d.prediction.values[i] = 0;
  HostTensor const labels = draw_labels(c, kind);
  d.shares = one_hot(labels, s.channel);
  if (d.labels) {
    d.target = labels;
  } else {
    if (kind == Labels::any) d.shares = eighths(s, c.seed + 4);  // a soft target
    for (double& share : d.shares.values)
      if (std::isnan(share)) share = 0;  // a one-hot target ignores nothing
    d.target = d.shares;
  }
  return d;
}

/// Whether a class is missing where sums are taken.
bool has_empty_class(DiceCase const& d) {
  Shape const s = d.shares.shape;
  std::int64_t const groups = d.options.per_sample ? s.sample : 1, in_group = s.volume() / groups;
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t c = 0; c < s.channel; ++c) {
      bool found = false;
      for (std::int64_t i = c; i < in_group; i += s.channel)
        found = found || d.shares.values[static_cast<std::size_t>(g * in_group + i)] > 0;
      if (!found) return true;
    }
  return false;
}

template <class L>
void check_dice(Case const& c, DiceCase const& d, L const& loss) {
  auto const expected = oracle::dice(d.prediction, d.shares, d.options);
  explained(c, d.text(), [&] {
    check<double>(c, loss, d.prediction, d.target, expected);
    check<float>(c, loss, d.prediction, d.target, expected);
  });
}

void check_cross_entropy(Case const& c, oracle::CrossEntropyOptions const& o, HostTensor const& prediction,
                         HostTensor const& labels) {
  CrossEntropy const loss{.class_weights = o.weights,
                          .label_smoothing = o.smoothing,
                          .reduction = o.per_sample ? Reduction::samples : Reduction::batch};
  auto const expected = oracle::cross_entropy(prediction, labels, o);
  explained(c,
            tessera::detail::text("cross entropy, smoothing ", o.smoothing, o.weights.empty() ? "" : ", weighted",
                                  o.per_sample ? ", per sample" : ""),
            [&] {
              check<double>(c, loss, prediction, labels, expected);
              check<float>(c, loss, prediction, labels, expected);
            });
}

std::vector<double> draw_weights(Case const& c) {
  Draws random(c.seed + 5);
  std::vector<double> weights;
  for (std::int64_t i = 0; i < c.shape().channel; ++i) weights.push_back(static_cast<double>(random.below(5)) / 4);
  return weights;
}

/// All ranks along one axis.
Case along(AxisId axis, Shape const& shape) {
  Counts counts;
  counts[axis] = world_ranks().size();
  return {Partition(Grid(counts), shape), 1};
}

std::string message_of(auto action) {
  try {
    action();
  } catch (Error const& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("huber error: value and gradient equal the serial ones") {
  distributed_equals_serial("huber", [](Case const& c, Coverage& coverage) {
    double const delta = static_cast<double>(draw(1, 12, "delta in eighths")) / 8;
    HostTensor const p = random_tensor(c.shape(), c.seed), t = random_tensor(c.shape(), c.seed + 1);
    coverage.count("small delta", delta < 0.5);
    auto const expected = oracle::mean_of_cells(
        p, t, [&](oracle::Real a, oracle::Real b, std::size_t) { return oracle::huber(a, b, delta); });
    explained(c, tessera::detail::text("huber with delta ", delta), [&] {
      check<double>(c, HuberError{delta}, p, t, expected);
      check<float>(c, HuberError{delta}, p, t, expected);
    });
  });
}

TEST_CASE("squared and absolute errors: value and gradient equal the serial ones, channels cut too") {
  distributed_equals_serial("squared and absolute", [](Case const& c, Coverage&) {
    HostTensor const p = whole_numbers(c.shape(), c.seed, 3), t = whole_numbers(c.shape(), c.seed + 1, 3);
    using oracle::Real;
    auto const squared = oracle::mean_of_cells(p, t, [](Real a, Real b, std::size_t) {
      return oracle::Cell{(a - b) * (a - b), 2 * (a - b), 0, 0};
    });
    auto const absolute = oracle::mean_of_cells(p, t, [](Real a, Real b, std::size_t) {
      return oracle::Cell{std::abs(a - b), static_cast<Real>((a > b) - (a < b)), 0, 0};
    });
    explained(c, "squared and absolute errors", [&] {
      check<double>(c, MeanSquaredError{}, p, t, squared);
      check<float>(c, MeanAbsoluteError{}, p, t, absolute);
    });
  });
}

TEST_CASE("cross entropy: value and gradient equal the serial ones") {
  distributed_equals_serial("cross entropy", [](Case const& c, Coverage& coverage) {
    oracle::CrossEntropyOptions o;
    if (draw(0, 1, "class weights") == 1) o.weights = draw_weights(c);
    if (draw(0, 1, "smoothing") == 1) o.smoothing = static_cast<double>(draw(1, 4, "smoothing in quarters")) / 4;
    o.per_sample = draw(0, 1, "per sample") == 1;
    Labels const kind = draw_label_kind();
    // Large logits leave one class with all of the probability.
    double const size = std::ldexp(1.0, static_cast<int>(2 * draw(0, 5, "size of logits, a power of four")));
    coverage.count("class weights", !o.weights.empty());
    coverage.count("smoothing", o.smoothing > 0);
    coverage.count("per sample", o.per_sample);
    coverage.count("a shard ignored", kind == Labels::a_shard_ignored);
    coverage.count("all ignored", kind == Labels::all_ignored);
    check_cross_entropy(c, o, scaled(random_tensor(c.shape(), c.seed), size), draw_labels(c, kind));
  });
}

TEST_CASE("binary cross entropy: value and gradient equal the serial ones") {
  distributed_equals_serial("binary cross entropy", [](Case const& c, Coverage& coverage) {
    BinaryCrossEntropy loss;
    auto const kind = draw(0, 2, "pos_weight (none, one, one per channel)");
    if (kind == 1) loss.pos_weight = {static_cast<double>(draw(0, 20, "pos_weight in quarters")) / 4};
    if (kind == 2) loss.pos_weight = draw_weights(c);
    double const size = std::ldexp(1.0, static_cast<int>(2 * draw(0, 4, "size of logits, a power of four")));
    coverage.count("one weight", kind == 1);
    coverage.count("weights per channel", kind == 2);
    HostTensor const z = scaled(random_tensor(c.shape(), c.seed), size), t = eighths(c.shape(), c.seed + 1);
    auto const expected = oracle::mean_of_cells(z, t, [&](oracle::Real a, oracle::Real b, std::size_t channel) {
      return oracle::binary_cross_entropy(a, b, kind == 0 ? 1.0 : loss.pos_weight[kind == 1 ? 0 : channel]);
    });
    explained(c, "binary cross entropy", [&] {
      check<double>(c, loss, z, t, expected);
      check<float>(c, loss, z, t, expected);
    });
  });
}

TEST_CASE("dice: value and gradient equal the serial ones") {
  distributed_equals_serial("dice", [](Case const& c, Coverage& coverage) {
    DiceCase const d = draw_dice(c, false);
    coverage.count("epsilon 0", d.options.epsilon == 0);
    coverage.count("whole batch", !d.options.per_sample);
    coverage.count("one-hot", !d.labels);
    coverage.count("empty classes", has_empty_class(d));
    check_dice(c, d, d.dice());
  });
}

TEST_CASE("generalised dice: value and gradient equal the serial ones") {
  distributed_equals_serial("generalised dice", [](Case const& c, Coverage& coverage) {
    DiceCase const d = draw_dice(c, true);
    coverage.count("epsilon 0", d.options.epsilon == 0);
    coverage.count("whole batch", !d.options.per_sample);
    coverage.count("one-hot", !d.labels);
    coverage.count("empty classes", has_empty_class(d));
    check_dice(c, d, d.generalised());
  });
}

namespace {

/// The derivative along a direction, by the errors and by differences of the value, both over all ranks.
template <class L>
void check_differences(Case const& c, L const& loss, HostTensor const& x, HostTensor const& target) {
  RankGrid<AnySplit> const& ranks = ranks_of(c);
  LossDriver<double> driver(ranks, c.partition);
  HostTensor const along = random_tensor(c.shape(), c.seed + 50);
  constexpr double step = 1e-4;
  auto const at = [&](double factor) {
    HostTensor moved = x;
    for (std::size_t i = 0; i < x.values.size(); ++i) moved.values[i] += factor * step * along.values[i];
    return driver.run(loss, moved, target, false).value();
  };
  double const here = std::abs(at(0));
  // Five points: the error is of order step^4.
  double const slope = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step);
  driver.run(loss, x, target);
  double sums[2] = {0, 0};
  for_each_cell(c.partition.owned(ranks.rank()), [&](auto n, auto d, auto h, auto w, auto ch) {
    double const term = driver.slope(n, d, h, w, ch) * along.at(n, d, h, w, ch);
    sums[0] += term;
    sums[1] += std::abs(term);
  });
  ranks.world().all_reduce(sums, 2);
  double const bound = 1e-6 * sums[1] + 1e-10 * here;  // differences of the value lose 2^-53 / step of it
  together([&] {
    if (!near(sums[0], slope, bound))
      throw Error(tessera::detail::text("the derivative is ", sums[0], ", by differences ", slope, ", allowed error ",
                                        bound, "\n  in ", c.text()));
  });
}

}  // namespace

TEST_CASE("gradients are those of finite differences") {
  auto const world = world_ranks();
  distributed_property(
      "finite differences",
      [&] {
        Case const c = draw_case(world.size());
        auto const kind = draw(0, 4, "loss (huber, cross entropy, binary, dice, generalised)");
        Shape const s = c.shape();
        HostTensor const x = scaled(random_tensor(s, c.seed), 2.0);
        HostTensor inside = random_tensor(s, c.seed);  // probabilities within [1/4, 3/4]
        for (double& value : inside.values) value = 0.5 + value / 4;
        if (kind == 0) {
          // Differences are multiples of 1/4: none is near the bend at 1/8.
          HostTensor whole = scaled(whole_numbers(s, c.seed, 3), 0.25);
          check_differences(c, HuberError{0.125}, whole, HostTensor(s));
        } else if (kind == 1) {
          CrossEntropy loss{.label_smoothing = static_cast<double>(draw(0, 4, "smoothing in quarters")) / 4};
          if (draw(0, 1, "class weights") == 1) loss.class_weights = draw_weights(c);
          if (draw(0, 1, "per sample") == 1) loss.reduction = Reduction::samples;
          check_differences(c, loss, x, draw_labels(c, draw_label_kind()));
        } else if (kind == 2) {
          check_differences(c, BinaryCrossEntropy{.pos_weight = {2.5}}, x, eighths(s, c.seed + 1));
        } else {
          DiceCase d = draw_dice(c, kind == 4);
          if (kind == 3)
            check_differences(c, d.dice(), inside, d.target);
          else
            check_differences(c, d.generalised(), inside, d.target);
        }
      },
      MPI_COMM_WORLD);
}

TEST_CASE("case 15: targets that are ignored, of one shard or all, count for nothing") {
  for (AxisId axis : {AxisId::sample, AxisId::width, AxisId::channel})
    for (bool const per_sample : {false, true})
      for (double const smoothing : {0.0, 0.25}) {
        Case const c = along(axis, {4, 1, 2, 9, 8});
        oracle::CrossEntropyOptions o{.smoothing = smoothing, .per_sample = per_sample};
        HostTensor const z = scaled(random_tensor(c.shape(), 3), 4.0);
        check_cross_entropy(c, o, z, draw_labels(c, Labels::a_shard_ignored));
        check_cross_entropy(c, o, z, draw_labels(c, Labels::all_ignored));
        // Nothing counts: 0, not NaN.
        RankGrid<AnySplit> const& ranks = ranks_of(c);
        LossDriver<float> driver(ranks, c.partition);
        CrossEntropy const loss{.label_smoothing = smoothing,
                                .reduction = per_sample ? Reduction::samples : Reduction::batch};
        driver.run(loss, z, draw_labels(c, Labels::all_ignored));
        CHECK(driver.count() == 0.0);
        CHECK(driver.sum() == 0.0);
        bool zero = true;
        for_each_cell(c.partition.owned(ranks.rank()), [&](auto n, auto d, auto h, auto w, auto ch) {
          zero = zero && driver.error()(n, d, h, w, ch) == 0.0f;
        });
        CHECK(zero);
        // One label that counts, wherever it is, gives the loss of that position alone.
        HostTensor labels = draw_labels(c, Labels::all_ignored);
        labels.at(3, 0, 1, 8, 0) = 5;
        double all = 0;
        for (std::int64_t k = 0; k < 8; ++k) all += std::exp(z.at(3, 0, 1, 8, k));
        if (smoothing == 0.0) {
          driver.run(CrossEntropy{.reduction = loss.reduction}, z, labels);
          CHECK(driver.count() == 1.0);
          CHECK(driver.value() == doctest::Approx(std::log(all) - z.at(3, 0, 1, 8, 5)).epsilon(1e-12));
        }
      }
}

TEST_CASE("case 15: a label that is a class may be ignored, and a weight of 0 does the same to the loss") {
  Case const c = along(AxisId::width, {2, 1, 1, 12, 3});
  RankGrid<AnySplit> const& ranks = ranks_of(c);
  HostTensor const z = random_tensor(c.shape(), 3), labels = draw_labels(c, Labels::any);
  LossDriver<double> left_out(ranks, c.partition), weightless(ranks, c.partition);
  left_out.run(CrossEntropy{.ignore_index = 1}, z, labels);
  weightless.run(CrossEntropy{.class_weights = {1, 0, 1}}, z, labels);
  CHECK(left_out.count() == weightless.count());
  CHECK(left_out.value() == doctest::Approx(weightless.value()).epsilon(1e-14));
  // A class of no weight may be impossible.
  HostTensor impossible = z;
  for (std::size_t i = 1; i < z.values.size(); i += 3) impossible.values[i] = -std::numeric_limits<double>::infinity();
  weightless.run(CrossEntropy{.class_weights = {1, 0, 1}}, impossible, labels);
  CHECK(std::isfinite(weightless.value()));
  for_each_cell(c.partition.owned(ranks.rank()), [&](auto n, auto d, auto h, auto w, auto ch) {
    CHECK(std::isfinite(weightless.error()(n, d, h, w, ch)));
  });
}

TEST_CASE("case 15: empty classes in Dice") {
  for (AxisId axis : {AxisId::sample, AxisId::width, AxisId::channel}) {
    Case const c = along(axis, {2, 1, 2, 8, 8});
    RankGrid<AnySplit> const& ranks = ranks_of(c);
    // Class 0 everywhere in sample 0, class 1 in sample 1, both predicted with certainty; classes 2 to 7 nowhere.
    HostTensor labels(c.shape().with_channels(1)), p(c.shape());
    for_each_cell(labels.shape.box(), [&](auto n, auto d, auto h, auto w, auto) {
      labels.at(n, d, h, w, 0) = static_cast<double>(n);
      p.at(n, d, h, w, n) = 1;
    });
    LossDriver<double> driver(ranks, c.partition);
    for (double const epsilon : {0.0, 1e-5})
      for (Reduction const reduction : {Reduction::samples, Reduction::batch})
        for (int const exponent : {1, 2}) {
          driver.run(Dice{exponent, epsilon, reduction}, p, labels);
          CHECK(driver.value() == doctest::Approx(0.0).epsilon(1e-12));
          bool const each = reduction == Reduction::samples;
          // Counted: classes per sample, or weighted by 2 samples; with epsilon = 0 only those that are there.
          CHECK(driver.count() == (epsilon > 0 ? 16 : each ? 2 : 4));
          driver.run(GeneralisedDice{epsilon, reduction}, p, labels);
          CHECK(driver.value() == doctest::Approx(0.0).epsilon(1e-12));
          CHECK(driver.count() == 2);
        }
    // A class that is predicted but not there is a whole loss of that class; it does not hide in an average of ranks.
    for (std::size_t i = 7; i < p.values.size(); i += 8) p.values[i] = 1;
    driver.run(Dice{1, 0.0, Reduction::samples}, p, labels);
    CHECK(driver.count() == 4);
    CHECK(driver.value() == doctest::Approx(0.5));
    // Nothing at all: all cells ignored.
    HostTensor const none = draw_labels(c, Labels::all_ignored);
    for (double const epsilon : {0.0, 1e-5}) {
      driver.run(Dice{1, epsilon}, p, none);
      CHECK(driver.value() == 0.0);
      driver.run(GeneralisedDice{epsilon}, p, none);
      CHECK(driver.value() == 0.0);
      CHECK(driver.count() == (epsilon > 0 ? 2 : 0));
    }
  }
}

TEST_CASE("case 16: errors are those of one rank, whatever the number of ranks") {
  auto const self = self_ranks();
  for (AxisId axis : cut_in_order) {
    Case const c = along(axis, {5, 3, 4, 5, 6});
    RankGrid<AnySplit> const& ranks = ranks_of(c);
    Partition const alone(self.grid(), c.shape());
    HostTensor const z = random_tensor(c.shape(), 9), labels = draw_labels(c, Labels::some_ignored);
    HostTensor const probabilities = eighths(c.shape(), 4), soft = eighths(c.shape(), 5);
    auto const same = [&](auto const& loss, HostTensor const& x, HostTensor const& target) {
      LossDriver<double> here(ranks, c.partition), serial(self, alone);
      here.run(loss, x, target);
      serial.run(loss, x, target);
      CHECK(here.value() == doctest::Approx(serial.value()).epsilon(1e-13));
      CHECK(here.count() == doctest::Approx(serial.count()).epsilon(1e-13));
      double most = 0, size = 0;
      for_each_cell(c.partition.owned(ranks.rank()), [&](auto n, auto d, auto h, auto w, auto ch) {
        most = std::max(most, std::abs(here.error()(n, d, h, w, ch) - serial.error()(n, d, h, w, ch)));
        size = std::max(size, std::abs(serial.error()(n, d, h, w, ch)));
      });
      CHECK(most <= 1e-13 * size);
    };
    same(HuberError{0.3}, z, soft);
    same(MeanSquaredError{}, z, soft);
    same(BinaryCrossEntropy{{3.0}}, z, soft);
    for (Reduction const reduction : {Reduction::batch, Reduction::samples}) {
      same(CrossEntropy{.class_weights = {1, 2, 0.5, 1, 0, 3}, .label_smoothing = 0.1, .reduction = reduction}, z,
           labels);
      same(Dice{.exponent = 2, .reduction = reduction}, probabilities, labels);
      same(GeneralisedDice{.reduction = reduction, .target_form = TargetForm::one_hot}, probabilities, soft);
    }
  }
}

TEST_CASE("a prediction that is not finite gives a loss that is not") {
  Case const c = along(AxisId::channel, {2, 1, 1, 3, 8});
  RankGrid<AnySplit> const& ranks = ranks_of(c);
  for (double const bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    HostTensor z = random_tensor(c.shape(), 1);
    z.at(1, 0, 0, 2, 6) = bad;
    LossDriver<double> driver(ranks, c.partition);
    HostTensor const labels(c.shape().with_channels(1));
    CHECK(!std::isfinite(driver.run(CrossEntropy{}, z, labels).value()));
    CHECK(!std::isfinite(driver.run(HuberError{}, z, HostTensor(c.shape())).value()));
    CHECK(!std::isfinite(driver.run(Dice{}, z, labels).value()));
  }
}

TEST_CASE("targets that cannot be are errors on every rank, and one may go on") {
  std::string const rule =
      ": a label must be a whole number from 0 to 3, one for each channel of the prediction, or the ignore_index -100, "
      "but at (1, 0, 2, 8, 0) of the batch the target is ";
  std::string const hint = "; check the source, or the network's number of channels";
  for (AxisId axis : cut_in_order) {
    Case const c = along(axis, {2, 1, 3, 9, 4});
    RankGrid<AnySplit> const& ranks = ranks_of(c);
    LossDriver<float> driver(ranks, c.partition);
    HostTensor const z = random_tensor(c.shape(), 1), good(c.shape().with_channels(1));
    for (auto const& [bad, written] : std::vector<std::pair<double, std::string>>{
             {4, "4"}, {-1, "-1"}, {1.5, "1.5"}, {std::nan(""), "nan"}, {1e30, "1e+30"}}) {
      HostTensor labels = good;
      labels.at(1, 0, 2, 8, 0) = bad;  // in one rank's part, the last that is not empty
      CHECK(message_of([&] { driver.run(CrossEntropy{}, z, labels); }) == "CrossEntropy" + rule + written + hint);
      CHECK(message_of([&] { driver.run(Dice{}, z, labels); }) == "Dice" + rule + written + hint);
      CHECK(message_of([&] { driver.run(GeneralisedDice{}, z, labels); }) == "GeneralisedDice" + rule + written + hint);
    }
    HostTensor soft(c.shape());
    soft.at(0, 0, 1, 2, 3) = 1.25;
    CHECK(message_of([&] { driver.run(BinaryCrossEntropy{}, z, soft); }) ==
          "BinaryCrossEntropy: a target must be within [0, 1], but at (0, 0, 1, 2, 3) of the batch the target is 1.25; "
          "check the source");
    CHECK(message_of([&] { driver.run(Dice{.target_form = TargetForm::one_hot}, z, soft); }) ==
          "Dice: a one-hot target must be within [0, 1], but at (0, 0, 1, 2, 3) of the batch the target is 1.25; check "
          "the source");
    soft.at(0, 0, 1, 2, 3) = std::nan("");
    CHECK(message_of([&] { driver.run(BinaryCrossEntropy{}, z, soft); }).ends_with("is nan; check the source"));
    CHECK(message_of([&] {
            driver.run(GeneralisedDice{.target_form = TargetForm::one_hot}, z, soft);
          }).ends_with("is nan; check the source"));
    driver.run(CrossEntropy{}, z, good);
    CHECK(driver.count() == 54);
    // The ignore_index may be any number; then -100 may not.
    HostTensor other = good;
    other.values[0] = 255;
    driver.run(CrossEntropy{.ignore_index = 255}, z, other);
    CHECK(driver.count() == 53);
    driver.run(Dice{.epsilon = 0, .ignore_index = 255}, z, other);
    other.values[0] = -100;
    CHECK(message_of([&] {
            driver.run(CrossEntropy{.ignore_index = 255}, z, other);
          }).ends_with("the ignore_index 255, but at (0, 0, 0, 0, 0) of the batch the target is -100" + hint));
  }
}

TEST_CASE("options that cannot be say so") {
  Case const c = along(AxisId::width, {2, 1, 1, 9, 3});
  RankGrid<AnySplit> const& ranks = ranks_of(c);
  LossDriver<double> driver(ranks, c.partition);
  HostTensor const z(c.shape()), labels(c.shape().with_channels(1));
  auto const refused = [&](auto const& loss, HostTensor const& target) {
    return message_of([&] { driver.run(loss, z, target); });
  };
  CHECK(refused(HuberError{0.0}, z) == "HuberError: delta must be positive, it is 0");
  CHECK(refused(CrossEntropy{.class_weights = {1, 2}}, labels) ==
        "CrossEntropy: there must be one class weight for each of the 3 channels of the prediction, or none, but there "
        "are 2");
  CHECK(refused(CrossEntropy{.class_weights = {1, -2, 1}}, labels) ==
        "CrossEntropy: class weights must be finite and not negative, but one is -2");
  CHECK(refused(CrossEntropy{.label_smoothing = 1.5}, labels) ==
        "CrossEntropy: label_smoothing must be within [0, 1], it is 1.5");
  CHECK(refused(BinaryCrossEntropy{{1, 2}}, z) ==
        "BinaryCrossEntropy: pos_weight must be one number, or one for each of the 3 channels, but there are 2");
  CHECK(refused(BinaryCrossEntropy{{-1}}, z) ==
        "BinaryCrossEntropy: pos_weight must be finite and not negative, but one is -1");
  CHECK(refused(Dice{.exponent = 3}, labels) == "Dice: the exponent must be 1 or 2, it is 3");
  CHECK(refused(Dice{.epsilon = -1}, labels) == "Dice: epsilon must be finite and not negative, it is -1");
  CHECK(refused(GeneralisedDice{.epsilon = -1}, labels) ==
        "GeneralisedDice: epsilon must be finite and not negative, it is -1");
}
