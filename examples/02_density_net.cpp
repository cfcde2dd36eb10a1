// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// How wide is the clump? A network learns it from volumes that are cut over the ranks. Without an argument all ranks
// share each volume along its depth; any other cut is given by name: mpirun -n 4 02_density_net sample=2,depth=2

#include <cmath>
#include <cstdint>

// [network]
#include <tessera/tessera.hpp>

using namespace tessera::axes;                                 // Sample Channel Depth Height Width
using Spatial = tessera::Distribution<Sample, Depth, Height>;  // may be cut along these axes, counts at run time
using Whole = tessera::Distribution<Sample>;                   // whole volumes

template <tessera::PartitionPolicy Policy>
tessera::Model<float> density_net(tessera::RankGrid<Policy> const& ranks, tessera::SampleShape<3> const& sample) {
  using namespace tessera;
  return sequential<float>(ranks, sample,  // from here on, each rank works on its part of each volume
                           conv3d<3>(8, same, no_bias), batch_norm(), leaky_relu(0.01), max_pool3d<2>(),
                           residual(conv3d<3>(8, same), relu(), conv3d<3>(8, same)),
                           avg_pool3d<3>(stride(2), padding(1)),  // 4 x 4 x 4 positions are left
                           redistribute<Whole>(), flatten(), dense(16), relu(), dense(1));
}
// [end]

// [source]
/// Samples made on the spot: a clump somewhere in a cube, and as the target how wide it is, from -1 to 1. Anything with
/// these five functions is a source; a rank is asked for no more than the box that it owns.
struct Clumps {
  std::int64_t count;
  std::uint64_t seed;

  std::int64_t size() const { return count; }
  tessera::Shape input_shape() const { return {.depth = 16, .height = 16, .width = 16, .channel = 1}; }
  tessera::Shape target_shape() const { return {.channel = 1}; }

  template <class T>
  void read_input(std::int64_t sample, tessera::Box const& box, T* cells) const {
    double const width = 2.5 + number(sample, 0), d0 = 8 + 3 * number(sample, 1), h0 = 8 + 3 * number(sample, 2),
                 w0 = 8 + 3 * number(sample, 3);
    for (auto d = box[AxisId::depth].begin; d < box[AxisId::depth].end; ++d)
      for (auto h = box[AxisId::height].begin; h < box[AxisId::height].end; ++h)
        for (auto w = box[AxisId::width].begin; w < box[AxisId::width].end; ++w) {
          double const r = std::hypot(double(d) - d0, double(h) - h0, double(w) - w0) / width;
          *cells++ = static_cast<T>(std::exp(-r * r / 2));
        }
  }
  template <class T>
  void read_target(std::int64_t sample, tessera::Box const& box, T* cells) const {
    if (!box.empty()) *cells = static_cast<T>(number(sample, 0));
  }

 private:
  using AxisId = tessera::AxisId;
  /// From -1 to 1; the same on every rank.
  double number(std::int64_t sample, std::int64_t i) const {
    return tessera::random_stream(seed, "clumps").uniform(4 * sample + i, 1.0);
  }
};
// [end]

// [network]
int main(int argc, char** argv) {
  tessera::Environment env(argc, argv);  // starts MPI and Kokkos, unless they run already
  auto const cut = argc > 1 ? tessera::parse_counts(argv[1]) : tessera::Counts{.depth = env.world().size()};
  tessera::RankGrid<Spatial> ranks(env.world(), cut);

  Clumps training{.count = 96, .seed = 1}, validation{.count = 32, .seed = 2};
  auto net = density_net(ranks, {.channels = 1, .space = {16, 16, 16}});
  // [end]
  // [summary]
  tessera::summary(env.out(), net, 8);  // batches of 8 samples; on the first rank, which alone prints
  // [end]
  // [network]
  tessera::Trainer trainer(net, tessera::Adam{.rate = 3e-3}, tessera::MeanSquaredError{});
  auto const epochs = trainer.fit(training, validation, {.epochs = 6, .batch = 8, .seed = 1});
  env.out() << "validation error " << epochs.back().validation_loss << ", where always answering 0 makes 0.33\n";
  return epochs.back().validation_loss < 0.05 ? 0 : 1;
}
// [end]
