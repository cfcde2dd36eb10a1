// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// An application that has MPI, Kokkos, its ranks, its memory and its blocks already: it lends three of its four ranks
// and its own views to Tessera for a halo exchange, and goes on afterwards as if nothing had been.

#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iterator>

#include "tessera/comm/environment.hpp"
#include "tessera/exchange/halo.hpp"

namespace {

int failures = 0;

void check(bool holds, char const* what) {
  if (holds) return;
  ++failures;
  std::fprintf(stderr, "embedding: %s must hold\n", what);
}

// [types]
using Rows = tessera::Distribution<tessera::axes::Height>;
using View = Kokkos::View<float*****, Kokkos::LayoutRight, Kokkos::HostSpace>;
using Host = Kokkos::DefaultHostExecutionSpace;
// [end]

/// A 2-D field of 10 x 6 cells with two components; ranks own rows [0,1), [1,7), [7,10), and hold a ghost cell around.
// [blocks]
constexpr std::int64_t height = 10, width = 6;
constexpr std::int64_t boundaries[] = {0, 1, 7, 10};
// [end]

float value(std::int64_t h, std::int64_t w, std::int64_t c) { return static_cast<float>(100 * h + 10 * w + c); }

void exchange_halos(MPI_Comm comm) {
  using namespace tessera;
  int rank = 0;
  MPI_Comm_rank(comm, &rank);

  // [memory]
  // The application's own memory: allocated and filled without Tessera.
  std::int64_t const begin = boundaries[rank], end = boundaries[rank + 1];
  View const cells("the application's cells", 1, 1, static_cast<std::size_t>(end - begin + 2),
                   static_cast<std::size_t>(width + 2), 2);
  Kokkos::deep_copy(cells, -1.0f);
  auto const cell = [&](std::int64_t h, std::int64_t w, std::int64_t c) -> float& {
    return cells(0, 0, h - begin + 1, w + 1, c);
  };
  // [end]
  for (std::int64_t h = begin; h < end; ++h)
    for (std::int64_t w = 0; w < width; ++w)
      for (std::int64_t c = 0; c < 2; ++c) cell(h, w, c) = value(h, w, c);

  // [wrap]
  RankGrid<Rows> const ranks(Communicator<Mpi>::borrow(comm));
  Blocks const rows = Blocks::at({std::begin(boundaries), std::end(boundaries)});
  Partition const partition(ranks.grid(), {Blocks(1, 1), Blocks(1, 1), rows, Blocks(width, 1), Blocks(2, 1)});
  Box const held{{{0, 1}, {0, 1}, {begin - 1, end + 1}, {-1, width + 1}, {0, 2}}};
  Tensor<float, 2, Rows, Host> const field(ranks, partition, held, cells);
  // [end]
  check(field.view().data() == cells.data(), "that the application's memory is used as it is");
  // [fill]
  Halo halo(field, 1, Padding::circular);
  halo.fill(field);
  // [end]

  bool right = true;
  for (std::int64_t h = begin - 1; h < end + 1; ++h)
    for (std::int64_t w = -1; w < width + 1; ++w)
      for (std::int64_t c = 0; c < 2; ++c)
        right = right && cell(h, w, c) == value((h + height) % height, (w + width) % width, c);
  check(right, "that the halo in the application's view is that of a periodic field");

  bool refused = false;
  try {
    Tensor<float, 2, Rows, Host> const wrong(ranks, partition, partition.owned(rank), cells);
  } catch (Error const&) {
    refused = true;
  }
  check(refused, "that a view of other extents than the held box is refused");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Kokkos::initialize(argc, argv);
  std::terminate_handler const handler = std::get_terminate();
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);

  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank < 3 ? 0 : MPI_UNDEFINED, rank, &part);
  // [scope]
  if (part != MPI_COMM_NULL) {
    tessera::Environment const env(argc, argv);  // for its error reports; not needed otherwise
    exchange_halos(part);
  }
  // [end]
  check(std::get_terminate() == handler, "that the application's terminate handler is back");

  // Tessera is gone; MPI, the communicator and Kokkos are not.
  if (part != MPI_COMM_NULL) {
    int sum = 1;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, part);
    check(sum == 3, "that the application's communicator goes on");
    MPI_Comm_free(&part);
  }
  int finalized = 1;
  MPI_Finalized(&finalized);
  check(finalized == 0 && Kokkos::is_initialized(), "that MPI and Kokkos still run");
  {
    Kokkos::View<int*> const numbers("numbers", 100);
    Kokkos::deep_copy(numbers, 1);
    auto const mirror = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), numbers);
    int sum = 0;
    for (std::size_t i = 0; i < 100; ++i) sum += mirror(i);
    check(sum == 100, "that Kokkos computes");
  }
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  Kokkos::finalize();
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
