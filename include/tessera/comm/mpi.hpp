// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/error.hpp"

namespace tessera {

/// The transport that MPI provides. Counts are 64-bit: a message longer than one MPI call can carry goes in chunks.
struct Mpi {};

namespace detail {

inline void check_mpi(int code, char const* call) {
  if (code == MPI_SUCCESS) return;
  char reason[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, reason, &length);
  throw Error(text(call, ": ", std::string(reason, static_cast<std::size_t>(length))));
}

template <class T>
MPI_Datatype mpi_type() {
  if constexpr (std::is_same_v<T, float>)
    return MPI_FLOAT;
  else if constexpr (std::is_same_v<T, double>)
    return MPI_DOUBLE;
  else if constexpr (std::is_same_v<T, std::int8_t>)
    return MPI_INT8_T;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return MPI_UINT8_T;
  else if constexpr (std::is_same_v<T, std::int16_t>)
    return MPI_INT16_T;
  else if constexpr (std::is_same_v<T, std::uint16_t>)
    return MPI_UINT16_T;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return MPI_INT32_T;
  else if constexpr (std::is_same_v<T, std::uint32_t>)
    return MPI_UINT32_T;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return MPI_INT64_T;
  else if constexpr (std::is_same_v<T, std::uint64_t>)
    return MPI_UINT64_T;
  else
    static_assert(sizeof(T) == 0, "tessera::Communicator: this element type cannot be sent");
}

inline MPI_Op mpi_operation(Reduce reduce) {
  switch (reduce) {
    case Reduce::sum: return MPI_SUM;
    case Reduce::min: return MPI_MIN;
    case Reduce::max: return MPI_MAX;
  }
  return MPI_OP_NULL;
}

/// Calls call(first element, number of elements) for consecutive chunks of at most `most` of `count` elements.
template <class Call>
void in_chunks(std::int64_t count, Call call, std::int64_t most = std::int64_t{1} << 30) {
  for (std::int64_t at = 0; at < count; at += most) call(at, static_cast<int>(count - at < most ? count - at : most));
}

/// Frees an owned MPI communicator, unless the process is unwinding or MPI has ended: both would hang or abort.
struct MpiHandle {
  MPI_Comm comm = MPI_COMM_NULL;
  bool owned = false;

  MpiHandle(MPI_Comm c, bool own) : comm(c), owned(own) {}
  MpiHandle(MpiHandle const&) = delete;
  MpiHandle& operator=(MpiHandle const&) = delete;
  ~MpiHandle() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (owned && finalized == 0 && std::uncaught_exceptions() == 0) MPI_Comm_free(&comm);
  }
};

}  // namespace detail

/// The outstanding parts of one or more non-blocking operations; `test` also lets MPI make progress.
template <>
class Request<Mpi> {
 public:
  bool test() {
    if (parts_.empty()) return true;
    int done = 0;
    detail::check_mpi(MPI_Testall(static_cast<int>(parts_.size()), parts_.data(), &done, MPI_STATUSES_IGNORE),
                      "MPI_Testall");
    if (done != 0) parts_.clear();
    return done != 0;
  }

