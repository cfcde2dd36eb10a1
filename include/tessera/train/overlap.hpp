// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/op/overlap.hpp"
#include "tessera/train/loss_pass.hpp"
#include "tessera/train/target_check.hpp"

namespace tessera {

/// What the target of a Dice loss holds.
enum class TargetForm {
  labels,  ///< one channel: the number of each position's class
  one_hot  ///< the prediction's channels: each class's share of the position, 0 or 1 or between
};

namespace detail {

/// How Dice losses measure, and over what.
struct OverlapOptions {
  char const* who;
  bool squared;
  double epsilon;
  Reduction reduction;
  TargetForm target;
  std::int64_t ignore_index;

  LossTarget wanted(Shape const& prediction) const {
    if (target == TargetForm::labels) return {prediction.with_channels(1), true};
    return {prediction};
  }
};

/// The sums of p g, p^e and g for each class that this rank holds, of each of its samples or of the whole batch.
template <class T, class Space>
class Overlap {
 public:
  Overlap(LossPass<T, Space> const& pass, OverlapOptions const& options)
      : pass_(pass), options_(options), per_sample_(options.reduction == Reduction::samples) {
    require(options.epsilon >= 0.0 && std::isfinite(options.epsilon), options.who,
            "epsilon must be finite and not negative, it is ", options.epsilon);
    std::int64_t const here = pass.prediction.shape().sample, classes = pass.prediction.shape().channel;
    require(per_sample_ || here == pass.samples, options.who, "Reduction::batch needs the whole batch of ",
            pass.samples, " samples at once, not a micro-batch of ", here,
            "; leave micro_batch out, or take Reduction::samples");
    double const ignored = static_cast<double>(static_cast<T>(options.ignore_index));
    bool const labels = options.target == TargetForm::labels;
    if (labels)
      check_targets(pass, op::LabelRule{classes, ignored},
                    text(options.who, ": a label must be a whole number from 0 to ", classes - 1,
                         ", one for each channel of the prediction, or the ignore_index ", options.ignore_index),
                    "; check the source, or the network's number of channels");
    else
      check_targets(pass, op::ProbabilityRule{}, text(options.who, ": a one-hot target must be within [0, 1]"),
                    "; check the source");
    Box const& own = pass.prediction.owned();
    cells_ = {own[AxisId::channel], own[AxisId::sample].begin, per_sample_};
    groups_ = per_sample_ ? own[AxisId::sample].size() : 1;
    shares_ = {pass.target, labels, ignored};
    std::int64_t const width = 3 * groups_ * cells_.classes.size();
    double const* const sums = pass.memory.sums.over(
        pass.space, pass.targets, width, op::OverlapSums<T>{pass.prediction.tile(), shares_, cells_, options.squared});
    sums_.assign(sums, sums + width);
    sharing().all_reduce(sums_.data(), width);
    coefficients_.assign(static_cast<std::size_t>(2 * groups_ * cells_.classes.size()), 0.0);
  }

  /// Samples of this rank, or 1 for the whole batch.
  std::int64_t groups() const { return groups_; }
  std::int64_t classes() const { return cells_.classes.size(); }
  std::int64_t cell(std::int64_t group, std::int64_t c) const { return group * classes() + c; }

  double common(std::int64_t cell) const { return sums_[static_cast<std::size_t>(3 * cell)]; }
  double predicted(std::int64_t cell) const { return sums_[static_cast<std::size_t>(3 * cell + 1)]; }
  double labelled(std::int64_t cell) const { return sums_[static_cast<std::size_t>(3 * cell + 2)]; }

  /// The loss's derivative by p is b p' - a g.
  void set_slope(std::int64_t cell, double a, double b) {
    double const factor = weight() / pass_.divisor;
    coefficients_[static_cast<std::size_t>(2 * cell)] = a * factor;
    coefficients_[static_cast<std::size_t>(2 * cell + 1)] = b * factor;
  }

  /// Whether this rank speaks for the ranks that hold the same sums.
  bool speaks() const { return sharing().rank() == 0; }
  /// Losses of whole batches are averaged over evaluations by their samples.
  double weight() const { return per_sample_ ? 1.0 : static_cast<double>(pass_.samples); }

  void write_error() {
    if (pass_.error == nullptr) return;
    double const* const coefficients = pass_.memory.upload(coefficients_);
    for_each_position(options_.who, pass_.space, pass_.targets,
                      op::OverlapError<T>{pass_.prediction.tile(), shares_, pass_.error->tile(), cells_,
                                          options_.squared, coefficients});
    pass_.space.fence(options_.who);
  }

 private:
  /// The ranks whose parts make up this rank's sums.
  Communicator<Mpi> const& sharing() const {
    return pass_.ranks.group(per_sample_ ? space_axes
                                         : AxisSet{AxisId::sample, AxisId::depth, AxisId::height, AxisId::width});
  }

  LossPass<T, Space> const& pass_;
  OverlapOptions options_;
  bool per_sample_;
  std::int64_t groups_ = 1;
  op::OverlapCells cells_{};
  op::ClassShares<T> shares_{};
  std::vector<double> sums_, coefficients_;
};

}  // namespace detail

}  // namespace tessera
