// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/layer/layer.hpp"
#include "tessera/model/binding.hpp"

namespace tessera {

/// Layers one after the other. Owns the tensors between them: each is allocated with the box that its reader wants to
/// hold, the writer fills the owned part, and it stays as the retained activation. A tensor that the next one contains
/// lies there. Error signals take turns in two buffers.
template <class T, class Space>
class Chain : public Layer<T, Space> {
 public:
  void append(std::unique_ptr<Layer<T, Space>> layer) { layers_.push_back(std::move(layer)); }
  std::size_t size() const { return layers_.size(); }
  /// Whether training moves any parameter.
  bool learns() const { return first_that_learns() < layers_.size(); }

  Partition output(Partition const& input) const override {
    Partition partition = input;
    for (auto const& layer : layers_) partition = layer->output(partition);
    return partition;
  }
  Box needs_input(Partition const& input) const override {
    return layers_.empty() ? Box{} : layers_.front()->needs_input(input);
  }
  Box needs_error(Partition const& input) const override {
    if (layers_.empty()) return {};
    Partition partition = input;
    for (std::size_t i = 0; i + 1 < layers_.size(); ++i) partition = layers_[i]->output(partition);
    return layers_.back()->needs_error(partition);
  }
  bool reads_output() const override { return !layers_.empty() && layers_.back()->reads_output(); }

  void allocate(Partition const& input) override {
    bound_.clear();
    activations_.assign(between(), {});
    auto const places = places_of(input);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      Partition const& partition = i == 0 ? input : places[i - 1].partition;
      layers_[i]->allocate(partition);
      if (i == between()) break;
      if (!places[i].within_next) activations_[i].grow(places[i].held.volume());
      errors_[i % 2].grow(hull(places[i].partition.owned(rank_), layers_[i]->needs_error(partition)).volume());
    }
  }

  void forward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y) override {
    Bound const& bound = bind(x.partition());
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      layers_[i]->forward(pass, i == 0 ? x : bound.activation[i - 1], i < between() ? bound.activation[i] : y);
      pass.poll();
    }
  }

  void backward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y, Shard<T, Space> const& dy,
                Shard<T, Space> const* dx, Accumulate accumulate) override {
    Bound const& bound = bind(x.partition());
    std::size_t const last = dx != nullptr ? 0 : first_that_learns();
    for (std::size_t i = layers_.size(); i-- > last;) {
      Shard<T, Space> const* const error = i > last ? &bound.error[i - 1] : i == 0 ? dx : nullptr;
      layers_[i]->backward(pass, i == 0 ? x : bound.activation[i - 1], i < between() ? bound.activation[i] : y,
                           i < between() ? bound.error[i] : dy, error, i > 0 ? Accumulate::write : accumulate);
      if (pass.reduce_gradients) layers_[i]->for_each_parameter([](Parameter<T, Space>& p) { p.start_reduction(); });
      pass.poll();
    }
  }

  void for_each_parameter(std::function<void(Parameter<T, Space>&)> const& visit) override {
    for (auto const& layer : layers_) layer->for_each_parameter(visit);
  }
  void for_each_buffer(std::function<void(std::string const&, std::vector<double>&)> const& visit) override {
    for (auto const& layer : layers_) layer->for_each_buffer(visit);
  }
  void describe(Partition const& input, bool needs_dx, std::vector<LayerInfo>& out) const override {
    auto const places = places_of(input);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      layers_[i]->describe(i == 0 ? input : places[i - 1].partition, needs_dx, out);
      needs_dx = needs_dx || learns(*layers_[i]);
      if (i < between())  // the last one writes to its container's tensor
        out.back().held_cells = places[i].within_next ? 0 : places[i].held.volume();
    }
  }

  void set_rank(int rank) { rank_ = rank; }

 private:
  struct Bound {
    std::vector<Shard<T, Space>> activation;
    std::vector<Shard<T, Space>> error;
  };

  /// A tensor between two layers.
  struct Place {
    Partition partition;
    Box held;
    bool within_next = false;  ///< it is the first channels of the tensor after the next layer
  };
  std::vector<Place> places_of(Partition const& input) const {
    std::vector<Place> places(between());
    for (std::size_t i = 0; i < places.size(); ++i) {
      Place& place = places[i];
      place.partition = layers_[i]->output(i == 0 ? input : places[i - 1].partition);
      place.held = hull(place.partition.owned(rank_), layers_[i + 1]->needs_input(place.partition));
      if (i > 0 && places[i - 1].within_next) place.held = hull(place.held, places[i - 1].held);
      place.within_next = i + 1 < places.size() && layers_[i + 1]->contains_input(place.partition);
    }
    return places;
  }

  std::size_t between() const { return layers_.empty() ? 0 : layers_.size() - 1; }

  static bool learns(Layer<T, Space>& layer) {
    bool found = false;
    layer.for_each_parameter([&](Parameter<T, Space> const& p) { found = found || p.trainable(); });
    return found;
  }
  std::size_t first_that_learns() const {
    std::size_t i = 0;
    while (i < layers_.size() && !learns(*layers_[i])) ++i;
    return i;
  }

  Bound const& bind(Partition const& input) {
    auto const [place, is_new] = bound_.try_emplace(input.shape().sample);
    Bound& bound = place->second;
    if (!is_new) return bound;
    auto const places = places_of(input);
    bound.activation.resize(between());
    for (std::size_t i = between(); i-- > 0;)
      bound.activation[i] = places[i].within_next
                                ? bound.activation[i + 1].slice(places[i].partition, rank_, 0)
                                : Shard<T, Space>::on(activations_[i], places[i].partition, rank_, places[i].held);
    for (std::size_t i = 0; i < between(); ++i)
      bound.error.push_back(Shard<T, Space>::on(errors_[i % 2], places[i].partition, rank_,
                                                layers_[i]->needs_error(i == 0 ? input : places[i - 1].partition)));
    return bound;
  }

  int rank_ = 0;
  std::vector<std::unique_ptr<Layer<T, Space>>> layers_;
  std::vector<Storage<T, Space>> activations_;
  std::array<Storage<T, Space>, 2> errors_;
  std::map<std::int64_t, Bound> bound_;
};

