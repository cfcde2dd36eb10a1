// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/layer/parameter.hpp"
#include "tessera/op/reduce.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/shard.hpp"

namespace tessera {

namespace op {

/// v = momentum v + g, p -= rate v (or rate (g + momentum v), Nesterov's form), as PyTorch.
template <class T>
struct SgdUpdate {
  T* value;
  T const* gradient;
  T* velocity;
  T rate, momentum, decay, scale;
  bool nesterov, first;
  TESSERA_HD void operator()(std::int64_t i) const {
    T const g = scale * gradient[i] + decay * value[i];
    if (momentum == T(0)) {
      value[i] -= rate * g;
      return;
    }
    T const v = first ? g : momentum * velocity[i] + g;
    velocity[i] = v;
    value[i] -= rate * (nesterov ? g + momentum * v : v);
  }
};

template <class T>
struct AdamUpdate {
  T* value;
  T const* gradient;
  T* mean;
  T* square;
  T rate, complement1, complement2, epsilon, decay, scale;  ///< complements: 1 - beta, rounded once
  T correction1, correction2;                               ///< 1 - beta1^t and sqrt(1 - beta2^t)
  TESSERA_HD void operator()(std::int64_t i) const {
    T const g = scale * gradient[i] + decay * value[i];
    mean[i] += complement1 * (g - mean[i]);
    square[i] += complement2 * (g * g - square[i]);
    value[i] -= rate / correction1 * mean[i] / (Kokkos::sqrt(square[i]) / correction2 + epsilon);
  }
};

/// sums[0] += x^2 over a flat array, seen as one row per element.
template <class T>
struct SquareSum {
  T const* values;
  TESSERA_HD void operator()(std::int64_t const at[4], Interval, double* sums) const {
    double const v = static_cast<double>(values[at[3]]);
    sums[0] += v * v;
  }
};

}  // namespace op

/// Stochastic gradient descent with momentum, as PyTorch's.
struct Sgd {
  double rate = 1e-2;
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;

  /// How many numbers per parameter element the optimizer remembers.
  static constexpr int states = 1;
  /// What files call it, and these numbers.
  static constexpr char const* name = "sgd";
  static constexpr char const* state_names[] = {"velocity"};

  template <class T, class Space>
  void update(Space const& space, Parameter<T, Space> const& p, std::vector<Storage<T, Space>> const& state,
              std::int64_t step, double factor, double scale) const {
    op::SgdUpdate<T> const body{p.value(),
                                p.gradient(),
                                state[0].data(),
                                static_cast<T>(rate * factor),
                                static_cast<T>(momentum),
                                static_cast<T>(weight_decay),
                                static_cast<T>(scale),
                                nesterov,
                                step == 0};
    run("tessera::sgd", space, p.count(), body);
  }
};

/// Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015; as PyTorch's.
struct Adam {
  double rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;

  static constexpr int states = 2;
  static constexpr char const* name = "adam";
  static constexpr char const* state_names[] = {"mean", "square"};

  template <class T, class Space>
  void update(Space const& space, Parameter<T, Space> const& p, std::vector<Storage<T, Space>> const& state,
              std::int64_t step, double factor, double scale) const {
    double const t = static_cast<double>(step + 1);
    op::AdamUpdate<T> const body{p.value(),
                                 p.gradient(),
                                 state[0].data(),
                                 state[1].data(),
                                 static_cast<T>(rate * factor),
                                 static_cast<T>(1.0 - beta1),
                                 static_cast<T>(1.0 - beta2),
                                 static_cast<T>(epsilon),
                                 static_cast<T>(weight_decay),
                                 static_cast<T>(scale),
                                 static_cast<T>(1.0 - std::pow(beta1, t)),
                                 static_cast<T>(std::sqrt(1.0 - std::pow(beta2, t)))};
    run("tessera::adam", space, p.count(), body);
  }
};

/// The Euclidean norm of all gradients together, each shard counted once. The same on every rank. Collective over
/// `ranks`, all ranks of the model, if any parameter is sharded: if fewer of them hold its replicas.
template <class T, class Space>
double gradient_norm(std::vector<Parameter<T, Space>*> const& parameters, Communicator<Mpi> const& ranks) {
  op::Sums<Space> sums;
  double replicated = 0.0, sharded = 0.0;
  bool any_sharded = false;
  for (Parameter<T, Space> const* p : parameters) {
    if (!p->trainable()) continue;
    Box const line{{{0, 1}, {0, 1}, {0, 1}, {0, p->count()}, {0, 1}}};
    double const square = sums.over(Space(), line, 1, op::SquareSum<T>{p->gradient()})[0];
    bool const is_sharded = p->replicas().size() != ranks.size();  // the same on every rank, whatever its shard holds
    if (!is_sharded)
      replicated += square;
    else if (p->counted_here())
      sharded += square;
    any_sharded = any_sharded || is_sharded;
  }
  return std::sqrt(replicated + (any_sharded ? ranks.all_reduce(sharded) : 0.0));
}

/// Moves a model's parameters along their gradients. Holds the optimizer's state, sharded like the parameters.
template <class T, class Space, class Method>
class Optimizer {
 public:
  explicit Optimizer(Method method) : method_(method) {}

  /// One step: awaits the sums of the gradients, takes `gradient_scale` times them, scales these so that their norm is
  /// at most `clip_norm` (0: no limit), and moves each parameter. Returns the norm before clipping if there is a limit,
  /// else 0. The gradients themselves stay as they are.
  double step(std::vector<Parameter<T, Space>*> const& parameters, Communicator<Mpi> const& ranks, double factor = 1.0,
              double clip_norm = 0.0, double gradient_scale = 1.0) {
    for (Parameter<T, Space>* p : parameters) p->finish_reduction();
    double norm = 0.0, scale = gradient_scale;
    if (clip_norm > 0.0) {
      norm = gradient_scale * gradient_norm(parameters, ranks);
      if (norm > clip_norm) scale = gradient_scale * (clip_norm / norm);
    }
    if (states_.empty()) allocate(parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i]->trainable())
        method_.template update<T, Space>(space_, *parameters[i], states_[i], steps_, factor, scale);
    space_.fence("tessera::Optimizer");
    ++steps_;
    return norm;
  }

  std::int64_t steps() const { return steps_; }
  Method const& method() const { return method_; }

  /// What it remembers: for each parameter `Method::states` lists, stored as the parameter is; of a frozen parameter,
  /// empty ones. Zeros before the first step.
  std::vector<std::vector<Storage<T, Space>>> const& states(std::vector<Parameter<T, Space>*> const& parameters) {
    if (states_.empty()) allocate(parameters);
    return states_;
  }
  /// Goes on as after so many steps, with the states that the caller sets.
  void set_steps(std::int64_t steps) { steps_ = steps; }

 private:
  void allocate(std::vector<Parameter<T, Space>*> const& parameters) {
    for (Parameter<T, Space> const* p : parameters) {
      states_.emplace_back();
      for (int i = 0; i < Method::states; ++i) {
        std::int64_t const count = p->trainable() ? p->count() : 0;
        Storage<T, Space> state(count);
        fill_flat(space_, state.data(), count, T(0));
        states_.back().push_back(state);
      }
    }
  }

  Method method_;
  Space space_;
  std::vector<std::vector<Storage<T, Space>>> states_;
  std::int64_t steps_ = 0;
};

}  // namespace tessera
