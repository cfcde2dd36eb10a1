// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Heat spreads in a periodic box: du/dt = laplace(u), in explicit time steps, on as many ranks as the program is
// started with: mpirun -n 4 01_heat

#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>

#include "tessera/comm/environment.hpp"
#include "tessera/exchange/halo.hpp"

constexpr std::int64_t n = 32;  // cells along each side of the box, whose length is 1
constexpr double rate = 0.1;    // time step / cell size^2; the scheme is stable up to 1/6
constexpr double pi = std::numbers::pi;

// A wave of height 1: the box's slowest one along each axis.
KOKKOS_INLINE_FUNCTION double wave(std::int64_t d, std::int64_t h, std::int64_t w) {
  constexpr double turn = 2 * pi / n;
  return Kokkos::sin(turn * double(d)) * Kokkos::sin(turn * double(h)) * Kokkos::sin(turn * double(w));
}

// Kernels are plain Kokkos. A tile is addressed by (sample, depth, height, width, channel), in indices of the whole
// box: no kernel knows how the box is cut.
struct Begin {
  tessera::Tile<double> u;
  KOKKOS_FUNCTION void operator()(std::int64_t d, std::int64_t h, std::int64_t w) const {
    u(0, d, h, w, 0) = wave(d, h, w);
  }
};

struct Step {
  tessera::Tile<double const> u;
  tessera::Tile<double> next;
  KOKKOS_FUNCTION void operator()(std::int64_t d, std::int64_t h, std::int64_t w) const {
    double const around = u(0, d - 1, h, w, 0) + u(0, d + 1, h, w, 0) + u(0, d, h - 1, w, 0) + u(0, d, h + 1, w, 0) +
                          u(0, d, h, w - 1, 0) + u(0, d, h, w + 1, 0);
    next(0, d, h, w, 0) = u(0, d, h, w, 0) + rate * (around - 6 * u(0, d, h, w, 0));
  }
};

struct Deviation {
  tessera::Tile<double const> u;
  double height_of_wave;
  KOKKOS_FUNCTION void operator()(std::int64_t d, std::int64_t h, std::int64_t w, double& largest) const {
    largest = Kokkos::max(largest, Kokkos::abs(u(0, d, h, w, 0) - height_of_wave * wave(d, h, w)));
  }
};

int main(int argc, char** argv) {
  // MPI and Kokkos start here, and end with the program.
  tessera::Environment env(argc, argv);

  // [cut]
  // The box is cut along its depth, into as many slabs as there are ranks. Any other cut changes these two lines only:
  // Distribution<Depth, Width>, and ranks(env.world(), {.depth = 2, .width = 2}), make four columns.
  using Cut = tessera::Distribution<tessera::axes::Depth>;
  tessera::RankGrid<Cut> ranks(env.world());
  // [end]

  // [halo]
  // Two fields of n^3 cells. Each rank stores its own cells, and one more on every side: what the stencil reads there
  // belongs to other ranks, or comes around from the far side of the box. A halo fetches it.
  tessera::Tensor<double, 3, Cut> u(ranks, {.space = {n, n, n}}, 1), next(ranks, {.space = {n, n, n}}, 1);
  tessera::Halo halo(u, 1, tessera::Padding::circular);
  // [end]

  // Kernels run over the cells that this rank owns.
  auto const& [samples, depth, height, width, channels] = u.owned().axis;
  Kokkos::MDRangePolicy<Kokkos::Rank<3>, Kokkos::IndexType<std::int64_t>> const cells(
      {depth.begin, height.begin, width.begin}, {depth.end, height.end, width.end});

  // [steps]
  // The simulation itself.
  int const steps = 100;
  Kokkos::parallel_for("begin", cells, Begin{u.tile()});
  for (int step = 0; step < steps; ++step) {
    halo.fill(u);
    Kokkos::parallel_for("step", cells, Step{u.tile(), next.tile()});
    std::swap(u, next);
  }
  // [end]

  // The exact solution is the same wave, lower: each axis lowers it by exp(-(2 pi)^2 t).
  double const time = steps * rate / double(n * n), exact = std::exp(-3 * std::pow(2 * pi, 2) * time);
  double error = 0;
  Kokkos::parallel_reduce("deviation", cells, Deviation{u.tile(), exact}, Kokkos::Max<double>(error));
  error = ranks.world().all_reduce(error, tessera::Reduce::max);

  env.out() << "heat: after " << steps << " steps the wave is " << exact << " high; largest error " << error << '\n';
  return error < 0.005 * exact ? 0 : 1;  // second order in the cell size, first in the time step
}
