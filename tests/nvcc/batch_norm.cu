// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// kernels: ChannelSum ChannelSquares Normalise NormErrorSums NormaliseBackward AddTo

#include <tessera/layer/batch_norm.hpp>
#include <tessera/layer/group_norm.hpp>

#include "on_device.hpp"

tessera::test::Net norms(tessera::RankGrid<tessera::test::Split> const& ranks) {
  using namespace tessera;
  return test::on_device(ranks, batch_norm(), group_norm(2), instance_norm({.track_running = true}),
                         layer_norm({.affine = false}));
}
