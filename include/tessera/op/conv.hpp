// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "tessera/op/conv_geometry.hpp"
#include "tessera/op/workspace.hpp"
#include "tessera/tensor/run.hpp"
#include "tessera/tensor/tile.hpp"

#if !defined(__CUDACC__)
#include "tessera/op/cpu/conv.hpp"
#include "tessera/op/cpu/conv_filter.hpp"
#endif

namespace tessera::op {

namespace generic {

/// Every output sums its taps in the order (depth, height, width, input channel), whatever box it is computed in.
template <class T>
struct ConvForward {
  ConvGeometry geometry;
  Tile<T const> x;
  T const* weights;
  T const* bias;
  Tile<T> y;
  Box out;
  Accumulate accumulate;

  TESSERA_HD void operator()(std::int64_t cell) const {
    std::int64_t const channels = out.axis[4].size();
    std::int64_t const co = out.axis[4].begin + cell % channels;
    cell /= channels;
    std::int64_t at[4];
    for (int a = 3; a >= 0; --a) {
      at[a] = out.axis[a].begin + cell % out.axis[a].size();
      cell /= out.axis[a].size();
    }
    Window const* win = geometry.windows.axis;
    std::int64_t const d0 = at[1] * win[0].stride - win[0].low, h0 = at[2] * win[1].stride - win[1].low,
                       w0 = at[3] * win[2].stride - win[2].low;
    T sum = bias == nullptr ? T(0) : bias[co];
    T const* weight = weights + co;
    for (std::int64_t kd = 0; kd < win[0].kernel; ++kd)
      for (std::int64_t kh = 0; kh < win[1].kernel; ++kh)
        for (std::int64_t kw = 0; kw < win[2].kernel; ++kw) {
          T const* in =
              x.position(at[0], d0 + kd * win[0].dilation, h0 + kh * win[1].dilation, w0 + kw * win[2].dilation);
          for (std::int64_t ci = 0; ci < geometry.in_channels; ++ci, weight += geometry.row_step())
            sum += in[ci] * *weight;
        }
    T& target = y(at[0], at[1], at[2], at[3], co);
    target = accumulate == Accumulate::add ? target + sum : sum;
  }
};

/// Gather form: every input sums the outputs that read it, in the order of the taps (geometry: o = (i + low - d j) / s
/// where that division is exact).
template <class T>
struct ConvBackwardData {
  ConvGeometry geometry;
  Tile<T const> dy;
  T const* weights;
  Tile<T> dx;
  Box in;
  Accumulate accumulate;

  TESSERA_HD void operator()(std::int64_t cell) const {
    std::int64_t const channels = in.axis[4].size();
    std::int64_t const ci = in.axis[4].begin + cell % channels;
    cell /= channels;
    std::int64_t at[4];
    for (int a = 3; a >= 0; --a) {
      at[a] = in.axis[a].begin + cell % in.axis[a].size();
      cell /= in.axis[a].size();
    }
    Window const* win = geometry.windows.axis;
    T sum = T(0);
    for (std::int64_t kd = 0; kd < win[0].kernel; ++kd) {
      std::int64_t const d = at[1] + win[0].low - kd * win[0].dilation;
      if (floor_mod(d, win[0].stride) != 0) continue;
      for (std::int64_t kh = 0; kh < win[1].kernel; ++kh) {
        std::int64_t const h = at[2] + win[1].low - kh * win[1].dilation;
        if (floor_mod(h, win[1].stride) != 0) continue;
        for (std::int64_t kw = 0; kw < win[2].kernel; ++kw) {
          std::int64_t const w = at[3] + win[2].low - kw * win[2].dilation;
          if (floor_mod(w, win[2].stride) != 0) continue;
          T const* out =
              dy.position(at[0], floor_div(d, win[0].stride), floor_div(h, win[1].stride), floor_div(w, win[2].stride));
          T const* weight = weights + (((kd * win[1].kernel + kh) * win[2].kernel + kw) * geometry.in_channels + ci) *
                                          geometry.row_step();
          for (std::int64_t co = 0; co < geometry.out_channels; ++co) sum += out[co] * weight[co];
        }
      }
    }
    T& target = dx(at[0], at[1], at[2], at[3], ci);
    target = accumulate == Accumulate::add ? target + sum : sum;
  }
};

/// One weight sums over the outputs in row-major order.
template <class T>
struct ConvBackwardFilter {
  ConvGeometry geometry;
  Tile<T const> x;
  Tile<T const> dy;
  Box out;
  T* dw;

