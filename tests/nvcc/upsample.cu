// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// kernels: Interpolate InterpolateAdjoint SumOverReaders

#include <tessera/layer/upsample.hpp>

#include "on_device.hpp"

tessera::test::Net upsampling(tessera::RankGrid<tessera::test::Split> const& ranks) {
  using namespace tessera;
  return test::on_device(ranks, upsample_nearest3d(scale(2)), upsample_linear3d(size(20, 24, 28)));
}
