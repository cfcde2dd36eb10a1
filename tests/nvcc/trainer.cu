// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// kernels: LossSum LossError SquaredDifference AbsoluteDifference AdamUpdate SgdUpdate SquareSum FillFlat

#include <tessera/io/source.hpp>
#include <tessera/optim/optimizer.hpp>
#include <tessera/train/predict.hpp>
#include <tessera/train/trainer.hpp>

#include "on_device.hpp"

namespace {

using namespace tessera;
using Data = io::MemorySource<float>;

template <class Method, class Loss>
double train(test::Net const& net, Data& data) {
  Trainer trainer{net, Method{}, Loss{}};
  return trainer.fit(data, data, {.clip_norm = 1.0}).back().validation_loss;
}

}  // namespace

double train_and_predict(test::Net const& net, Data& data) {
  return train<Adam, MeanSquaredError>(net, data) + train<Sgd, MeanAbsoluteError>(net, data) + predict(net, data, 1)[0];
}