  TESSERA_HD void operator()(std::int64_t weight) const {
    std::int64_t const co = weight % geometry.out_channels, row = weight / geometry.out_channels;
    if (!out.axis[4].contains(co)) return;
    std::int64_t const ci = row % geometry.in_channels, rest = row / geometry.in_channels;
    Window const* win = geometry.windows.axis;
    std::int64_t const kw = rest % win[2].kernel, kh = rest / win[2].kernel % win[1].kernel,
                       kd = rest / win[2].kernel / win[1].kernel;
    T sum = T(0);
    for (std::int64_t n = out.axis[0].begin; n < out.axis[0].end; ++n)
      for (std::int64_t d = out.axis[1].begin; d < out.axis[1].end; ++d)
        for (std::int64_t h = out.axis[2].begin; h < out.axis[2].end; ++h)
          for (std::int64_t w = out.axis[3].begin; w < out.axis[3].end; ++w)
            sum += dy(n, d, h, w, co) * x(n, d * win[0].stride - win[0].low + kd * win[0].dilation,
                                          h * win[1].stride - win[1].low + kh * win[1].dilation,
                                          w * win[2].stride - win[2].low + kw * win[2].dilation, ci);
    dw[row * geometry.row_step() + co] += sum;
  }
};

template <class T>
struct BiasGradient {
  Tile<T const> dy;
  Box out;
  T* db;

  TESSERA_HD void operator()(std::int64_t co) const {
    if (!out.axis[4].contains(co)) return;
    T sum = T(0);
    for (std::int64_t n = out.axis[0].begin; n < out.axis[0].end; ++n)
      for (std::int64_t d = out.axis[1].begin; d < out.axis[1].end; ++d)
        for (std::int64_t h = out.axis[2].begin; h < out.axis[2].end; ++h)
          for (std::int64_t w = out.axis[3].begin; w < out.axis[3].end; ++w) sum += dy(n, d, h, w, co);
    db[co] += sum;
  }
};

/// The convolution's passes by functors that run on any execution space.
struct ConvKernels {
  template <class Space, class T>
  static void forward(Space const& space, ConvGeometry const& geometry, Tile<T const> x, T const* weights,
                      T const* bias, Tile<T> y, Box const& out, Accumulate accumulate, Workspace<T>&, auto&&) {
    run("tessera::conv_forward", space, out.volume(), ConvForward<T>{geometry, x, weights, bias, y, out, accumulate});
  }

  template <class Space, class T>
  static void backward_data(Space const& space, ConvGeometry const& geometry, Tile<T const> dy, T const* weights,
                            Tile<T> dx, Box const& in, Accumulate accumulate, Workspace<T>&, auto&&) {
    run("tessera::conv_backward_data", space, in.volume(),
        ConvBackwardData<T>{geometry, dy, weights, dx, in, accumulate});
  }

  template <class Space, class T>
  static void backward_filter(Space const& space, ConvGeometry const& geometry, Tile<T const> x, Tile<T const> dy,
                              Box const& out, T* dw, T* db, Workspace<T>&, auto&&) {
    run("tessera::conv_backward_filter", space, geometry.weights(), ConvBackwardFilter<T>{geometry, x, dy, out, dw});
    if (db != nullptr) run("tessera::bias_gradient", space, geometry.out_channels, BiasGradient<T>{dy, out, db});
  }
};

}  // namespace generic

/// What a kernel calls between its tasks where it runs on the calling thread, so that communication can progress.
struct NoPoll {
  void operator()() const {}
};

template <class Callable>
concept Poll = std::invocable<Callable const&>;

#if !defined(__CUDACC__)
namespace cpu {

/// The convolution's passes by the kernels that are written for the host's instruction sets, on the threads of a host
/// space; in place, without a launch, where there is one thread or little work.
struct ConvKernels {
  /// Calls worker(0) to worker(count - 1) on the space's threads.
  struct Worker {
    Tasks::Worker run;
    void operator()(std::int64_t worker) const { run(worker); }
  };

  template <class Space>
  static void with_tasks(char const* label, Space const& space, FunctionRef<void()> poll, auto&& body) {
    auto const launch = [&](std::int64_t count, Tasks::Worker worker) {
      Kokkos::parallel_for(
          label,
          Kokkos::RangePolicy<Space, Kokkos::Schedule<Kokkos::Static>, Kokkos::IndexType<std::int64_t>>(
              space, 0, count, Kokkos::ChunkSize(1)),
          Worker{worker});
      space.fence(label);
    };
    body(Tasks(static_cast<std::int64_t>(space.concurrency()), launch, poll));
  }

  template <class Space, class T>
  static void forward(Space const& space, ConvGeometry const& geometry, Tile<T const> x, T const* weights,
                      T const* bias, Tile<T> y, Box const& out, Accumulate accumulate, Workspace<T>& workspace,
                      auto&& poll) {
    with_tasks("tessera::conv_forward", space, poll, [&](Tasks const& tasks) {
      host_conv_forward(tile_kernels<T>(isa()), geometry, x, weights, bias, y, out, accumulate, workspace, tasks);
    });
  }

