// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/comm/mpi.hpp"

namespace tessera::io {

/// One message of bytes from every rank to every other, where there is anything to say; both ends know how much. First
/// all pieces are counted, then those that leave are filled in, and then those that came are read, pieces of one
/// message in one order on both sides. Memory is kept from call to call.
class ByteExchange {
 public:
  explicit ByteExchange(Communicator<Mpi> comm) : comm_(std::move(comm)) {}

  Communicator<Mpi> const& comm() const { return comm_; }

  void begin() {
    for (Side* side : {&out_, &in_}) side->next.assign(ranks() + 1, 0);
  }
  void count_outgoing(int peer, std::int64_t bytes) { out_.next[index(peer) + 1] += bytes; }
  void count_incoming(int peer, std::int64_t bytes) {
    if (peer != comm_.rank()) in_.next[index(peer) + 1] += bytes;
  }

  /// After counting: begins to receive.
  void start() {
    for (Side* side : {&out_, &in_}) {
      for (std::size_t r = 0; r < ranks(); ++r) side->next[r + 1] += side->next[r];
      side->begin = side->next;
      side->bytes.resize(std::max(side->bytes.size(), static_cast<std::size_t>(side->begin.back())));
    }
    for_each_message(
        in_, [&](std::uint8_t* bytes, std::int64_t size, int peer) { comm_.receive(bytes, size, peer, 0, request_); });
  }

  /// Where the next piece for a rank goes.
  std::byte* outgoing(int peer, std::int64_t bytes) { return take(out_, peer, bytes); }

  /// Sends what was filled in, and waits for what comes.
  void finish() {
    for_each_message(
        out_, [&](std::uint8_t* bytes, std::int64_t size, int peer) { comm_.send(bytes, size, peer, 0, request_); });
    request_.wait();
    out_.next = out_.begin;
  }

  /// Where the next piece of a rank lies; what a rank sends itself is read where it was filled in.
  std::byte const* incoming(int peer, std::int64_t bytes) {
    return take(peer == comm_.rank() ? out_ : in_, peer, bytes);
  }

 private:
  struct Side {
    std::vector<std::byte> bytes;
    std::vector<std::int64_t> begin, next;  ///< by rank
  };

  static std::size_t index(int peer) { return static_cast<std::size_t>(peer); }
  std::size_t ranks() const { return static_cast<std::size_t>(comm_.size()); }

  static std::byte* take(Side& side, int peer, std::int64_t bytes) {
    std::byte* const place = side.bytes.data() + side.next[index(peer)];
    side.next[index(peer)] += bytes;
    return place;
  }

  template <class Visit>
  void for_each_message(Side& side, Visit visit) {
    for (int peer = 0; peer < comm_.size(); ++peer) {
      std::int64_t const at = side.begin[index(peer)], size = side.begin[index(peer) + 1] - at;
      if (size > 0 && peer != comm_.rank()) visit(reinterpret_cast<std::uint8_t*>(side.bytes.data() + at), size, peer);
    }
  }

  Communicator<Mpi> comm_;
  Side out_, in_;
  Request<Mpi> request_;
};

}  // namespace tessera::io
