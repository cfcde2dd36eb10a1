// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "tessera/model/branches.hpp"

namespace tessera {

/// The sum of the outputs of branches, added in the order in which they are written.
template <class T, class Space>
class Sum : public Branches<T, Space> {
  using Base = Branches<T, Space>;

 public:
  static constexpr Join join = Join::sum;

  Sum(typename Base::Chains chains, Ranks const& ranks, std::string const& who)
      : Base(join, std::move(chains), ranks, who == "residual" ? "residual sum" : "sum") {}

  void forward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y) override {
    auto const& meetings = this->meet(x.partition());
    std::size_t const direct = in_joined();
    bool written = direct < this->size() && meetings[direct].in_place;
    if (written) this->chain(direct).forward(pass, x, this->place(direct, meetings[direct], x, y));
    for (std::size_t i = 0; i < this->size(); ++i) {
      auto const& m = meetings[i];
      if (i == direct && m.in_place) continue;
      Shard<T, Space> const out = this->place(i, m, x, y);
      this->chain(i).forward(pass, x, out);
      this->fetch(i, m, out);
      if (written)
        add<T>(this->space(), this->needed(i, m, out), y.tile(), y.owned());
      else
        copy<T, T>(this->space(), this->needed(i, m, out), y.tile(), y.owned());
      written = true;
    }
  }

  void backward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y, Shard<T, Space> const& dy,
                Shard<T, Space> const* dx, Accumulate accumulate) override {
    this->backward_alike(pass, x, y, dy, dx, accumulate);
  }

 private:
  /// The branch that writes straight to the sum: the first or second one, because a + b = b + a, whose last layer does
  /// not read its output again. size() if there is none.
  std::size_t in_joined() const {
    for (std::size_t i = 0; i < 2 && i < this->size(); ++i)
      if (!this->is_identity(i) && !this->chain(i).reads_output()) return i;
    return this->size();
  }
  bool lies_in_joined(std::size_t i) const override { return i == in_joined(); }
};

/// The sum of the outputs of any number of branches; see residual for the case of a branch and its input.
///
/// Shape: of the branches. Moves: what the branches move; cells whose owner changes if their blocks differ.
/// Fails: if the branches differ in shape; does not compile if one ends in another Distribution than it starts in.
template <class... Specs, class... Parts>
BranchesSpec<Sum, BranchSpec<Specs...>, Parts...> add(BranchSpec<Specs...> const& first, Parts const&... others) {
  static_assert((true && ... && detail::is_branch<Parts>),
                "tessera::add: takes branches: add(branch(layers...), branch(layers...))");
  return {"add", {first, others...}};
}

}  // namespace tessera
