// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/layer/parameter.hpp"
#include "tessera/layer/pass.hpp"
#include "tessera/partition/partition.hpp"
#include "tessera/tensor/shard.hpp"

namespace tessera {

/// What a summary says of a layer, for one batch size.
struct LayerInfo {
  std::string name;
  std::string what;
  Partition output;
  std::int64_t parameters = 0;       ///< of the whole layer
  std::int64_t halo_cells = 0;       ///< this rank receives in a forward pass
  std::int64_t halo_cells_back = 0;  ///< this rank receives in a backward pass
  double flops = 0.0;                ///< of one forward pass over the whole batch, a multiply-add as two
  bool keeps_data_gradient = true;   ///< false for the first layer with parameters that nothing before needs
  std::int64_t held_cells = 0;  ///< of the output in this rank's memory, halo included; 0 if it has none of its own
};

/// A layer bound to its ranks and shapes: typed when it was made, erased when it runs. It owns its parameters and its
/// exchanges; the container owns the tensors between layers. All members that take a batch's input partition accept any
/// number of samples up to the one given to allocate().
template <class T, class Space>
class Layer {
 public:
  virtual ~Layer() = default;

  /// How the output of a batch is shaped and owned.
  virtual Partition output(Partition const& input) const = 0;
  /// What this rank's input tensor must hold beside the owned box.
  virtual Box needs_input(Partition const&) const { return {}; }
  /// What this rank's output error must hold beside the owned box.
  virtual Box needs_error(Partition const&) const { return {}; }
  /// Whether backward reads the layer's output tensor.
  virtual bool reads_output() const { return false; }

  /// Whether the output's first channels are the input itself, cell by cell on each rank. The input may then lie there,
  /// and forward leaves it.
  virtual bool contains_input(Partition const&) const { return false; }

  /// Memory for batches up to that of `input`.
  virtual void allocate(Partition const& input) = 0;

  virtual void forward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y) = 0;
  /// Adds to the parameters' gradients, and writes or adds the data gradient, unless dx is null.
  virtual void backward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y, Shard<T, Space> const& dy,
                        Shard<T, Space> const* dx, Accumulate accumulate) = 0;

  virtual void for_each_parameter(std::function<void(Parameter<T, Space>&)> const&) {}
  /// State that is neither parameter nor activation, such as running statistics: equal on all ranks.
  virtual void for_each_buffer(std::function<void(std::string const&, std::vector<double>&)> const&) {}
  virtual void describe(Partition const& input, bool needs_dx, std::vector<LayerInfo>& out) const = 0;
};

}  // namespace tessera
