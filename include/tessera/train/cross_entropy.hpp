// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/op/cross_entropy.hpp"
#include "tessera/train/loss_pass.hpp"
#include "tessera/train/target_check.hpp"

namespace tessera {

/// Softmax over the channels, one per class, and the negative logarithm of the label's share, as PyTorch's
/// CrossEntropyLoss: sum of w_t (lse - z_t) / sum of w_t over the positions that are not ignored. With smoothing a, the
/// label has (1 - a) of a position's weight and all classes share the rest. By Reduction::samples it is the mean of
/// this over the samples, without those of no weight. Where nothing has weight, loss and gradient are 0.
///
/// Shape: prediction (N, D, H, W, C) of logits, target (N, D, H, W, 1) of labels 0 to C - 1 as numbers.
/// Moves: one number for the check of the labels; where the prediction is cut in channels, two numbers per position
/// over the ranks that share the position; by Reduction::samples one number per sample over the ranks that share it.
/// Fails: on every rank, for a label that is not a whole number of [0, C) nor the ignore_index; for class weights that
/// are not C numbers of at least 0; for a smoothing outside [0, 1].
/// Source: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2016 (smoothing).
struct CrossEntropy {
  std::int64_t ignore_index = -100;
  std::vector<double> class_weights = {};  ///< none: all 1
  double label_smoothing = 0.0;
  Reduction reduction = Reduction::batch;

  LossTarget target(Shape const& prediction) const { return {prediction.with_channels(1), true}; }

  template <class T, class Space>
  LossPart operator()(LossPass<T, Space> const& pass) const {
    Box const& positions = pass.targets;
    Interval const classes = pass.prediction.owned()[AxisId::channel];
    std::int64_t const class_count = pass.prediction.shape().channel;
    double const ignored = static_cast<double>(static_cast<T>(ignore_index));
    check(class_count);
    detail::check_targets(pass, op::LabelRule{class_count, ignored},
                          detail::text("CrossEntropy: a label must be a whole number from 0 to ", class_count - 1,
                                       ", one for each channel of the prediction, or the ignore_index ", ignore_index),
                          "; check the source, or the network's number of channels");

    Interval const samples = positions[AxisId::sample];
    bool const per_sample = reduction == Reduction::samples;
    std::vector<double> settings = class_weights;
    settings.resize(static_cast<std::size_t>(class_count), 1.0);
    double weight_sum = 0.0, samples_here = 0.0;
    for (double const w : settings) weight_sum += w;
    double const* weights = pass.memory.upload(settings);
    if (per_sample) {
      double* const counts = pass.memory.sums.over(pass.space, positions, samples.size(),
                                                   op::LabelWeights<T>{pass.target, ignored, weights, samples.begin});
      Communicator<Mpi> const& sharing = pass.ranks.group(space_axes);
      sharing.all_reduce(counts, samples.size());
      bool const speaks = sharing.rank() == 0 && pass.ranks.coordinates()[AxisId::channel] == 0;
      for (std::int64_t n = 0; n < samples.size(); ++n) {
        bool const counted = counts[n] > 0.0;
        settings.push_back(counted ? 1.0 / counts[n] : 0.0);
        if (counted && speaks) samples_here += 1.0;
      }
      weights = pass.memory.upload(settings);
    }

    op::CrossEntropyPart<T> body{.z = pass.prediction.tile(),
                                 .target = pass.target,
                                 .error = pass.error != nullptr ? pass.error->tile() : Tile<T>{},
                                 .peak = {},
                                 .sum = {},
                                 .weights = weights,
                                 .per_sample = per_sample ? weights + class_count : nullptr,
                                 .first_sample = samples.begin,
                                 .classes = classes,
                                 .ignored = ignored,
                                 .smoothing = label_smoothing,
                                 .even = label_smoothing / static_cast<double>(class_count),
                                 .weight_sum = weight_sum,
                                 .inverse = 1.0 / pass.divisor};
    if (pass.ranks.grid().counts().channel > 1) merge_classes(pass, body);
    double const* const sums = pass.memory.sums.over(pass.space, positions, 2, body);
    return {sums[0], per_sample ? samples_here : sums[1]};
  }

 private:
  void check(std::int64_t class_count) const {
    auto const given = static_cast<std::int64_t>(class_weights.size());
    require(given == 0 || given == class_count, "CrossEntropy", "there must be one class weight for each of the ",
            class_count, " channels of the prediction, or none, but there are ", given);
    for (double const w : class_weights)
      require(w >= 0.0 && std::isfinite(w), "CrossEntropy",
              "class weights must be finite and not negative, but one is ", w);
    require(0.0 <= label_smoothing && label_smoothing <= 1.0, "CrossEntropy",
            "label_smoothing must be within [0, 1], it is ", label_smoothing);
  }

  /// Peak and sum of exp(z - peak) over all classes of each position. A rank without classes joins with -infinity and
  /// 0.
  template <class T, class Space>
  static void merge_classes(LossPass<T, Space> const& pass, op::CrossEntropyPart<T>& body) {
    Box const& positions = pass.targets;
    std::int64_t const count = positions.volume();
    Communicator<Mpi> const& sharing = pass.ranks.group({AxisId::channel});
    pass.memory.positions.grow(2 * count);
    Tile<double> const peak = dense_tile(pass.memory.positions.data(), positions),
                       sum = dense_tile(pass.memory.positions.data() + count, positions);
    for_each_position("tessera::cross_entropy", pass.space, positions, op::ClassPeak<T>{body.z, body.classes, peak});
    pass.space.fence("tessera::cross_entropy");
    pass.memory.all_reduce(sharing, peak.data, count, Reduce::max);
    for_each_position("tessera::cross_entropy", pass.space, positions,
                      op::ClassSum<T>{body.z, body.classes, peak, sum});
    pass.space.fence("tessera::cross_entropy");
    pass.memory.all_reduce(sharing, sum.data, count, Reduce::sum);
    body.peak = peak;
    body.sum = sum;
  }
};

}  // namespace tessera
