// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// kernels: SoftmaxLargest SoftmaxTerms SoftmaxResult SoftmaxShare SoftmaxBackward InTurn FillFlat

#include <tessera/layer/softmax.hpp>

#include "on_device.hpp"

tessera::test::Net softmaxes(tessera::RankGrid<tessera::test::Split> const& ranks) {
  using namespace tessera;
  return test::on_device(ranks, softmax(), log_softmax());
}
