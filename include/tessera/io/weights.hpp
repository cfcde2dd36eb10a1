// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/core/error.hpp"
#include "tessera/io/hdf5_draft.hpp"
#include "tessera/io/read_shard.hpp"
#include "tessera/io/shards.hpp"
#include "tessera/model/model.hpp"

namespace tessera::io {

namespace detail {

/// Numbers that are stored like a parameter, and their name in a file.
template <class T, class Space>
struct Stored {
  std::string name;
  std::size_t parameter;  ///< its place in the model
  Storage<T, Space> const* numbers;
};

template <class T, class Space>
std::vector<Stored<T, Space>> stored_weights(Model<T, Space> const& model) {
  std::vector<Stored<T, Space>> list;
  for (Parameter<T, Space> const* p : model.parameters()) list.push_back({p->name(), list.size(), &p->storage()});
  return list;
}

/// Writes a file of these, and of running statistics. `small` adds `small_count` things to it, and finish(file so far)
/// has the last word. Collective.
template <class T, class Space>
void write_stored(std::string const& who, Model<T, Space> const& model, std::string const& path,
                  std::vector<Stored<T, Space>> const& list, std::function<void(hid_t)> const& small,
                  std::size_t small_count, std::int64_t user_block, std::function<void(WholeFile&)> const& finish) {
  Communicator<Mpi> const& ranks = model.input_ranks().world();
  require(model.capacity() > 0, who, "the network has no parameters yet; allocate it first");
  auto const& parameters = model.parameters();
  std::unique_ptr<Hdf5Draft<T>> draft;  // on the first rank
  agreed(ranks, [&] {
    if (ranks.rank() != 0) return;
    std::vector<Hdf5Promise> promises;
    for (auto const& each : list) promises.push_back({each.name, parameters[each.parameter]->file_shape()});
    std::size_t count = small_count;
    model.for_each_buffer([&](std::string const&, std::vector<double>&) { ++count; });
    auto const write_small = [&](hid_t file) {
      model.for_each_buffer([&](std::string const& name, std::vector<double>& values) {
        write_dataset(file, name, {static_cast<std::int64_t>(values.size())}, values);
      });
      small(file);
    };
    draft = std::make_unique<Hdf5Draft<T>>(who, path, promises, write_small, count, user_block);
  });
  Assembly<T, Space> const assemble(model);
  std::string failure;  // of the first rank, which takes what the others send all the same
  for (auto const& each : list)
    assemble(each.parameter, *parameters[each.parameter], *each.numbers, [&](std::vector<T> const& whole) {
      if (!failure.empty()) return;
      try {
        draft->fill(whole);
      } catch (std::exception const& error) {
        failure = error.what();
      }
    });
  agreed(ranks, [&] {
    if (ranks.rank() != 0) return;
    std::unique_ptr<Hdf5Draft<T>> const last = std::move(draft);  // gone before the others hear of a failure
    if (!failure.empty()) throw Error(failure);
    finish(last->file());
    last->commit();
  });
}

/// This rank's shards of these, then the running statistics, read from the file and checked, and nothing set.
template <class T, class Space>
struct ReadShards {
  std::vector<std::vector<T>> shards;
  std::vector<std::vector<double>> buffers;

  ReadShards(Model<T, Space> const& model, std::vector<Stored<T, Space>> const& list, ShardReader const& reader) {
    require(model.capacity() > 0, reader.who, "the network has no parameters yet; allocate it first");
    for (auto const& each : list)
      shards.push_back(reader.template shard<T>(each.name, *model.parameters()[each.parameter]));
    model.for_each_buffer([&](std::string const& name, std::vector<double>& values) {
      auto const count = static_cast<std::int64_t>(values.size());
      buffers.push_back(reader.template box<double>(name, {count}, {{0, count}}));
    });
  }

  void set(Model<T, Space> const& model, std::vector<Stored<T, Space>> const& list) const {
    auto next = shards.begin();
    for (auto const& each : list) model.parameters()[each.parameter]->set(*next++, *each.numbers);
    auto buffer = buffers.begin();
    model.for_each_buffer([&](std::string const&, std::vector<double>& values) { values = *buffer++; });
  }
};

}  // namespace detail

/// Writes parameters and running statistics into one HDF5 file, each whole, under its name and in PyTorch's order of
/// axes. The file appears whole or not at all. Collective; the first rank writes.
///
/// Moves: each shard to the first rank, one parameter at a time; the others need no more memory than for a shard.
/// Fails: on every rank, if the file cannot be written.
template <class T, class Space>
void save_weights(Model<T, Space> const& model, std::string const& path) {
  detail::write_stored(
      "save_weights", model, path, detail::stored_weights(model), [](hid_t) {}, 0, 0, [](WholeFile&) {});
}

/// What load_weights makes sure of besides names and shapes.
struct WeightChecks {
  bool finite = false;  ///< no value is infinite, or not a number
};

/// Reads what save_weights wrote, or the weights of a checkpoint, under any decomposition: each rank its own shards.
/// The model must be allocated. Collective. Fails: on every rank, naming file and dataset, if something is missing, has
/// another shape, or holds no floating-point numbers; the model is then as it was.
template <class T, class Space>
void load_weights(Model<T, Space> const& model, std::string const& path, WeightChecks const& checks = {}) {
  auto const list = detail::stored_weights(model);
  std::unique_ptr<detail::ReadShards<T, Space>> found;
  agreed(model.input_ranks().world(), [&] {
    detail::ShardReader const reader{"load_weights", path, checks.finite, false};
    found = std::make_unique<detail::ReadShards<T, Space>>(model, list, reader);
  });
  found->set(model, list);
}

}  // namespace tessera::io
