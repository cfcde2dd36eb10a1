// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/comm/mpi.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

using namespace tessera;

namespace {

Communicator<Mpi> world() { return Communicator<Mpi>::borrow(MPI_COMM_WORLD); }

/// Every rank sends three elements to every rank, itself included, and reduces and broadcasts some.
template <class T>
void check_type() {
  auto const ranks = world();
  auto const value = [](int rank, int i) { return static_cast<T>(10 * rank + i); };
  std::vector<T> leaving, arriving(static_cast<std::size_t>(3 * ranks.size()), T(0));
  for (int i = 0; i < 3; ++i) leaving.push_back(value(ranks.rank(), i));
  Request<Mpi> request;
  CHECK(!request.pending());
  CHECK(request.test());
  for (int peer = 0; peer < ranks.size(); ++peer) {
    ranks.receive(arriving.data() + 3 * peer, 3, peer, 7, request);
    ranks.send(leaving.data(), 3, peer, 7, request);
  }
  CHECK(request.pending());
  request.wait();
  CHECK(!request.pending());
  for (int peer = 0; peer < ranks.size(); ++peer)
    for (int i = 0; i < 3; ++i) CHECK(arriving[static_cast<std::size_t>(3 * peer + i)] == value(peer, i));

  T const mine = value(ranks.rank(), 1);
  T sum = T(0);
  for (int peer = 0; peer < ranks.size(); ++peer) sum = static_cast<T>(sum + value(peer, 1));
  CHECK(ranks.all_reduce(mine) == sum);
  CHECK(ranks.all_reduce(mine, Reduce::min) == value(0, 1));
  CHECK(ranks.all_reduce(mine, Reduce::max) == value(ranks.size() - 1, 1));

  std::vector<T> several{mine, T(1)};
  ranks.start_all_reduce(several.data(), 2, request);
  while (!request.test()) {
  }
  CHECK(several == std::vector<T>{sum, static_cast<T>(ranks.size())});

  std::vector<T> root{value(ranks.rank(), 0), value(ranks.rank(), 1)};
  ranks.broadcast(root.data(), 2, ranks.size() - 1);
  CHECK(root == std::vector<T>{value(ranks.size() - 1, 0), value(ranks.size() - 1, 1)});
}

}  // namespace

TEST_CASE("every element type travels") {
  check_type<float>();
  check_type<double>();
  check_type<std::int8_t>();
  check_type<std::uint8_t>();
  check_type<std::int16_t>();
  check_type<std::uint16_t>();
  check_type<std::int32_t>();
  check_type<std::uint32_t>();
  check_type<std::int64_t>();
  check_type<std::uint64_t>();
}

TEST_CASE("a count beyond what one call carries goes in chunks that cover it once") {
  auto const chunks = [](std::int64_t count, std::int64_t most) {
    std::vector<std::pair<std::int64_t, int>> found;
    detail::in_chunks(
        count, [&](std::int64_t at, int length) { found.emplace_back(at, length); }, most);
    return found;
  };
  using List = std::vector<std::pair<std::int64_t, int>>;
  CHECK(chunks(0, 4).empty());
  CHECK(chunks(3, 4) == List{{0, 3}});
  CHECK(chunks(4, 4) == List{{0, 4}});
  CHECK(chunks(9, 4) == List{{0, 4}, {4, 4}, {8, 1}});
  std::int64_t covered = 0;
  std::int64_t const huge = (std::int64_t{1} << 33) + 5;  // 8 Gi elements: 64-bit offsets, int lengths
  detail::in_chunks(huge, [&](std::int64_t at, int length) {
    CHECK(at == covered);
    CHECK(length > 0);
    covered += length;
  });
  CHECK(covered == huge);
}

TEST_CASE("messages of one pair and tag arrive in the order in which they were sent") {
  auto const ranks = world();
  int const next = (ranks.rank() + 1) % ranks.size(), last = (ranks.rank() + ranks.size() - 1) % ranks.size();
  std::vector<int> leaving(50), arriving(50, -1);
  std::iota(leaving.begin(), leaving.end(), 100 * ranks.rank());
  Request<Mpi> request;
  for (int i = 0; i < 50; ++i) ranks.send(&leaving[static_cast<std::size_t>(i)], 1, next, 3, request);
  for (int i = 0; i < 50; ++i) ranks.receive(&arriving[static_cast<std::size_t>(i)], 1, last, 3, request);
  request.wait();
  for (int i = 0; i < 50; ++i) CHECK(arriving[static_cast<std::size_t>(i)] == 100 * last + i);
}

TEST_CASE("communicators split, duplicate and report what MPI refuses") {
  auto const ranks = world();
  auto const copy = ranks.duplicate();
  CHECK(copy.size() == ranks.size());
  CHECK(copy.native() != ranks.native());
  auto const half = ranks.split(ranks.rank() % 2, -ranks.rank());  // odd and even ones, in reverse order
  CHECK(half.size() == (ranks.size() + 1 - ranks.rank() % 2) / 2);
  int const first = (ranks.size() - 1 - ranks.rank() % 2) / 2 * 2 + ranks.rank() % 2;
  CHECK(half.all_reduce(half.rank() == 0 ? ranks.rank() : 0) == first);
  CHECK(ranks.max_tag() >= 32767);
  float cell = 0;
  Request<Mpi> request;
  CHECK_THROWS_AS(copy.send(&cell, 1, copy.size() + 5, 0, request), Error);
  ranks.barrier();
}