  template <class Space, class T>
  static void backward_data(Space const& space, ConvGeometry const& geometry, Tile<T const> dy, T const* weights,
                            Tile<T> dx, Box const& in, Accumulate accumulate, Workspace<T>& workspace, auto&& poll) {
    with_tasks("tessera::conv_backward_data", space, poll, [&](Tasks const& tasks) {
      host_conv_backward_data(tile_kernels<T>(isa()), geometry, dy, weights, dx, in, accumulate, workspace, tasks);
    });
  }

  template <class Space, class T>
  static void backward_filter(Space const& space, ConvGeometry const& geometry, Tile<T const> x, Tile<T const> dy,
                              Box const& out, T* dw, T* db, Workspace<T>& workspace, auto&& poll) {
    with_tasks("tessera::conv_backward_filter", space, poll, [&](Tasks const& tasks) {
      host_conv_backward_filter(tile_kernels<T>(isa()), geometry, x, dy, out, dw, db, workspace, tasks);
    });
  }
};

}  // namespace cpu

/// Which kernels a Space and element type use by default: a type, so that functions compiled by nvcc, which sees only
/// the generic ones, have names of their own.
template <class Space, class T>
using ConvKernels =
    std::conditional_t<Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Space::memory_space>::accessible &&
                           Kokkos::SpaceAccessibility<Space, Kokkos::HostSpace>::accessible &&
                           (std::same_as<T, float> || std::same_as<T, double>),
                       cpu::ConvKernels, generic::ConvKernels>;
#else
template <class Space, class T>
using ConvKernels = generic::ConvKernels;
#endif

/// y[o] (+)= bias + sum over taps j and input channels of w[j] x[o * stride - low + dilation * j], on the box `out`. An
/// output's bits depend on neither the box nor the number of threads.
/// Shape: x holds required(out) with all input channels, zeros (or whatever the padding is) included; y holds out; bias
///   may be null, and must be where the sum is added.
/// Moves: nothing.
/// Fails: if TESSERA_ISA names an instruction set that the machine lacks. A layer checks the geometry when it is bound.
template <class Space, class T, Poll Polling = NoPoll, class Kernels = ConvKernels<Space, T>>
void conv_forward(Space const& space, ConvGeometry const& geometry, Tile<std::type_identity_t<T> const> x,
                  std::type_identity_t<T> const* weights, std::type_identity_t<T> const* bias,
                  Tile<std::type_identity_t<T>> y, Box const& out, Workspace<T>& workspace, Polling const& poll = {},
                  Accumulate accumulate = Accumulate::write) {
  if (out.empty()) return;
  Kernels::forward(space, geometry, x, weights, bias, y, out, accumulate, workspace, poll);
}

/// dx[i] (+)= sum over taps j and output channels of w[j] dy[(i + low - dilation * j) / stride] where that division is
/// exact, on the box `in`: the adjoint of conv_forward. A gradient's bits depend on neither the box nor the number of
/// threads. Inputs that no output reads are written as zero.
/// Shape: dy holds touch(in), not clipped, with all output channels, zeros outside the global outputs; dx holds in.
/// Moves: nothing.
/// Fails: as conv_forward.
/// Source: each phase of the strides is a dense correlation, see cpu::PhaseAxis.
template <class Space, class T, Poll Polling = NoPoll, class Kernels = ConvKernels<Space, T>>
void conv_backward_data(Space const& space, ConvGeometry const& geometry, Tile<std::type_identity_t<T> const> dy,
                        std::type_identity_t<T> const* weights, Tile<std::type_identity_t<T>> dx, Box const& in,
                        Accumulate accumulate, Workspace<T>& workspace, Polling const& poll = {}) {
  if (in.empty()) return;
  for (int i = 0; i < 3; ++i)
    if (geometry.windows.axis[i].touch(in.axis[i + 1]).empty()) {  // in a gap of the strides: there may be no dy at all
      if (accumulate == Accumulate::write) fill(space, dx, in, T(0));
      return;
    }
  Kernels::backward_data(space, geometry, dy, weights, dx, in, accumulate, workspace, poll);
}

/// dw[j] += sum over outputs o in the box of x[o * stride - low + dilation * j] dy[o], and db += sum of dy[o] where db
/// is not null. The sums' order is a function of geometry and box: a run repeats bit for bit on any number of threads.
/// Shape: dy holds out; x holds required(out) with all input channels; dw lies as the weights do.
/// Moves: nothing; the caller sums over the ranks.
/// Fails: as conv_forward.
template <class Space, class T, Poll Polling = NoPoll, class Kernels = ConvKernels<Space, T>>
void conv_backward_filter(Space const& space, ConvGeometry const& geometry, Tile<std::type_identity_t<T> const> x,
                          Tile<std::type_identity_t<T> const> dy, Box const& out, std::type_identity_t<T>* dw,
                          std::type_identity_t<T>* db, Workspace<T>& workspace, Polling const& poll = {}) {
  if (out.empty()) return;
  Kernels::backward_filter(space, geometry, x, dy, out, dw, db, workspace, poll);
}

}  // namespace tessera::op