  void wait() {
    if (parts_.empty()) return;
    detail::check_mpi(MPI_Waitall(static_cast<int>(parts_.size()), parts_.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
    parts_.clear();
  }

  bool pending() const { return !parts_.empty(); }
  void push(MPI_Request part) { parts_.push_back(part); }

 private:
  std::vector<MPI_Request> parts_;
};

template <>
class Communicator<Mpi> {
 public:
  /// Uses `comm` as it is: nothing is duplicated or freed.
  static Communicator borrow(MPI_Comm comm) { return Communicator(std::make_shared<detail::MpiHandle>(comm, false)); }

  /// A communicator of its own over the same ranks. Collective.
  Communicator duplicate() const {
    MPI_Comm copy = MPI_COMM_NULL;
    detail::check_mpi(MPI_Comm_dup(native(), &copy), "MPI_Comm_dup");
    return Communicator(std::make_shared<detail::MpiHandle>(copy, true));
  }

  /// The ranks of the same colour, ordered by key. Collective.
  Communicator split(int colour, int key) const {
    MPI_Comm part = MPI_COMM_NULL;
    detail::check_mpi(MPI_Comm_split(native(), colour, key, &part), "MPI_Comm_split");
    return Communicator(std::make_shared<detail::MpiHandle>(part, true));
  }

  MPI_Comm native() const { return handle_->comm; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  /// The largest tag that may be used.
  int max_tag() const {
    int* bound = nullptr;
    int found = 0;
    MPI_Comm_get_attr(native(), MPI_TAG_UB, &bound, &found);
    return found != 0 ? *bound : 32767;
  }

  /// Sends `count` elements; `data` must stay unchanged until the request is done.
  template <class T>
  void send(T const* data, std::int64_t count, int peer, int tag, Request<Mpi>& request) const {
    detail::in_chunks(count, [&](std::int64_t at, int length) {
      MPI_Request part = MPI_REQUEST_NULL;
      detail::check_mpi(MPI_Isend(data + at, length, detail::mpi_type<T>(), peer, tag, native(), &part), "MPI_Isend");
      request.push(part);
    });
  }

  template <class T>
  void receive(T* data, std::int64_t count, int peer, int tag, Request<Mpi>& request) const {
    detail::in_chunks(count, [&](std::int64_t at, int length) {
      MPI_Request part = MPI_REQUEST_NULL;
      detail::check_mpi(MPI_Irecv(data + at, length, detail::mpi_type<T>(), peer, tag, native(), &part), "MPI_Irecv");
      request.push(part);
    });
  }

  /// Combines `count` elements of every rank in place; every rank gets the result.
  template <class T>
  void all_reduce(T* data, std::int64_t count, Reduce reduce = Reduce::sum) const {
    if (size() == 1) return;
    detail::in_chunks(count, [&](std::int64_t at, int length) {
      detail::check_mpi(MPI_Allreduce(MPI_IN_PLACE, data + at, length, detail::mpi_type<T>(),
                                      detail::mpi_operation(reduce), native()),
                        "MPI_Allreduce");
    });
  }

  template <class T>
  T all_reduce(T value, Reduce reduce = Reduce::sum) const {
    all_reduce(&value, 1, reduce);
    return value;
  }

  /// The same, not awaited: `data` belongs to the operation until the request is done.
  template <class T>
  void start_all_reduce(T* data, std::int64_t count, Request<Mpi>& request, Reduce reduce = Reduce::sum) const {
    if (size() == 1) return;
    detail::in_chunks(count, [&](std::int64_t at, int length) {
      MPI_Request part = MPI_REQUEST_NULL;
      detail::check_mpi(MPI_Iallreduce(MPI_IN_PLACE, data + at, length, detail::mpi_type<T>(),
                                       detail::mpi_operation(reduce), native(), &part),
                        "MPI_Iallreduce");
      request.push(part);
    });
  }

  template <class T>
  void broadcast(T* data, std::int64_t count, int root) const {
    detail::in_chunks(count, [&](std::int64_t at, int length) {
      detail::check_mpi(MPI_Bcast(data + at, length, detail::mpi_type<T>(), root, native()), "MPI_Bcast");
    });
  }

  void barrier() const { detail::check_mpi(MPI_Barrier(native()), "MPI_Barrier"); }

 private:
  explicit Communicator(std::shared_ptr<detail::MpiHandle const> handle) : handle_(std::move(handle)) {
    if (handle_->owned) MPI_Comm_set_errhandler(native(), MPI_ERRORS_RETURN);
    detail::check_mpi(MPI_Comm_rank(native(), &rank_), "MPI_Comm_rank");
    detail::check_mpi(MPI_Comm_size(native(), &size_), "MPI_Comm_size");
  }

  std::shared_ptr<detail::MpiHandle const> handle_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace tessera
