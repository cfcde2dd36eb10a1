// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/exchange/exchange.hpp"
#include "tessera/model/chain.hpp"

namespace tessera {

/// What becomes of the outputs of branches: side by side in channels, their sum, or their product.
enum class Join { concat, sum, product };

namespace detail {

/// Who owns what of the joined output: along each axis the blocks of the first branch that has the full extent.
inline Partition joined(std::vector<Partition> const& outputs, Join join) {
  std::array<Blocks, axis_count> blocks;
  for (AxisId axis : rank_order) {
    Blocks& widest = blocks[static_cast<std::size_t>(axis)];
    for (Partition const& output : outputs)
      if (&output == &outputs.front() || output.blocks(axis).extent() > widest.extent()) widest = output.blocks(axis);
  }
  if (join == Join::concat) {
    std::int64_t channels = 0;
    for (Partition const& output : outputs) channels += output.shape().channel;
    blocks[static_cast<std::size_t>(AxisId::channel)] = outputs.front().blocks(AxisId::channel).scaled_to(channels);
  }
  return Partition(outputs.front().grid(), std::move(blocks));
}

/// Whether a branch's only cell along an axis stands for all of the joined output's.
inline bool repeats(Partition const& output, Partition const& joined, AxisId axis) {
  return output.shape()[axis] == 1 && joined.shape()[axis] > 1;
}

/// What the ranks need of a branch's output, whose channels begin at `first` of the joined output's.
inline Region needed_of(Partition const& output, Partition const& joined, std::int64_t first) {
  Region needs(joined);
  for (AxisId axis : spatial_axes)
    if (repeats(output, joined, axis))
      needs.map(axis, [](Interval owned) { return owned.empty() ? Interval{} : Interval{0, 1}; });
  needs.map(AxisId::channel, [&](Interval owned) {
    return intersect(Interval{owned.begin - first, owned.end - first}, Interval{0, output.shape().channel});
  });
  return needs;
}

/// Whether every rank owns what it needs of the output, and nothing else.
inline bool in_place(Partition const& output, Region const& needs) {
  for (AxisId axis : rank_order)
    for (std::int64_t block = 0; block < output.blocks(axis).parts(); ++block)
      if (!(output.blocks(axis)[block] == needs.intervals(axis)[static_cast<std::size_t>(block)])) return false;
  return true;
}

/// Fails unless the outputs fit together.
inline void check_branches(char const* who, Grid const& grid, std::vector<Partition> const& outputs, Join join) {
  for (std::size_t i = 0; i < outputs.size(); ++i)
    require(outputs[i].grid() == grid, who, "branch ", i + 1,
            " must end with the counts that it starts with; redistribute back inside it, or after the branches");
  Shape const first = outputs.front().shape();
  for (std::size_t i = 1; i < outputs.size(); ++i) {
    Shape const other = outputs[i].shape();
    bool fits = first.sample == other.sample && (join == Join::concat || first.channel == other.channel);
    bool one_short = fits, differs = false;
    for (AxisId axis : spatial_axes) {
      std::int64_t const a = first[axis], b = other[axis];
      if (a == b || (join == Join::product && (a == 1 || b == 1))) continue;
      differs = true;
      one_short = one_short && (a - b == 1 || b - a == 1);
    }
    one_short = one_short && differs;
    fits = fits && !differs;
    char const* const alike = join == Join::concat ? "samples and space"
                              : join == Join::sum  ? "shape"
                                                   : "shape, but for an extent of 1 in space, which is repeated";
    char const* const advice =
        one_short ? "an odd extent that a strided layer halves comes back one cell short or long: give the transposed "
                    "convolution output_padding, or crop a branch by negative padding"
        : join == Join::concat ? "give them the same strides and padding"
                               : "give one of them a convolution that makes it fit";
    require(fits, who, "branches must agree in ", alike, ", but branch 1 makes ", first, " and branch ", i + 1,
            " makes ", other, "; ", advice);
  }
}

}  // namespace detail

/// Chains that start from one tensor, side by side, and whose outputs are joined. An output whose blocks are those that
/// the ranks need in the joined output is used where it lies; others travel there by an exchange, and their errors back
/// by its adjoint.
template <class T, class Space>
class Branches : public Layer<T, Space> {
 public:
  using Chains = std::vector<std::unique_ptr<Chain<T, Space>>>;

  Branches(Join join, Chains chains, Ranks const& ranks, std::string what)
      : join_(join), rank_(ranks.rank()), what_(std::move(what)) {
    for (auto& chain : chains) {
      parts_.emplace_back(std::move(chain), Exchange<T, Space>(ranks));
    }
  }

  Partition output(Partition const& input) const override { return detail::joined(outputs(input), join_); }
  Box needs_input(Partition const& input) const override {
    Box all;
    for (Part const& part : parts_) all = hull(all, part.chain->needs_input(input));
    return all;
  }
  /// Branches whose outputs lie in the joined one read their errors there, halo included.
  Box needs_error(Partition const& input) const override {
    Box all;
    if (join_ == Join::product) return all;
    auto const meetings = meet_at(input);
    for (std::size_t i = 0; i < size(); ++i) {
      if (!meetings[i].in_place) continue;
      Box box = parts_[i].chain->needs_error(input);
      if (box.empty()) continue;
      Interval& channels = box[AxisId::channel];
      channels = {channels.begin + meetings[i].first, channels.end + meetings[i].first};
      all = hull(all, box);
    }
    return all;
  }

