// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Everything but HDF5, which is a component of its own: tessera/io/hdf5.hpp.
#include "tessera/comm/environment.hpp"
#include "tessera/comm/rank_grid.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/version.hpp"
#include "tessera/exchange/exchange.hpp"
#include "tessera/exchange/halo.hpp"
#include "tessera/io/batch.hpp"
#include "tessera/io/source.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/batch_norm.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/flatten.hpp"
#include "tessera/layer/pool.hpp"
#include "tessera/layer/redistribute.hpp"
#include "tessera/model/model.hpp"
#include "tessera/model/residual.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/optim/schedule.hpp"
#include "tessera/partition/distribution.hpp"
#include "tessera/tensor/tensor.hpp"
#include "tessera/train/loss.hpp"
#include "tessera/train/trainer.hpp"