namespace detail {

/// Binds specs one after the other into a chain; returns the ranks that work at its end.
template <class T, class Space, PartitionPolicy Policy>
RankGrid<Policy> bind_chain(Chain<T, Space>&, RankGrid<Policy> const& ranks, Partition const&, LayerNames&) {
  return ranks;
}

template <class T, class Space, PartitionPolicy Policy, class Spec, class... Rest>
auto bind_chain(Chain<T, Space>& chain, RankGrid<Policy> const& ranks, Partition const& input, LayerNames& names,
                Spec const& spec, Rest const&... rest) {
  Partition output = input;
  if (auto layer = bind_layer<T, Space>(ranks, input, spec, names)) {  // an optional part may be absent
    output = layer->output(input);
    chain.append(std::move(layer));
  }
  return bind_chain(chain, ranks_after(ranks, spec), output, names, rest...);
}

template <class T, class Space, PartitionPolicy Policy, class... Specs>
auto bind_chain(Chain<T, Space>& chain, RankGrid<Policy> const& ranks, Partition const& input, LayerNames& names,
                std::tuple<Specs...> const& specs) {
  return std::apply([&](auto const&... spec) { return bind_chain(chain, ranks, input, names, spec...); }, specs);
}

}  // namespace detail

/// Specs one after the other as one spec.
template <class... Specs>
struct SequenceSpec {
  std::tuple<Specs...> specs;

  template <PartitionPolicy Policy>
  auto next(RankGrid<Policy> const& ranks) const {
    return std::apply([&](auto const&... spec) { return after(ranks, spec...); }, specs);
  }

  template <class T, class Space, PartitionPolicy Policy>
  std::unique_ptr<Layer<T, Space>> bind_parts(RankGrid<Policy> const& ranks, Partition const& input,
                                              LayerNames& names) const {
    auto chain = std::make_unique<Chain<T, Space>>();
    chain->set_rank(ranks.rank());
    detail::bind_chain(*chain, ranks, input, names, specs);
    return chain;
  }

 private:
  template <PartitionPolicy Policy>
  static auto after(RankGrid<Policy> const& ranks) {
    return ranks;
  }
  template <PartitionPolicy Policy, class Spec, class... Rest>
  static auto after(RankGrid<Policy> const& ranks, Spec const& spec, Rest const&... rest) {
    return after(detail::ranks_after(ranks, spec), rest...);
  }
};

/// Names a part of a network: `auto block = sequence(conv3d<3>(16, same), relu());`
template <class... Specs>
SequenceSpec<Specs...> sequence(Specs const&... specs) {
  return {{specs...}};
}

}  // namespace tessera
