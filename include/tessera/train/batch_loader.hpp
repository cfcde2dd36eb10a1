// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/core/error.hpp"
#include "tessera/io/batch.hpp"
#include "tessera/io/source.hpp"
#include "tessera/model/model.hpp"
#include "tessera/train/loss.hpp"

namespace tessera {

/// The micro-batches of an epoch: the samples of `order` from `first` on in batches, and these in micro-batches.
struct MicroBatches {
  std::vector<std::int64_t> order;
  std::int64_t first = 0;
  std::int64_t batch = 1;
  std::int64_t micro = 1;

  std::int64_t per_batch() const { return ceil_div(batch, micro); }
  std::int64_t count() const {
    std::int64_t const left = static_cast<std::int64_t>(order.size()) - first;
    return left / batch * per_batch() + ceil_div(left % batch, micro);
  }
  std::vector<std::int64_t> operator()(std::int64_t k) const {
    std::int64_t const start = first + k / per_batch() * batch,
                       end = std::min(start + batch, static_cast<std::int64_t>(order.size())),
                       from = start + k % per_batch() * micro;
    return {order.begin() + from, order.begin() + std::min(from + micro, end)};
  }
};

/// Brings micro-batches of a source to the ranks: a model's input, and the target that a loss wants.
template <class T, class Space>
class BatchLoader {
 public:
  explicit BatchLoader(Model<T, Space> model) : model_(std::move(model)) {}

  /// A read that fails anywhere fails on every rank.
  /// Fails: unless the source has samples of the network's input and of the loss's target.
  template <class Data, class Objective>
  void load(Data& data, Objective const& loss, std::vector<std::int64_t> const& samples,
            std::optional<std::uint64_t> epoch) {
    auto const n = static_cast<std::int64_t>(samples.size());
    Shard<T, Space> const& input = model_.input(n);
    Targets const targets = targets_of(model_, loss, n);
    check(data, targets, model_.output_partition(n).shape());
    target_box_ = targets.box(world().rank());
    target_.reform(targets.partition, world().rank(), target_box_);
    if constexpr (io::BatchSource<Data>) {
      data.fetch(request(model_, loss, samples, epoch));
      reader_.take(data, io::Part::input, input, input.owned());
      reader_.take(data, io::Part::target, target_, target_box_);
    } else {
      auto const sample = [&](std::int64_t i) { return samples[static_cast<std::size_t>(i)]; };
      agreed(world(), [&] {
        reader_.read(data, io::Part::input, input, input.owned(), sample);
        reader_.read(data, io::Part::target, target_, target_box_, sample);
      });
    }
  }

  /// Tells a source that can make use of it which micro-batches come next.
  template <class Data, class Objective>
  void expect(Data& data, Objective const& loss, MicroBatches batches, std::optional<std::uint64_t> epoch) const {
    if constexpr (io::BatchSource<Data>) {
      std::int64_t const count = batches.count();
      auto const shared = std::make_shared<MicroBatches const>(std::move(batches));
      data.expect(count, [model = model_, loss, shared, epoch](std::int64_t k) {
        return request(model, loss, (*shared)(k), epoch);
      });
    }
  }

  Tile<T> const& target() const { return target_.tile(); }
  /// The cells of the target that this rank has.
  Box const& target_box() const { return target_box_; }

 private:
  struct Targets {
    Partition partition;
    bool all_channels = false;

    Box box(std::int64_t rank) const {
      Box own = partition.owned(rank);
      if (all_channels) own[AxisId::channel] = {0, partition.shape().channel};
      return own;
    }
  };

  Communicator<Mpi> const& world() const { return model_.input_ranks().world(); }

  template <class Objective>
  static Targets targets_of(Model<T, Space> const& model, Objective const& loss, std::int64_t n) {
    Partition const out = model.output_partition(n);
    LossTarget const wanted = loss.target(out.shape());
    require(wanted.shape.with_channels(0) == out.shape().with_channels(0), "Trainer",
            "the loss asks for targets of shape ", wanted.shape,
            ", which must have the samples and the space of the network's output ", out.shape());
    return {out.scaled_to(wanted.shape), wanted.all_channels};
  }

  template <class Data>
  void check(Data& data, Targets const& targets, Shape const& out) const {
    Shape const wanted = targets.partition.shape(),
                given = io::shape_of(data, io::Part::target).with_samples(wanted.sample);
    if (wanted == out)
      require(given == wanted, "Trainer", "the network's output ", out, " must have the shape of the targets, ", given);
    else
      require(given == wanted, "Trainer", "for the network's output ", out, " the loss needs targets of shape ", wanted,
              ", but the source has ", given);
    io::check_input("Trainer", data, model_.input_partition(wanted.sample).shape());
  }

  template <class Objective>
  static io::BatchRequest request(Model<T, Space> const& model, Objective const& loss,
                                  std::vector<std::int64_t> samples, std::optional<std::uint64_t> epoch) {
    auto const n = static_cast<std::int64_t>(samples.size());
    return {std::move(samples), epoch,
            [partition = model.input_partition(n)](std::int64_t rank) { return partition.owned(rank); },
            [targets = targets_of(model, loss, n)](std::int64_t rank) { return targets.box(rank); }};
  }

  Model<T, Space> model_;
  Shard<T, Space> target_;
  Box target_box_;
  io::BatchReader<T, Space> reader_;
};

}  // namespace tessera
