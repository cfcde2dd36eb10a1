// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/layer/parameter.hpp"
#include "tessera/model/model.hpp"
#include "tessera/partition/interval.hpp"
#include "tessera/tensor/storage.hpp"

namespace tessera::io {

/// Visits a box of an array of that shape, both by axis, in row-major order: visit(index of its first element within
/// the array, length) for runs of elements that lie side by side.
template <class Visit>
void for_each_run(std::vector<std::int64_t> const& shape, std::vector<Interval> const& box, Visit visit) {
  for (Interval const& part : box)
    if (part.empty()) return;
  std::size_t outer = shape.size();
  std::int64_t length = 1;
  while (outer > 0 && box[outer - 1] == Interval{0, shape[outer - 1]}) length *= shape[--outer];
  std::int64_t const inside = length;  // elements to a step along the last axis that is cut
  if (outer > 0) length *= box[--outer].size();
  std::vector<std::int64_t> at;
  for (std::size_t i = 0; i < outer; ++i) at.push_back(box[i].begin);
  for (bool more = true; more;) {
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < outer; ++i) begin = begin * shape[i] + at[i];
    if (outer < shape.size()) begin = begin * shape[outer] + box[outer].begin;
    visit(begin * inside, length);
    more = false;
    for (std::size_t i = outer; i-- > 0 && !more;) {
      more = ++at[i] < box[i].end;
      if (!more) at[i] = box[i].begin;
    }
  }
}

/// Puts the shards of a model's parameters together on the first rank, one parameter at a time: there it needs the room
/// of one whole parameter and one shard, elsewhere that of a shard.
template <class T, class Space>
class Assembly {
 public:
  /// Collective over all ranks of the model.
  explicit Assembly(Model<T, Space> const& model) : world_(model.input_ranks().world()) {
    auto const& all = model.parameters();
    std::vector<std::int64_t> mine;
    for (Parameter<T, Space> const* p : all) {
      mine.push_back(p->counted_here() && p->count() > 0 ? 1 : 0);
      for (Interval const& part : p->shard()) mine.insert(mine.end(), {part.begin, part.end});
    }
    if (world_.rank() != 0) {
      send(mine);
      return;
    }
    pieces_.resize(all.size());
    std::vector<std::int64_t> theirs(mine.size());
    for (int rank = 1; rank < world_.size(); ++rank) {
      receive(theirs, rank);
      auto next = theirs.begin();
      for (std::size_t i = 0; i < all.size(); ++i) {
        bool const gives = *next++ != 0 && !everywhere(*all[i]);
        std::vector<Interval> box;
        for (std::size_t axis = 0; axis < all[i]->shape().size(); ++axis, next += 2) box.push_back({next[0], next[1]});
        if (gives) pieces_[i].push_back({rank, std::move(box)});
      }
    }
  }

  /// Calls use(all elements, in PyTorch's order) on the first rank, for numbers stored like the model's i-th parameter.
  /// Collective; `use` must not throw.
  template <class Use>
  void operator()(std::size_t i, Parameter<T, Space> const& p, Storage<T, Space> const& numbers, Use use) const {
    bool const gives = p.counted_here() && p.count() > 0;
    if (world_.rank() != 0) {
      if (gives && !everywhere(p)) send(p.download(numbers));
      return;
    }
    if (everywhere(p)) return use(p.download(numbers));
    std::vector<T> whole(static_cast<std::size_t>(p.whole_count()));
    if (gives) place(p.download(numbers), p.shape(), p.shard(), whole);
    std::vector<T> part;
    for (Piece const& piece : pieces_[i]) {
      std::int64_t count = 1;
      for (Interval const& side : piece.box) count *= side.size();
      part.resize(static_cast<std::size_t>(count));
      receive(part, piece.rank);
      place(part, p.shape(), piece.box, whole);
    }
    use(whole);
  }

 private:
  struct Piece {
    int rank;
    std::vector<Interval> box;
  };

  bool everywhere(Parameter<T, Space> const& p) const { return p.replicas().size() == world_.size(); }

  static void place(std::vector<T> const& part, std::vector<std::int64_t> const& shape,
                    std::vector<Interval> const& box, std::vector<T>& whole) {
    auto from = part.begin();
    for_each_run(shape, box, [&](std::int64_t begin, std::int64_t length) {
      std::copy_n(from, length, whole.begin() + begin);
      from += length;
    });
  }

  template <class U>
  void send(std::vector<U> const& elements) const {
    Request<Mpi> request;
    world_.send(elements.data(), static_cast<std::int64_t>(elements.size()), 0, 0, request);
    request.wait();
  }
  template <class U>
  void receive(std::vector<U>& elements, int rank) const {
    Request<Mpi> request;
    world_.receive(elements.data(), static_cast<std::int64_t>(elements.size()), rank, 0, request);
    request.wait();
  }

  Communicator<Mpi> world_;
  std::vector<std::vector<Piece>> pieces_;  ///< by parameter, on the first rank
};

}  // namespace tessera::io
