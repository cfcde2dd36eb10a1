// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/core/error.hpp"
#include "tessera/io/checkpoint_header.hpp"
#include "tessera/io/hdf5_attributes.hpp"
#include "tessera/io/training_state.hpp"
#include "tessera/io/weights.hpp"
#include "tessera/model/model.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::io {

namespace detail {

template <class Method>
std::string method_name() {
  if constexpr (requires { Method::name; })
    return Method::name;
  else
    return "own";
}

template <class Method>
std::string state_name(std::size_t i) {
  if constexpr (requires { Method::state_names[i]; })
    return Method::state_names[i];
  else
    return "state" + std::to_string(i + 1);
}

/// Weights, then what the optimizer keeps of each parameter: `optimizer/adam/mean/conv1.weight`.
template <class T, class Space, class Method>
std::vector<Stored<T, Space>> stored_training(Model<T, Space> const& model, Optimizer<T, Space, Method>& optimizer) {
  auto list = stored_weights(model);
  auto const& parameters = model.parameters();
  auto const& states = optimizer.states(parameters);
  for (std::size_t state = 0; state < static_cast<std::size_t>(Method::states); ++state)
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i]->trainable())
        list.push_back(
            {"optimizer/" + method_name<Method>() + "/" + state_name<Method>(state) + "/" + parameters[i]->name(), i,
             &states[i][state]});
  return list;
}

/// How many datasets hold the network itself.
template <class T, class Space>
std::int64_t dataset_count(Model<T, Space> const& model) {
  auto count = static_cast<std::int64_t>(model.parameters().size());
  model.for_each_buffer([&](std::string const&, std::vector<double>&) { ++count; });
  return count;
}

constexpr std::int64_t report_columns = 5;

inline void write_state(hid_t file, TrainingState const& state, std::string const& method, std::int64_t steps,
                        std::int64_t datasets) {
  std::vector<double> rows;
  for (EpochReport const& r : state.reports)
    rows.insert(rows.end(), {static_cast<double>(r.epoch), r.train_loss, r.validation_loss, r.seconds,
                             static_cast<double>(r.step)});
  write_dataset(file, "training/epochs", {static_cast<std::int64_t>(state.reports.size()), report_columns}, rows);
  Hdf5Handle const group(H5Gopen2(file, "training", H5P_DEFAULT), H5Gclose);
  write_text(group.get(), "library",
             tessera::detail::text(version.major_number, ".", version.minor_number, ".", version.patch_number));
  write_text(group.get(), "optimizer", method);
  write_number(group.get(), "optimizer_steps", steps);
  write_number(group.get(), "network_datasets", datasets);
  write_number(group.get(), "epochs_done", state.epoch);
  write_number(group.get(), "samples_done", state.samples_done);
  write_number(group.get(), "loss_sum", state.loss_sum);
  write_number(group.get(), "seconds", state.seconds);
  write_number(group.get(), "epoch_seconds", state.epoch_seconds);
  write_number(group.get(), "seed", state.seed);
  write_number(group.get(), "shuffle", std::int64_t{state.shuffle});
  write_number(group.get(), "batch", state.batch);
  write_number(group.get(), "samples", state.samples);
}

/// Reads what write_state wrote, and compares it with the run that is to go on.
inline TrainingState read_state(std::string const& who, std::string const& path, std::string const& method,
                                std::int64_t datasets, std::int64_t& steps) {
  Hdf5Attributes const given(who, path, "training");
  std::string const optimizer = given.text("optimizer");
  auto const held = given.number<std::int64_t>("network_datasets");
  require(held == datasets, who, "'", path, "' holds a network of ", held,
          " parameters and statistics, but this one has ", datasets, "; resume with the same network");
  require(optimizer == method, who, "'", path, "' was written with the optimizer '", optimizer, "', but this run has '",
          method, "'; resume with the same, or take the weights alone with load_weights");
  TrainingState state;
  state.epoch = given.number<std::int64_t>("epochs_done");
  state.samples_done = given.number<std::int64_t>("samples_done");
  state.loss_sum = given.number<double>("loss_sum");
  state.seconds = given.number<double>("seconds");
  state.epoch_seconds = given.number<double>("epoch_seconds");
  state.seed = given.number<std::uint64_t>("seed");
  state.shuffle = given.number<std::int64_t>("shuffle") != 0;
  state.batch = given.number<std::int64_t>("batch");
  state.samples = given.number<std::int64_t>("samples");
  steps = given.number<std::int64_t>("optimizer_steps");
  require(state.epoch >= 0 && state.samples_done >= 0 && state.samples_done <= state.samples && steps >= 0, who, "'",
          path, "' must say where the training stood, but says ", state.epoch, " epochs, ", state.samples_done, " of ",
          state.samples, " samples and ", steps, " steps; take another checkpoint");
  std::vector<double> const rows = ShardReader{who, path}.box<double>("training/epochs", {state.epoch, report_columns},
                                                                      {{0, state.epoch}, {0, report_columns}});
  for (auto row = rows.begin(); row != rows.end(); row += report_columns)
    state.reports.push_back(
        {static_cast<std::int64_t>(row[0]), row[1], row[2], row[3], static_cast<std::int64_t>(row[4])});
  return state;
}

}  // namespace detail

