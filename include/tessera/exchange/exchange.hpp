// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <vector>

#include "tessera/comm/ranks.hpp"
#include "tessera/core/error.hpp"
#include "tessera/exchange/pack.hpp"
#include "tessera/exchange/plan.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/shard.hpp"

namespace tessera {

/// Runs a plan. `start` / `finish` fill what the plan needs; `start_add` / `finish_add` are their exact adjoint: what
/// lies on needed cells travels back and is added to its owner, peers in the order of their rank. Owns its buffers, so
/// the tensors are free again after each call. Every rank must make the same calls in the same order.
template <class T, class Space = Kokkos::DefaultExecutionSpace>
class Exchange {
 public:
  /// Every rank must make its exchanges in the same order.
  explicit Exchange(Ranks const& ranks, Space const& space = Space())
      : comm_(ranks.halo()), tag_(ranks.next_tag()), space_(space) {}

  Exchange(Exchange&&) = default;  // no copies: they would share a tag and buffers
  Exchange& operator=(Exchange&&) = default;

  /// Sends the cells of `from` that others need, and begins to receive.
  void start(ExchangePlan const& plan, Tile<T const> const& from) {
    begin(plan, plan.receives, plan.sends);
    for_each_part(plan.sends, outgoing_, [&](Transfer const& transfer, T* message) {
      copy(space_, from, dense_tile(message, transfer.from), transfer.from);
    });
    post(plan.sends);
  }

  /// Defines every needed cell of `to`: what was received, and zeros beyond the border. Cells that the rank owns itself
  /// are left alone if the plan was made with Placement::around_owned.
  void finish(Tile<T> const& to) {
    ExchangePlan const& plan = end();
    for (Box const& border : plan.borders) fill(space_, to, border, T(0));
    for_each_arrival(plan.receives, plan.rank, [&](Transfer const& transfer, T const* message) {
      detail::unpack<T>(space_, transfer, dense_tile(message, transfer.from), to);
    });
    space_.fence("tessera::Exchange");
  }

  /// Sends what lies on the needed cells of `from` back to the owners.
  void start_add(ExchangePlan const& plan, Tile<T const> const& from) {
    begin(plan, plan.sends, plan.receives);
    for_each_part(plan.receives, outgoing_, [&](Transfer const& transfer, T* message) {
      detail::pack_sums<T>(space_, transfer, from, dense_tile(message, transfer.from));
    });
    post(plan.receives);
  }

  /// Adds what was sent to the owned cells of `to`.
  void finish_add(Tile<T> const& to) {
    ExchangePlan const& plan = end();
    for_each_arrival(plan.sends, plan.rank, [&](Transfer const& transfer, T const* message) {
      add<T>(space_, dense_tile(message, transfer.from), to, transfer.from);
    });
    space_.fence("tessera::Exchange");
  }

  /// start and finish on one tensor: fills the halo of a shard.
  void operator()(ExchangePlan const& plan, Shard<T, Space> const& shard) {
    start(plan, shard.tile());
    finish(shard.tile());
  }

  /// Moves from one tensor to another, as the plan of a redistribution says.
  void operator()(ExchangePlan const& plan, Shard<T, Space> const& from, Shard<T, Space> const& to) {
    start(plan, from.tile());
    finish(to.tile());
  }

  /// What is under way between start and finish; testing it lets messages make progress.
  Request<Mpi>& request() { return request_; }

 private:
  using Messages = std::vector<Transfer>;
  static constexpr bool staged = !host_can_access<Space>;
  using Host = Kokkos::DefaultHostExecutionSpace;

  static std::int64_t cells(Messages const& list) {
    std::int64_t sum = 0;
    for (Transfer const& transfer : list) sum += transfer.cells();
    return sum;
  }

  /// Calls visit(transfer, its place in the buffer) for each transfer, in order.
  template <class Visit>
  static void for_each_part(Messages const& list, Storage<T, Space> const& buffer, Visit visit) {
    std::int64_t at = 0;
    for (Transfer const& transfer : list) {
      visit(transfer, buffer.data() + at);
      at += transfer.cells();
    }
  }

  /// The same for what arrived; the rank's message to itself is read where it was packed.
  template <class Visit>
  void for_each_arrival(Messages const& list, int rank, Visit visit) const {
    std::int64_t at = 0, own = own_;
    for (Transfer const& transfer : list) {
      bool const mine = transfer.peer == rank;
      visit(transfer, mine ? outgoing_.data() + own : incoming_.data() + at);
      at += transfer.cells();
      if (mine) own += transfer.cells();
    }
  }

  /// Calls visit(peer, first element, count) for each run of transfers with one peer.
  template <class Visit>
  static void for_each_message(Messages const& list, Visit visit) {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < list.size();) {
      std::int64_t count = 0;
      int const peer = list[i].peer;
      for (; i < list.size() && list[i].peer == peer; ++i) count += list[i].cells();
      visit(peer, at, count);
      at += count;
    }
  }

  void begin(ExchangePlan const& plan, Messages const& incoming, Messages const& outgoing) {
    require(plan_ == nullptr, "Exchange", "start was called twice without finish");
    plan_ = &plan;
    incoming_.grow(cells(incoming));
    outgoing_.grow(cells(outgoing));
    if constexpr (staged) {
      host_incoming_.grow(cells(incoming));
      host_outgoing_.grow(cells(outgoing));
    }
    for_each_message(incoming, [&](int peer, std::int64_t at, std::int64_t count) {
      if (peer != plan.rank) comm_.receive(landing() + at, count, peer, tag_, request_);
    });
  }

  void post(Messages const& outgoing) {
    space_.fence("tessera::Exchange");
    if constexpr (staged) copy_flat<Host, Space>(host_outgoing_.data(), outgoing_.data(), cells(outgoing));
    for_each_message(outgoing, [&](int peer, std::int64_t at, std::int64_t count) {
      if (peer != plan_->rank)
        comm_.send(leaving() + at, count, peer, tag_, request_);
      else
        own_ = at;
    });
  }

  /// Waits for all messages, and returns the plan.
  ExchangePlan const& end() {
    require(plan_ != nullptr, "Exchange", "finish was called without start");
    request_.wait();
    if constexpr (staged) copy_flat<Space, Host>(incoming_.data(), host_incoming_.data(), host_incoming_.capacity());
    ExchangePlan const& plan = *plan_;
    plan_ = nullptr;
    return plan;
  }

  T* landing() {
    if constexpr (staged)
      return host_incoming_.data();
    else
      return incoming_.data();
  }
  T* leaving() {
    if constexpr (staged)
      return host_outgoing_.data();
    else
      return outgoing_.data();
  }

  Communicator<Mpi> comm_;
  int tag_;
  Space space_;
  ExchangePlan const* plan_ = nullptr;
  Request<Mpi> request_;
  std::int64_t own_ = 0;  ///< where the rank's message to itself begins, in outgoing_
  Storage<T, Space> incoming_, outgoing_;
  Storage<T, Host> host_incoming_, host_outgoing_;
};

}  // namespace tessera
