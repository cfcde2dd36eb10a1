// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// kernels: ConvForward ConvBackwardData ConvBackwardFilter BiasGradient Unpack CopyChannels FillChannels

#include <tessera/layer/conv.hpp>

#include "on_device.hpp"

tessera::test::Net convolutions(tessera::RankGrid<tessera::test::Split> const& ranks) {
  using namespace tessera;
  return test::on_device(ranks, conv3d<3>(16, same), conv3d<3>(8, stride(2), padding(1), no_bias));
}