/// Writes all that a training needs in order to go on exactly: one HDF5 file with the parameters and running statistics
/// as save_weights writes them, the optimizer's numbers in the same form under `optimizer/`, and the state as
/// attributes of `training`. The file appears whole or not at all, also when the machine fails. Collective; the first
/// rank writes.
///
/// Moves: each shard to the first rank, one at a time. Fails: on every rank, if the file cannot be written.
template <class T, class Space, class Method>
void save_checkpoint(Model<T, Space> const& model, Optimizer<T, Space, Method>& optimizer, TrainingState const& state,
                     std::string const& path) {
  require(model.capacity() > 0, "save_checkpoint", "the network has no parameters yet; allocate it first");
  auto const write = [&](hid_t file) {
    detail::write_state(file, state, detail::method_name<Method>(), optimizer.steps(), detail::dataset_count(model));
  };
  detail::write_stored("save_checkpoint", model, path, detail::stored_training(model, optimizer), write, 16,
                       CheckpointHeader::size, [&](WholeFile& file) {
                         CheckpointHeader header;
                         require(make_header(file.descriptor(), header), "save_checkpoint", "'", path,
                                 "' must be readable as far as it was written (", std::strerror(errno), ")");
                         file.write(0, header.text());
                       });
}

/// How a checkpoint is read.
struct CheckpointChecks {
  bool finite = false;  ///< refuses values that are infinite, or not a number
};

/// A checkpoint that was read and checked, each rank its own shards, and not used yet.
template <class T, class Space, class Method>
class Checkpoint {
 public:
  /// For this network, which may be cut otherwise than it was, and its optimizer. Both stay as they are, but that a
  /// network without memory is allocated, with seed 0. Collective.
  ///
  /// Fails: on every rank, naming the file and the reason, if it is damaged, foreign, of a newer format, of another
  /// network, optimizer or precision.
  Checkpoint(Model<T, Space>& model, Optimizer<T, Space, Method>& optimizer, std::string const& path,
             CheckpointChecks const& checks = {}) {
    std::string const who = "load_checkpoint";
    Communicator<Mpi> const& ranks = model.input_ranks().world();
    CheckpointHeader header;
    agreed(ranks, [&] { header = read_header(who, path, ranks.rank() == 0); });
    bool const same = ranks.all_reduce(header.crc32, Reduce::min) == ranks.all_reduce(header.crc32, Reduce::max);
    require(same, who, "all ranks must see the same file '", path,
            "', but they do not; put it where all of them see it");
    if (model.capacity() == 0) model.allocate(1);
    list_ = detail::stored_training(model, optimizer);
    agreed(ranks, [&] {
      state_ = detail::read_state(who, path, detail::method_name<Method>(), detail::dataset_count(model), steps_);
      found_.emplace(model, list_, detail::ShardReader{who, path, checks.finite, true});
    });
  }

  /// Makes network and optimizer as they were, and says where the training stood.
  TrainingState set(Model<T, Space>& model, Optimizer<T, Space, Method>& optimizer) const {
    found_->set(model, list_);
    optimizer.set_steps(steps_);
    return state_;
  }

 private:
  std::vector<detail::Stored<T, Space>> list_;
  std::optional<detail::ReadShards<T, Space>> found_;
  TrainingState state_;
  std::int64_t steps_ = 0;
};

/// Reads what save_checkpoint wrote into a network and its optimizer, under any decomposition and number of ranks.
/// Returns where the training stood. Collective. Fails: as Checkpoint does; network and optimizer are then as they
/// were.
template <class T, class Space, class Method>
TrainingState load_checkpoint(Model<T, Space>& model, Optimizer<T, Space, Method>& optimizer, std::string const& path,
                              CheckpointChecks const& checks = {}) {
  return Checkpoint(model, optimizer, path, checks).set(model, optimizer);
}

}  // namespace tessera::io