  void allocate(Partition const& input) override {
    meetings_.clear();
    std::vector<Meeting> const& meetings = meet(input);
    for (std::size_t i = 0; i < size(); ++i) {
      Part& part = parts_[i];
      Meeting const& m = meetings[i];
      part.chain->allocate(input);
      if (!m.in_place && join_ != Join::concat) part.arrived.grow(m.plan.needs.volume());
      if (is_identity(i)) continue;
      Box const own = m.output.owned(rank_);
      if (!(m.in_place && lies_in_joined(i))) part.output.grow(own.volume());
      if (!m.in_place || join_ == Join::product) error_.grow(hull(own, part.chain->needs_error(input)).volume());
    }
  }

  void for_each_parameter(std::function<void(Parameter<T, Space>&)> const& visit) override {
    for (Part& part : parts_) part.chain->for_each_parameter(visit);
  }
  void for_each_buffer(std::function<void(std::string const&, std::vector<double>&)> const& visit) override {
    for (Part& part : parts_) part.chain->for_each_buffer(visit);
  }

  void describe(Partition const& input, bool needs_dx, std::vector<LayerInfo>& out) const override {
    LayerInfo info{"", what_, output(input), 0, 0, 0, 0.0, needs_dx};
    auto const meetings = meet_at(input);
    for (std::size_t i = 0; i < size(); ++i) {
      Meeting const& m = meetings[i];
      parts_[i].chain->describe(input, needs_dx, out);
      if (!is_identity(i) && !(m.in_place && lies_in_joined(i)))
        out.back().held_cells = m.output.owned(rank_).volume() + (join_ == Join::concat ? 0 : m.plan.needs.volume());
      info.halo_cells += m.plan.received_cells();
      if (needs_dx || parts_[i].chain->learns()) info.halo_cells_back += m.plan.sent_cells();
    }
    out.push_back(std::move(info));
  }

 protected:
  /// How a branch's output meets the joined one, for one number of samples.
  struct Meeting {
    Partition output;
    std::int64_t first = 0;  ///< its first channel in the joined output
    bool in_place = true;
    ExchangePlan plan;  ///< unless in place: what every rank needs of it, in its own channels
  };

  /// Whether a branch's output, if in place, is written straight to the joined one.
  virtual bool lies_in_joined(std::size_t i) const = 0;

  std::size_t size() const { return parts_.size(); }
  Chain<T, Space>& chain(std::size_t i) const { return *parts_[i].chain; }
  bool is_identity(std::size_t i) const { return parts_[i].chain->size() == 0; }
  int rank() const { return rank_; }
  Space const& space() const { return space_; }

  std::vector<Meeting> const& meet(Partition const& input) {
    auto const [place, is_new] = meetings_.try_emplace(input.shape().sample);
    if (is_new) place->second = meet_at(input);
    return place->second;
  }

  bool begins_with_input(Partition const& input) const { return is_identity(0) && meet_at(input).front().in_place; }

  /// A branch's output: the input itself, its channels of the joined output, or memory of its own.
  Shard<T, Space> place(std::size_t i, Meeting const& m, Shard<T, Space> const& x, Shard<T, Space> const& y) const {
    if (is_identity(i)) return x;
    if (m.in_place && lies_in_joined(i)) return y.slice(m.output, rank_, m.first);
    return Shard<T, Space>::on(parts_[i].output, m.output, rank_, {});
  }

  /// A branch's error, where it does not lie in the joined one. Branches take turns on its memory.
  Shard<T, Space> own_error(std::size_t i, Meeting const& m, Partition const& input) const {
    return Shard<T, Space>::on(error_, m.output, rank_, parts_[i].chain->needs_error(input));
  }

  void move(std::size_t i, Meeting const& m, Tile<T> const& from, Tile<T> const& to) {
    parts_[i].exchange.start(m.plan, from);
    parts_[i].exchange.finish(to);
  }
  /// The adjoint of move: adds.
  void move_back(std::size_t i, Meeting const& m, Tile<T> const& from, Tile<T> const& to) {
    parts_[i].exchange.start_add(m.plan, from);
    parts_[i].exchange.finish_add(to);
  }

  /// What this rank needs of a branch's output, after the branch's forward pass: where it lies, or where it arrived.
  Tile<T> needed(std::size_t i, Meeting const& m, Shard<T, Space> const& out) const {
    return m.in_place ? out.tile() : dense_tile(parts_[i].arrived.data(), m.plan.needs);
  }
  void fetch(std::size_t i, Meeting const& m, Shard<T, Space> const& out) {
    if (!m.in_place) move(i, m, out.tile(), needed(i, m, out));
  }

