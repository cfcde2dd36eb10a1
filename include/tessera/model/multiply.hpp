// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "tessera/model/branches.hpp"
#include "tessera/op/product.hpp"

namespace tessera {

/// The product of the outputs of two branches, cell by cell; an extent of 1 in space is repeated. The gradient of what
/// is repeated is summed over the rank's cells in double, then over ranks at its owner.
template <class T, class Space>
class Product : public Branches<T, Space> {
  using Base = Branches<T, Space>;
  using Meeting = typename Base::Meeting;

 public:
  static constexpr Join join = Join::product;

  Product(typename Base::Chains chains, Ranks const& ranks, std::string const&)
      : Base(join, std::move(chains), ranks, "product") {}

  void forward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y) override {
    auto const& meetings = this->meet(x.partition());
    for (std::size_t i = 0; i < 2; ++i) {
      Shard<T, Space> const out = this->place(i, meetings[i], x, y);
      this->chain(i).forward(pass, x, out);
      this->fetch(i, meetings[i], out);
    }
    op::multiply<T>(this->space(), factor(0, meetings[0], x, y), factor(1, meetings[1], x, y), y.tile(), y.owned(),
                    Accumulate::write);
  }

  void backward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y, Shard<T, Space> const& dy,
                Shard<T, Space> const* dx, Accumulate accumulate) override {
    auto const& meetings = this->meet(x.partition());
    for (std::size_t i = 0; i < 2; ++i) {
      Meeting const& m = meetings[i];
      Accumulate const how = i == 0 ? accumulate : Accumulate::add;
      if (!this->is_wanted(i, dx)) continue;
      bool const identity = this->is_identity(i);
      Shard<T, Space> const error = identity ? *dx : this->own_error(i, m, x.partition());
      Accumulate const into = identity ? how : Accumulate::write;
      Tile<T> const other = factor(1 - i, meetings[1 - i], x, y);
      if (m.in_place) {
        gradient(m, dy, other, error.tile(), error.owned(), into);
      } else {
        Box const& needs = m.plan.needs;
        sent_.grow(needs.volume());
        Tile<T> const part = dense_tile(sent_.data(), needs);
        gradient(m, dy, other, part, needs, Accumulate::write);
        if (into == Accumulate::write) fill(this->space(), error.tile(), error.owned(), T(0));
        this->move_back(i, m, part, error.tile());
      }
      if (!identity) this->chain(i).backward(pass, x, this->place(i, m, x, y), error, dx, how);
    }
  }

 private:
  bool lies_in_joined(std::size_t) const override { return false; }

  /// What this rank needs of a branch's output, as a tile over the product's box.
  Tile<T> factor(std::size_t i, Meeting const& m, Shard<T, Space> const& x, Shard<T, Space> const& y) const {
    Tile<T> tile = this->needed(i, m, this->place(i, m, x, y));
    for (int a = 1; a < 4; ++a)
      if (detail::repeats(m.output, y.partition(), static_cast<AxisId>(a))) tile.stride[a] = 0;
    return tile;
  }

  /// dy times the other factor, summed into `cells` of this rank where they are repeated.
  void gradient(Meeting const& m, Shard<T, Space> const& dy, Tile<T> const& other, Tile<T> const& to, Box const& cells,
                Accumulate accumulate) {
    bool repeats[4] = {}, any = false;
    for (int a = 1; a < 4; ++a) any |= repeats[a] = detail::repeats(m.output, dy.partition(), static_cast<AxisId>(a));
    if (any)
      op::multiply_sums<T>(this->space(), dy.tile(), other, to, dy.owned(), cells, repeats, accumulate, partial_);
    else
      op::multiply<T>(this->space(), dy.tile(), other, to, dy.owned(), accumulate);
  }

  Storage<T, Space> sent_;  ///< a factor's gradient before it travels to its owner
  Storage<double, Space> partial_;
};

/// The product of two branches' outputs, cell by cell. Where one has extent 1 along spatial axes, its cell there is
/// taken for all of the other's: the gate of squeeze-and-excitation (Hu et al. 2018).
///
/// Shape: along each spatial axis the larger extent of the two. Moves: what the branches move; what is repeated to the
/// ranks that need it, and their sums of its gradient back. Fails: if an extent differs and is not 1, or samples or
/// channels differ; does not compile if a branch ends in another Distribution than it starts in.
template <class First, class Second>
BranchesSpec<Product, First, Second> multiply(First const& first, Second const& second) {
  static_assert(detail::is_branch<First> && detail::is_branch<Second>,
                "tessera::multiply: takes two branches: multiply(branch(layers...), branch(layers...))");
  return {"multiply", {first, second}};
}

}  // namespace tessera
