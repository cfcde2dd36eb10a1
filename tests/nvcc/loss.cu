// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// kernels: HuberDifference CountBroken LabelRule ProbabilityRule ClassPeak ClassSum LabelWeights CrossEntropyPart
// kernels: LogitLossSum LogitLossError OverlapSums OverlapError

#include <tessera/train/binary_cross_entropy.hpp>
#include <tessera/train/cross_entropy.hpp>
#include <tessera/train/dice.hpp>
#include <tessera/train/loss.hpp>

#include "on_device.hpp"

namespace {

using namespace tessera;

template <class L>
double sum_of(L const& loss, LossPass<float, test::Device> const& pass) {
  static_assert(Loss<L, float, test::Device>);
  return loss(pass).sum;
}

}  // namespace

double losses(LossPass<float, test::Device> const& pass) {
  return sum_of(HuberError{}, pass) + sum_of(CrossEntropy{}, pass) + sum_of(BinaryCrossEntropy{}, pass) +
         sum_of(Dice{}, pass) + sum_of(GeneralisedDice{}, pass);
}
