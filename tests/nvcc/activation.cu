// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// kernels: Apply ApplySlope ReluFunction LeakyReluFunction TanhFunction Dropout SigmoidFunction
// kernels: SiluFunction EluFunction GeluFunction GeluTanhFunction Prelu PreluBackward PreluSlopeSums AddTo

#include <tessera/layer/activation.hpp>

#include "on_device.hpp"

tessera::test::Net activations(tessera::RankGrid<tessera::test::Split> const& ranks) {
  using namespace tessera;
  return test::on_device(ranks, relu(), leaky_relu(0.3), scaled_tanh(1.2), dropout(0.5), sigmoid(), silu(), elu(0.5),
                         gelu(), gelu(tanh_form), prelu());
}
