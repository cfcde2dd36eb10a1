// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Branches: squeeze and excitation (Hu et al. 2018) is no layer of the library, but three of its pieces put together. A
// branch looks at the whole volume and says, per channel, how much that channel counts; its answer is multiplied into
// every position of the other branch. Volumes are cut along depth, over as many ranks as the program is started with,
// so the answer belongs to one rank and is needed by all: that is the library's concern.

#include <cstdint>

#include "tessera/tessera.hpp"

using namespace tessera;
using Cut = Distribution<axes::Depth>;

constexpr std::int64_t side = 8;

// A block is a value, made by an ordinary function. Squeeze: one number per channel, the mean over the volume. Excite:
// a few layers on these numbers alone, few channels in the middle. Their last layer keeps the gate between 0 and 1.
// The branch without layers is the input itself, and `multiply` repeats the gate, whose extent is 1 in space, over it.
// [block]
auto squeeze_and_excite(std::int64_t channels, std::int64_t middle) {
  return multiply(branch(), branch(global_avg_pool(), conv3d<1>(middle), relu(),  //
                                   conv3d<1>(channels), sigmoid()));
}
// [end]

// Other joins are written in the same way. A level of a U-Net is concat_skip(layers...): the input, and behind it, in
// channels, what the layers make of it. Here kernels of two sizes look at the same volume, side by side.
// [network]
Model<float> gated_net(RankGrid<Cut> const& ranks) {
  return sequential<float>(ranks, SampleShape<3>{.channels = 2, .space = {side, side, side}},
                           concat(branch(conv3d<1>(2)), branch(conv3d<3>(2, same))),  // four channels
                           squeeze_and_excite(4, 3), global_avg_pool(), dense(1));
}
// [end]

// Volumes of two noisy channels, with means a and b; the target is the product a b. Means alone, weighted in any way,
// do not make products of means: only the gate can.
struct Products {
  std::int64_t count;
  std::uint64_t seed;

  std::int64_t size() const { return count; }
  Shape input_shape() const { return {.depth = side, .height = side, .width = side, .channel = 2}; }
  Shape target_shape() const { return {.channel = 1}; }

  template <class T>
  void read_input(std::int64_t sample, Box const& box, T* cells) const {
    Rows const rows{box};
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      std::int64_t at[4];
      rows.position(row, at);
      for (std::int64_t c = box.axis[4].begin; c < box.axis[4].end; ++c)
        *cells++ = static_cast<T>(mean(sample, c) + noise(sample, ((at[1] * side + at[2]) * side + at[3]) * 2 + c));
    }
  }
  template <class T>
  void read_target(std::int64_t sample, Box const& box, T* cells) const {
    if (!box.empty()) *cells = static_cast<T>(mean(sample, 0) * mean(sample, 1));
  }

 private:
  double mean(std::int64_t sample, std::int64_t c) const {
    return random_stream(seed, "means").uniform(2 * sample + c, 1.0);
  }
  double noise(std::int64_t sample, std::int64_t cell) const {
    return random_stream(seed, "noise").uniform(sample * side * side * side * 2 + cell, 0.3);
  }
};

// Training is as for any network. On one rank nothing moves; on more, only halos, the means, gates and gradients do.
int main(int argc, char** argv) {
  Environment env(argc, argv);
  RankGrid<Cut> const ranks(env.world());
  auto net = gated_net(ranks);
  summary(env.out(), net, 16);

  Trainer trainer(net, Adam{.rate = 1e-2}, MeanSquaredError{});
  Products training{.count = 128, .seed = 1}, validation{.count = 64, .seed = 2};
  auto const epochs = trainer.fit(training, validation, {.epochs = 30, .batch = 16, .seed = 1});
  env.out() << "validation error " << epochs.back().validation_loss << ", where always answering 0 makes 0.11\n";
  return epochs.back().validation_loss < 0.01 ? 0 : 1;
}