  /// Whether anything asks for a branch's error.
  bool is_wanted(std::size_t i, Shard<T, Space> const* dx) const { return dx != nullptr || parts_[i].chain->learns(); }

  /// The backward pass where each branch's error is the joined one, or its channels of it.
  void backward_alike(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y, Shard<T, Space> const& dy,
                      Shard<T, Space> const* dx, Accumulate accumulate) {
    std::vector<Meeting> const& meetings = meet(x.partition());
    for (std::size_t i = 0; i < size(); ++i) {
      Meeting const& m = meetings[i];
      Accumulate const how = i == 0 ? accumulate : Accumulate::add;
      if (!is_wanted(i, dx)) continue;
      Tile<T> const joined = from_channel(dy.tile(), m.first);
      if (!is_identity(i)) {
        Shard<T, Space> const error = m.in_place ? dy.slice(m.output, rank_, m.first) : own_error(i, m, x.partition());
        if (!m.in_place) {
          fill(space_, error.tile(), error.owned(), T(0));
          move_back(i, m, joined, error.tile());
        }
        chain(i).backward(pass, x, place(i, m, x, y), error, dx, how);
      } else if (!m.in_place) {
        if (how == Accumulate::write) fill(space_, dx->tile(), dx->owned(), T(0));
        move_back(i, m, joined, dx->tile());
      } else if (how == Accumulate::write) {
        copy<T, T>(space_, joined, dx->tile(), dx->owned());
      } else {
        add<T>(space_, joined, dx->tile(), dx->owned());
      }
    }
  }

 private:
  struct Part {
    Part(std::unique_ptr<Chain<T, Space>> c, Exchange<T, Space> e) : chain(std::move(c)), exchange(std::move(e)) {}
    std::unique_ptr<Chain<T, Space>> chain;
    Exchange<T, Space> exchange;
    Storage<T, Space> output, arrived;
  };

  std::vector<Partition> outputs(Partition const& input) const {
    std::vector<Partition> all;
    for (Part const& part : parts_) all.push_back(part.chain->output(input));
    return all;
  }

  std::vector<Meeting> meet_at(Partition const& input) const {
    auto const all = outputs(input);
    Partition const whole = detail::joined(all, join_);
    std::vector<Meeting> meetings;
    std::int64_t first = 0;
    for (Partition const& output : all) {
      Meeting& m = meetings.emplace_back();
      m.output = output;
      m.first = first;
      Region const needs = detail::needed_of(output, whole, first);
      m.in_place = detail::in_place(output, needs);
      if (!m.in_place) m.plan = make_plan(output, needs, rank_);
      if (join_ == Join::concat) first += output.shape().channel;
    }
    return meetings;
  }

  Join join_;
  int rank_;
  std::string what_;
  Space space_;
  std::vector<Part> parts_;
  Storage<T, Space> error_;
  std::map<std::int64_t, std::vector<Meeting>> meetings_;
};

/// Layers of one branch, as a value; see concat, add and multiply.
template <class... Specs>
struct BranchSpec {
  std::tuple<Specs...> specs;
};

/// One branch: layers one after the other. Without layers it is the identity.
template <class... Specs>
BranchSpec<Specs...> branch(Specs const&... specs) {
  return {{specs...}};
}

namespace detail {

template <class Spec>
inline constexpr bool is_branch = false;
template <class... Specs>
inline constexpr bool is_branch<BranchSpec<Specs...>> = true;

template <class T, class Space, PartitionPolicy Policy, class Specs>
std::unique_ptr<Chain<T, Space>> bind_branch(RankGrid<Policy> const& ranks, Partition const& input, LayerNames& names,
                                             Specs const& specs) {
  auto chain = std::make_unique<Chain<T, Space>>();
  chain->set_rank(ranks.rank());
  auto const end = bind_chain(*chain, ranks, input, names, specs);
  static_assert(std::same_as<typename decltype(end)::Policy, Policy>,
                "tessera::branch: all branches must end in the Distribution that they start in; redistribute before or "
                "after the branches instead, or back inside the branch");
  return chain;
}

}  // namespace detail

/// Branches and how they are joined, as a value. `Joined<T, Space>` is the layer.
template <template <class, class> class Joined, class... Parts>
struct BranchesSpec {
  char const* who;
  std::tuple<Parts...> parts;

  template <class T, class Space, PartitionPolicy Policy>
  std::unique_ptr<Layer<T, Space>> bind_parts(RankGrid<Policy> const& ranks, Partition const& input,
                                              LayerNames& names) const {
    typename Branches<T, Space>::Chains chains;
    std::apply(
        [&](auto const&... part) {
          (chains.push_back(detail::bind_branch<T, Space>(ranks, input, names, part.specs)), ...);
        },
        parts);
    std::vector<Partition> outputs;
    for (auto const& chain : chains) outputs.push_back(chain->output(input));
    detail::check_branches(who, ranks.grid(), outputs, Joined<T, Space>::join);
    return std::make_unique<Joined<T, Space>>(std::move(chains), ranks, who);
  }
};

}  // namespace tessera
