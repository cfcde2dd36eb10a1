// expect: tessera: a loss needs `LossTarget target(Shape const&) const` and `LossPart operator()(LossPass<T, Space> const&) const`
// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "tessera/train/trainer.hpp"

struct Custom {
#ifdef TESSERA_CONTROL
  tessera::LossTarget target(tessera::Shape const& prediction) const { return {prediction}; }
#endif
  template <class T, class Space>
  tessera::LossPart operator()(tessera::LossPass<T, Space> const&) const {
    return {};
  }
};

void train(tessera::Model<float> const& net) { tessera::Trainer trainer{net, tessera::Sgd{}, Custom{}}; }
