// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "tessera/model/branches.hpp"

namespace tessera {

/// The outputs of branches side by side in channels. Where channels are whole, a branch writes straight to its channels
/// of the output, and reads its error there; where they are cut, its blocks travel.
template <class T, class Space>
class Concat : public Branches<T, Space> {
  using Base = Branches<T, Space>;

 public:
  static constexpr Join join = Join::concat;

  Concat(typename Base::Chains chains, Ranks const& ranks, std::string const& who)
      : Base(join, std::move(chains), ranks, who) {}

  /// What a branch's last layer reads of its output lies in ours.
  bool reads_output() const override {
    for (std::size_t i = 0; i < this->size(); ++i)
      if (this->chain(i).reads_output()) return true;
    return false;
  }

  bool contains_input(Partition const& input) const override { return this->begins_with_input(input); }

  void forward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y) override {
    auto const& meetings = this->meet(x.partition());
    for (std::size_t i = 0; i < this->size(); ++i) {
      auto const& m = meetings[i];
      Shard<T, Space> const out = this->place(i, m, x, y);
      Tile<T> const to = from_channel(y.tile(), m.first);
      this->chain(i).forward(pass, x, out);
      if (!m.in_place)
        this->move(i, m, out.tile(), to);
      else if (this->is_identity(i) && !lies_at(out, to))
        copy<T, T>(this->space(), out.tile(), to, out.owned());
    }
  }

  void backward(Pass const& pass, Shard<T, Space> const& x, Shard<T, Space> const& y, Shard<T, Space> const& dy,
                Shard<T, Space> const* dx, Accumulate accumulate) override {
    this->backward_alike(pass, x, y, dy, dx, accumulate);
  }

 private:
  static bool lies_at(Shard<T, Space> const& x, Tile<T> const& to) {
    auto const& [n, d, h, w, c] = x.owned().axis;
    if (x.owned().empty()) return true;
    return x.tile().position(n.begin, d.begin, h.begin, w.begin) == to.position(n.begin, d.begin, h.begin, w.begin);
  }
  bool lies_in_joined(std::size_t) const override { return true; }
};

/// The outputs of any number of branches side by side in channels, in the order in which they are written.
///
/// Shape: (N, D, H, W, sum of the branches' channels). Moves: what the branches move; cells whose owner changes where
/// channels are cut, and their errors back. Fails: if the branches differ in samples or space; does not compile if one
/// ends in another Distribution than it starts in.
template <class... Parts>
BranchesSpec<Concat, Parts...> concat(Parts const&... parts) {
  static_assert(sizeof...(Parts) > 0 && (true && ... && detail::is_branch<Parts>),
                "tessera::concat: takes branches: concat(branch(layers...), branch(layers...))");
  return {"concat", {parts...}};
}

/// The input, and behind it, in channels, what the layers make of it: a level of a U-Net (Ronneberger et al. 2015).
/// Shape, Moves, Fails: as concat(branch(), branch(layers...)).
template <class... Specs>
auto concat_skip(Specs const&... specs) {
  BranchesSpec<Concat, BranchSpec<>, BranchSpec<Specs...>> const spec{"concat_skip", {branch(), branch(specs...)}};
  return spec;
}

}  // namespace tessera
