// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// kernels: Flatten Unflatten ConvForward ConvBackwardData ConvBackwardFilter BiasGradient

#include <tessera/layer/dense.hpp>
#include <tessera/layer/flatten.hpp>

#include "on_device.hpp"

tessera::test::Net dense_layers(tessera::RankGrid<tessera::test::Whole> const& ranks) {
  using namespace tessera;
  return test::on_device(ranks, flatten(), dense(8, bias(0.1)), dense(2));
}
