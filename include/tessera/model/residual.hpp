// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <tuple>
#include <utility>

#include "tessera/model/sum.hpp"

namespace tessera {

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
using ResidualSpec = BranchesSpec<Sum, Main, Shortcut>;

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
      "residual",
      {SequenceSpec<std::tuple_element_t<Main, All>...>{{std::get<Main>(specs)...}}, std::get<last>(specs)}};
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
    return ResidualSpec<SequenceSpec<Specs...>, ShortcutSpec<>>{"residual", {sequence(specs...), shortcut()}};
}
template <class... Main, class... Beside>
auto residual(SequenceSpec<Main...> const& main, ShortcutSpec<Beside...> const& beside) {
  return ResidualSpec<SequenceSpec<Main...>, ShortcutSpec<Beside...>>{"residual", {main, beside}};
}

}  // namespace tessera
