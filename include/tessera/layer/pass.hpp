// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/comm/mpi.hpp"
#include "tessera/op/geometry.hpp"
#include "tessera/op/random.hpp"
#include "tessera/partition/partition.hpp"
#include "tessera/tensor/tile.hpp"

namespace tessera {

enum class Mode { training, inference };

/// Operations under way that only move on when somebody calls MPI. Kernels call it between planes.
class Progress {
 public:
  void operator()() {
    for (Request<Mpi>* request : pending_)
      if (request->pending()) request->test();
  }
  void watch(Request<Mpi>& request) { pending_.push_back(&request); }
  void forget(Request<Mpi>& request) { std::erase(pending_, &request); }

 private:
  std::vector<Request<Mpi>*> pending_;
};

/// What one forward or backward pass of a model is given. Equal seeds, steps and layer names draw equal random numbers.
struct Pass {
  Mode mode = Mode::training;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::int64_t first_sample = 0;   ///< global index, within the batch, of a micro-batch's first sample
  bool reduce_gradients = true;    ///< false while micro-batches accumulate
  double running_momentum = -1.0;  ///< overrides the momentum of running statistics, unless negative
  Progress* progress = nullptr;

  void poll() const {
    if (progress != nullptr) (*progress)();
  }
};

/// Lets what is under way make progress while a kernel runs.
class Watched {
 public:
  Watched(Pass const& pass, Request<Mpi>& request) : progress_(pass.progress), request_(request) {
    if (progress_ != nullptr) progress_->watch(request_);
  }
  Watched(Watched const&) = delete;
  Watched& operator=(Watched const&) = delete;
  ~Watched() {
    if (progress_ != nullptr) progress_->forget(request_);
  }

 private:
  Progress* progress_;
  Request<Mpi>& request_;
};

/// What kernels call between planes: one type for all layers, so that a kernel is instantiated once.
struct PollPass {
  Pass const& pass;
  void operator()() const { pass.poll(); }
};

/// What an operation computes in a forward pass: outputs `box`, from x, which is defined on all that they read.
template <class T, class Space>
struct ForwardPass {
  Pass const& pass;
  Space space;
  Tile<T const> x;
  Tile<T> y;
  Box box;
  Shape input;   ///< global extents
  Shape output;  ///< global extents
  std::vector<T const*> parameters;
  Tile<std::int32_t> notes;  ///< what the operation keeps per output for its backward pass, if it keeps anything
};

/// What an operation computes in a backward pass: dx on inputs `box`, from dy, which is defined on all outputs that
/// read them; x and y are as forward left them.
template <class T, class Space>
struct BackwardPass {
  Pass const& pass;
  Space space;
  Tile<T const> x;
  Tile<T const> y;
  Tile<T const> dy;
  Tile<T> dx;
  Box box;
  Accumulate accumulate;
  Shape input;
  Shape output;
  std::vector<T const*> parameters;
  Tile<std::int32_t const> notes;
};

/// What an operation adds to its parameters' gradients: the sum over outputs `box`, all of them this rank's.
template <class T, class Space>
struct ParameterPass {
  Pass const& pass;
  Space space;
  Tile<T const> x;
  Tile<T const> dy;
  Box box;
  Shape input;
  Shape output;
  std::vector<T*> gradients;
};

}  // namespace tessera
