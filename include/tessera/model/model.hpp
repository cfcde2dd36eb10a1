// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/model/chain.hpp"

namespace tessera {

/// The extents of one sample of `Rank` spatial axes, by name; a missing axis is 1.
template <int Rank>
struct SampleShape {
  static_assert(1 <= Rank && Rank <= 3, "tessera: a sample has 1, 2 or 3 spatial axes");
  std::int64_t channels = 1;
  std::array<std::int64_t, static_cast<std::size_t>(Rank)> space{};

  Shape shape() const { return shape_of(1, space, channels); }
};

/// A network bound to its ranks. Binding makes layers, plans and communicators, but no memory: `allocate` does that.
/// A cheap handle: copies share the network.
///
/// One step: fill `input(n)`, call `forward`, fill `error(n)`, call `backward`, let an optimizer move the parameters.
template <class T, class Space = Kokkos::DefaultExecutionSpace>
class Model {
 public:
  using value_type = T;
  using execution_space = Space;

  Model(Ranks const& in, Ranks const& out, Partition const& sample, std::unique_ptr<Chain<T, Space>> layers)
      : shared_(std::make_shared<Shared>(in, out, sample, std::move(layers))) {
    Shared* const s = shared_.get();
    s->layers->for_each_parameter([s](Parameter<T, Space>& p) { s->parameters.push_back(&p); });
    for (Parameter<T, Space>* p : s->parameters) s->progress.watch(p->request());
  }

  Ranks const& input_ranks() const { return shared_->in; }
  Ranks const& output_ranks() const { return shared_->out; }
  Partition input_partition(std::int64_t samples) const { return shared_->sample.with_samples(samples); }
  Partition output_partition(std::int64_t samples) const { return shared_->layers->output(input_partition(samples)); }

  /// Memory for batches of up to `samples` samples, and initial parameters from the seed. Repeated calls with a larger
  /// batch keep the parameters.
  void allocate(std::int64_t samples, std::uint64_t seed = 0) {
    Shared& s = *shared_;
    require(samples >= 1, "Model::allocate", "the batch must hold at least one sample, not ", samples);
    if (s.capacity == 0)
      for (Parameter<T, Space>* p : s.parameters) p->allocate(seed);
    if (samples <= s.capacity) return;
    s.bound.clear();
    s.capacity = samples;
    Partition const in = input_partition(samples), out = output_partition(samples);
    s.layers->allocate(in);
    s.x.grow(hull(in.owned(rank()), s.layers->needs_input(in)).volume());
    s.y.grow(out.owned(rank()).volume());
    s.dy.grow(hull(out.owned(rank()), s.layers->needs_error(in)).volume());
  }

  std::int64_t capacity() const { return shared_->capacity; }

  /// This rank's part of a batch of `samples` samples: fill what it owns.
  Shard<T, Space> const& input(std::int64_t samples) { return bind(samples).x; }
  /// The network's output after forward.
  Shard<T, Space> const& output(std::int64_t samples) { return bind(samples).y; }
  /// The derivative of the loss by the output: fill what the rank owns before backward.
  Shard<T, Space> const& error(std::int64_t samples) { return bind(samples).dy; }

  void forward(std::int64_t samples, Pass pass = {}) {
    Bound const& b = bind(samples);
    pass.progress = &shared_->progress;
    shared_->layers->forward(pass, b.x, b.y);
  }

  /// Adds to the gradients. They are sums over this rank's data until the reductions, which this begins, are finished.
  void backward(std::int64_t samples, Pass pass = {}) {
    Bound const& b = bind(samples);
    pass.progress = &shared_->progress;
    shared_->layers->backward(pass, b.x, b.y, b.dy, nullptr, Accumulate::write);
  }

  /// In the order in which the network was written.
  std::vector<Parameter<T, Space>*> const& parameters() const { return shared_->parameters; }

  void zero_gradients() {
    for (Parameter<T, Space>* p : parameters()) p->zero_gradient(Space());
  }
  void finish_gradients() {
    for (Parameter<T, Space>* p : parameters()) p->finish_reduction();
  }

  void for_each_buffer(std::function<void(std::string const&, std::vector<double>&)> const& visit) const {
    shared_->layers->for_each_buffer(visit);
  }

  std::int64_t parameter_count() const {
    std::int64_t count = 0;
    for (Parameter<T, Space> const* p : parameters()) count += p->whole_count();
    return count;
  }

  /// One entry per layer, for a batch of `samples` samples. Needs no memory.
  std::vector<LayerInfo> describe(std::int64_t samples) const {
    std::vector<LayerInfo> list;
    shared_->layers->describe(input_partition(samples), false, list);
    if (!list.empty()) list.back().held_cells = output_partition(samples).owned(rank()).volume();
    return list;
  }
  /// The cells of the input in this rank's memory, halo included.
  std::int64_t held_input_cells(std::int64_t samples) const {
    Partition const in = input_partition(samples);
    return hull(in.owned(rank()), shared_->layers->needs_input(in)).volume();
  }

 private:
  struct Bound {
    Shard<T, Space> x, y, dy;
  };
  struct Shared {
    Shared(Ranks const& i, Ranks const& o, Partition const& p, std::unique_ptr<Chain<T, Space>> l)
        : in(i), out(o), sample(p), layers(std::move(l)) {}
    Ranks in, out;
    Partition sample;
    std::unique_ptr<Chain<T, Space>> layers;
    std::vector<Parameter<T, Space>*> parameters;
    Progress progress;
    std::int64_t capacity = 0;
    Storage<T, Space> x, y, dy;
    std::map<std::int64_t, Bound> bound;
  };

  int rank() const { return shared_->in.rank(); }

  Bound const& bind(std::int64_t samples) {
    Shared& s = *shared_;
    require(samples <= s.capacity, "Model", "a batch of ", samples, " samples needs allocate(", samples,
            ") first; memory is there for ", s.capacity);
    auto const [place, is_new] = s.bound.try_emplace(samples);
    if (is_new) {
      Partition const in = input_partition(samples), out = output_partition(samples);
      place->second = {Shard<T, Space>::on(s.x, in, rank(), s.layers->needs_input(in)),
                       Shard<T, Space>::on(s.y, out, rank(), {}),
                       Shard<T, Space>::on(s.dy, out, rank(), s.layers->needs_error(in))};
    }
    return place->second;
  }

  std::shared_ptr<Shared> shared_;
};

/// Binds layers, written in order, to ranks and to the shape of a sample. Every rank must call it.
///
/// Moves: nothing yet. Fails: with the layer's name and the extents when a layer does not fit its input.
template <class T, class Space = Kokkos::DefaultExecutionSpace, PartitionPolicy Policy, class... Specs>
Model<T, Space> sequential(RankGrid<Policy> const& ranks, Partition const& sample, Specs const&... specs) {
  require(sample.grid() == ranks.grid(), "sequential", "the partition must be over the grid of the ranks");
  LayerNames names;
  auto chain = std::make_unique<Chain<T, Space>>();
  chain->set_rank(ranks.rank());
  auto const end = detail::bind_chain(*chain, ranks, sample.with_samples(1), names, specs...);
  return Model<T, Space>(ranks, end, sample, std::move(chain));
}

template <class T, class Space = Kokkos::DefaultExecutionSpace, PartitionPolicy Policy, int Rank, class... Specs>
Model<T, Space> sequential(RankGrid<Policy> const& ranks, SampleShape<Rank> const& sample, Specs const&... specs) {
  return sequential<T, Space>(ranks, Partition(ranks.grid(), sample.shape()), specs...);
}

}  // namespace tessera
