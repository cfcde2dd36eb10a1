// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/model/chain.hpp"

namespace tessera {

/// y = main(x) + shortcut(x); the shortcut is the identity if it has no layers. Moves: what its branches move.
template <class T, class Space>
class Residual : public Layer<T, Space> {
 public:
  Residual(std::unique_ptr<Chain<T, Space>> main, std::unique_ptr<Chain<T, Space>> shortcut, int rank)
      : main_(std::move(main)), shortcut_(std::move(shortcut)), rank_(rank) {}

  Partition output(Partition const& input) const override { return main_->output(input); }
  Box needs_input(Partition const& input) const override {
    return hull(main_->needs_input(input), shortcut_->needs_input(input));
  }
  Box needs_error(Partition const& input) const override {
    return hull(main_->needs_error(input), shortcut_->needs_error(input));
  }

  void allocate(Partition const& input) override {
    main_->allocate(input);
    shortcut_->allocate(input);
    std::int64_t const cells = output(input).owned(rank_).volume();
    if (main_->reads_output()) main_output_.grow(cells);
    if (shortcut_->size() > 0) shortcut_output_.grow(cells);
  }

  void forward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y) override {
    Outputs const out = outputs(x, y);
    main_->forward(pass, x, out.main);
    if (shortcut_->size() > 0) shortcut_->forward(pass, x, out.shortcut);
    if (main_->reads_output()) copy<T, T>(space_, out.main.tile(), y.tile(), y.owned());
    add<T>(space_, out.shortcut.tile(), y.tile(), y.owned());
  }

  void backward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y, Shard<T, Space> const& dy,
                Shard<T, Space> const* dx, Accumulate accumulate) override {
    Outputs const out = outputs(x, y);
    main_->backward(pass, x, out.main, dy, dx, accumulate);
    if (shortcut_->size() > 0)
      shortcut_->backward(pass, x, out.shortcut, dy, dx, Accumulate::add);
    else if (dx != nullptr)
      add<T>(space_, dy.tile(), dx->tile(), dx->owned());
  }

  void for_each_parameter(std::function<void(Parameter<T, Space>&)> const& visit) override {
    main_->for_each_parameter(visit);
    shortcut_->for_each_parameter(visit);
  }
  void for_each_buffer(std::function<void(std::string const&, std::vector<double>&)> const& visit) override {
    main_->for_each_buffer(visit);
    shortcut_->for_each_buffer(visit);
  }
  void describe(Partition const& input, bool needs_dx, std::vector<LayerInfo>& out) const override {
    std::int64_t const cells = output(input).owned(rank_).volume();
    main_->describe(input, needs_dx, out);
    if (main_->size() > 0 && main_->reads_output()) out.back().held_cells = cells;
    shortcut_->describe(input, needs_dx, out);
    if (shortcut_->size() > 0) out.back().held_cells = cells;
    out.push_back({"", "residual sum", output(input), 0, 0, 0, 0.0, needs_dx});
  }

 private:
  struct Outputs {
    Shard<T, Space> main, shortcut;
  };

  /// Where the branches' outputs lie: in y and x themselves where nothing forbids it.
  Outputs outputs(Shard<T, Space> const& x, Shard<T, Space> const& y) const {
    Outputs out{y, x};
    if (main_->reads_output()) out.main = Shard<T, Space>::on(main_output_, y.partition(), rank_, {});
    if (shortcut_->size() > 0) out.shortcut = Shard<T, Space>::on(shortcut_output_, y.partition(), rank_, {});
    return out;
  }

  std::unique_ptr<Chain<T, Space>> main_, shortcut_;
  int rank_;
  Space space_;
  Storage<T, Space> main_output_, shortcut_output_;
};

/// The layers beside the main branch of a residual.
template <class... Specs>
struct ShortcutSpec {
  std::tuple<Specs...> specs;
};
template <class... Specs>
ShortcutSpec<Specs...> shortcut(Specs const&... specs) {
  return {{specs...}};
}

template <class Main, class Shortcut>
struct ResidualSpec {
  Main main;
  Shortcut beside;

  template <class T, class Space, PartitionPolicy Policy>
  std::unique_ptr<Layer<T, Space>> bind_parts(RankGrid<Policy> const& ranks, Partition const& input,
                                              LayerNames& names) const {
    auto chain = std::make_unique<Chain<T, Space>>();
    auto other = std::make_unique<Chain<T, Space>>();
    chain->set_rank(ranks.rank());
    other->set_rank(ranks.rank());
    auto const end = detail::bind_chain(*chain, ranks, input, names, main.specs);
    auto const other_end = detail::bind_chain(*other, ranks, input, names, beside.specs);
    static_assert(
        std::same_as<typename decltype(end)::Policy, typename decltype(other_end)::Policy> &&
            std::same_as<typename decltype(end)::Policy, Policy>,
        "tessera::residual: both branches must end in the Distribution that they start in; redistribute before "
        "or after the residual instead, or back inside the branch");
    Partition const a = chain->output(input), b = other->output(input);
    require(a.shape() == b.shape(), "residual", "both branches must have the same output shape, but they have ",
            a.shape(), " and ", b.shape(), "; give the shortcut a convolution");
    require(a == b, "residual", "both branches must end with the same blocks per rank");
    return std::make_unique<Residual<T, Space>>(std::move(chain), std::move(other), ranks.rank());
  }
};

namespace detail {

template <class Spec>
inline constexpr bool is_shortcut = false;
template <class... Specs>
inline constexpr bool is_shortcut<ShortcutSpec<Specs...>> = true;

/// All specs but the last as the main branch, and the last one beside it.
template <class... Specs, std::size_t... Main>
auto with_shortcut(std::tuple<Specs...> const& specs, std::index_sequence<Main...>) {
  using All = std::tuple<Specs...>;
  constexpr std::size_t last = sizeof...(Specs) - 1;
  static_assert(
      last > 0 && is_shortcut<std::tuple_element_t<last, All>> &&
          !(false || ... || is_shortcut<std::tuple_element_t<Main, All>>),
      "tessera::residual: shortcut(...) must stand once, as the last argument, after the layers of the main branch");
  return ResidualSpec<SequenceSpec<std::tuple_element_t<Main, All>...>, std::tuple_element_t<last, All>>{
      {{std::get<Main>(specs)...}}, std::get<last>(specs)};
}

}  // namespace detail

/// y = main(x) + x, or + shortcut(x) if the last argument is shortcut(...).
/// Fails: if the branches differ in shape; does not compile if they differ in Distribution.
template <class... Specs>
auto residual(Specs const&... specs) {
  static_assert(sizeof...(Specs) > 0, "tessera::residual: the main branch needs at least one layer");
  if constexpr ((false || ... || detail::is_shortcut<Specs>))
    return detail::with_shortcut(std::tuple<Specs...>(specs...), std::make_index_sequence<sizeof...(Specs) - 1>());
  else
    return ResidualSpec<SequenceSpec<Specs...>, ShortcutSpec<>>{{{specs...}}, {}};
}
template <class... Main, class... Beside>
auto residual(SequenceSpec<Main...> const& main, ShortcutSpec<Beside...> const& beside) {
  return ResidualSpec<SequenceSpec<Main...>, ShortcutSpec<Beside...>>{main, beside};
}

}  // namespace tessera
