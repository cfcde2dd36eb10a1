// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A layer of one's own: a step of diffusion, whose rate is learnt from fields before and after it. Volumes are cut
// along depth, over as many ranks as the program is started with; the layer knows nothing of that.

#include <cmath>
#include <cstdint>
#include <vector>

#include "tessera/tessera.hpp"

using namespace tessera;
using Host = Kokkos::DefaultHostExecutionSpace;
using Cut = Distribution<axes::Depth>;

// [layer]
/// y = x + rate * (the six neighbours - 6 x), with zeros beyond the border.
struct Diffusion {
  static constexpr char const* kind = "diffusion";  // its parameter is called diffusion1.rate

  /// What an output reads: a window of three cells along depth, height and width.
  Windows windows(Shape const&) const {
    Window const three{.kernel = 3, .low = 1, .high = 1};
    return {{three, three, three}};
  }
  std::vector<ParameterSpec> parameters(Shape const&) const { return {{"rate", {1}, {0}, Initial::value(0.0)}}; }

  void forward(ForwardPass<double, Host> const& p) const {
    for_each_position("diffusion", p.space, p.box, [&](std::int64_t const at[4], Interval channels) {
      for (std::int64_t c = channels.begin; c < channels.end; ++c)
        p.y(at[0], at[1], at[2], at[3], c) = p.x(at[0], at[1], at[2], at[3], c) + p.parameters[0][0] * bend(p.x, at, c);
    });
  }

  /// The adjoint, from dy to dx. This operator is symmetric: both are the same sum.
  void backward(BackwardPass<double, Host> const& p) const {
    for_each_position("diffusion", p.space, p.box, [&](std::int64_t const at[4], Interval channels) {
      for (std::int64_t c = channels.begin; c < channels.end; ++c) {
        double const dx = p.dy(at[0], at[1], at[2], at[3], c) + p.parameters[0][0] * bend(p.dy, at, c);
        double& cell = p.dx(at[0], at[1], at[2], at[3], c);
        cell = p.accumulate == Accumulate::add ? cell + dx : dx;
      }
    });
  }

  /// Adds to the rate's gradient what this rank's outputs contribute; the sum over ranks is not the layer's concern.
  void backward_parameters(ParameterPass<double, Host> const& p) const {
    op::Sums<Host> sums;
    p.gradients[0][0] += *sums.over(p.space, p.box, 1, [&](std::int64_t const at[4], Interval channels, double* sum) {
      for (std::int64_t c = channels.begin; c < channels.end; ++c)
        sum[0] += p.dy(at[0], at[1], at[2], at[3], c) * bend(p.x, at, c);
    });
  }

 private:
  static double bend(Tile<double const> const& u, std::int64_t const at[4], std::int64_t c) {
    std::int64_t const n = at[0], d = at[1], h = at[2], w = at[3];
    return u(n, d - 1, h, w, c) + u(n, d + 1, h, w, c) + u(n, d, h - 1, w, c) + u(n, d, h + 1, w, c) +
           u(n, d, h, w - 1, c) + u(n, d, h, w + 1, c) - 6 * u(n, d, h, w, c);
  }
};
// [end]

/// Fields of random numbers, and what one step of diffusion makes of them.
io::MemorySource<double> fields(std::int64_t samples, double rate) {
  constexpr std::int64_t n = 8;
  std::vector<double> before, after;
  for (std::int64_t i = 0; i < samples * n * n * n; ++i) before.push_back(random_stream(1, "fields").uniform(i, 1.0));
  auto const cell = [&](std::int64_t s, std::int64_t d, std::int64_t h, std::int64_t w) {
    for (std::int64_t const at : {d, h, w})
      if (at < 0 || at >= n) return 0.0;
    return before[static_cast<std::size_t>(((s * n + d) * n + h) * n + w)];
  };
  for (std::int64_t s = 0; s < samples; ++s)
    for (std::int64_t d = 0; d < n; ++d)
      for (std::int64_t h = 0; h < n; ++h)
        for (std::int64_t w = 0; w < n; ++w)
          after.push_back(cell(s, d, h, w) +
                          rate * (cell(s, d - 1, h, w) + cell(s, d + 1, h, w) + cell(s, d, h - 1, w) +
                                  cell(s, d, h + 1, w) + cell(s, d, h, w - 1) + cell(s, d, h, w + 1) -
                                  6 * cell(s, d, h, w)));
  Shape const shape{.depth = n, .height = n, .width = n, .channel = 1};
  return {shape, before, shape, after};
}

int main(int argc, char** argv) {
  Environment env(argc, argv);
  // [use]
  RankGrid<Cut> ranks(env.world());
  auto net = sequential<double, Host>(ranks, SampleShape<3>{.space = {8, 8, 8}}, Diffusion{});
  Trainer trainer(net, Sgd{.rate = 0.02}, MeanSquaredError{});
  // [end]

  double const truth = 0.12;
  auto data = fields(8, truth);
  trainer.fit(data, {.epochs = 10, .batch = 4});
  double const learnt = net.parameters()[0]->download()[0];
  env.out() << "custom_layer: the rate was " << truth << ", and " << learnt << " was learnt\n";
  return std::abs(learnt - truth) < 1e-6 ? 0 : 1;
}
