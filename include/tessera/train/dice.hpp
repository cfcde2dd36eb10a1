// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/train/loss_pass.hpp"
#include "tessera/train/overlap.hpp"

namespace tessera {

/// 1 - the mean over classes of (2 sum p g + eps) / (sum p^e + sum g + eps), where p is the predicted probability of a
/// class and g its share in the target; sums run over each sample, or over the whole batch. A class that neither the
/// prediction nor the target has is no loss; with eps = 0 it is left out of the mean.
///
/// Shape: prediction (N, D, H, W, C) of probabilities; target (N, D, H, W, 1) of labels, or one-hot as the prediction.
/// Moves: one number for the check of the target; three numbers per class, and per sample by Reduction::samples, over
/// the ranks that hold parts of the sums. Fails: on every rank, for a label that is not a whole number of [0, C) nor
/// the ignore_index; for a one-hot target outside [0, 1]; for an exponent other than 1 and 2; for micro-batches with
/// Reduction::batch. Source: Milletari et al., "V-Net", 2016 (exponent 2).
struct Dice {
  int exponent = 1;
  double epsilon = 1e-5;
  Reduction reduction = Reduction::samples;
  TargetForm target_form = TargetForm::labels;
  std::int64_t ignore_index = -100;  ///< positions with this label are left out

  LossTarget target(Shape const& prediction) const { return options().wanted(prediction); }

  template <class T, class Space>
  LossPart operator()(LossPass<T, Space> const& pass) const {
    require(exponent == 1 || exponent == 2, "Dice", "the exponent must be 1 or 2, it is ", exponent);
    detail::Overlap<T, Space> overlap(pass, options());
    LossPart part;
    for (std::int64_t cell = 0; cell < overlap.groups() * overlap.classes(); ++cell) {
      double const below = overlap.predicted(cell) + overlap.labelled(cell) + epsilon;
      if (below == 0.0) continue;
      double const ratio = (2.0 * overlap.common(cell) + epsilon) / below;
      overlap.set_slope(cell, 2.0 / below, ratio / below);
      if (overlap.speaks()) part += {overlap.weight() * (1.0 - ratio), overlap.weight()};
    }
    overlap.write_error();
    return part;
  }

 private:
  detail::OverlapOptions options() const {
    return {"Dice", exponent == 2, epsilon, reduction, target_form, ignore_index};
  }
};

/// 1 - (2 sum_c w_c sum p g + eps) / (sum_c w_c (sum p + sum g) + eps) with w_c = 1 / (sum g)^2: small classes count as
/// much as large ones. A class that the target does not have has weight 0; without any class and with eps = 0 the
/// sample is left out of the mean.
///
/// Shape, Fails: as Dice. Moves: as Dice, and two numbers, or two per sample, over the channel ranks where the
/// prediction is cut in channels. Source: Sudre et al., "Generalised Dice overlap as a deep learning loss function",
/// 2017.
struct GeneralisedDice {
  double epsilon = 1e-5;
  Reduction reduction = Reduction::samples;
  TargetForm target_form = TargetForm::labels;
  std::int64_t ignore_index = -100;

  LossTarget target(Shape const& prediction) const { return options().wanted(prediction); }

  template <class T, class Space>
  LossPart operator()(LossPass<T, Space> const& pass) const {
    detail::Overlap<T, Space> overlap(pass, options());
    auto const groups = static_cast<std::size_t>(overlap.groups());
    std::vector<double> totals(2 * groups, 0.0);  // of each group: sum w I, sum w (P + G)
    auto const weight = [&](std::int64_t cell) {
      double const g = overlap.labelled(cell);
      return g > 0.0 ? 1.0 / (g * g) : 0.0;
    };
    for (std::size_t i = 0; i < groups; ++i)
      for (std::int64_t c = 0; c < overlap.classes(); ++c) {
        std::int64_t const cell = overlap.cell(static_cast<std::int64_t>(i), c);
        totals[2 * i] += weight(cell) * overlap.common(cell);
        totals[2 * i + 1] += weight(cell) * (overlap.predicted(cell) + overlap.labelled(cell));
      }
    bool const cut = pass.ranks.grid().counts().channel > 1;
    if (cut) pass.ranks.group({AxisId::channel}).all_reduce(totals.data(), static_cast<std::int64_t>(totals.size()));
    bool const speaks = overlap.speaks() && pass.ranks.coordinates()[AxisId::channel] == 0;
    LossPart part;
    for (std::size_t i = 0; i < groups; ++i) {
      double const below = totals[2 * i + 1] + epsilon;
      if (below == 0.0) continue;
      double const ratio = (2.0 * totals[2 * i] + epsilon) / below;
      for (std::int64_t c = 0; c < overlap.classes(); ++c) {
        std::int64_t const cell = overlap.cell(static_cast<std::int64_t>(i), c);
        overlap.set_slope(cell, weight(cell) * 2.0 / below, weight(cell) * ratio / below);
      }
      if (speaks) part += {overlap.weight() * (1.0 - ratio), overlap.weight()};
    }
    overlap.write_error();
    return part;
  }

 private:
  detail::OverlapOptions options() const {
    return {"GeneralisedDice", false, epsilon, reduction, target_form, ignore_index};
  }
};

}  // namespace tessera
