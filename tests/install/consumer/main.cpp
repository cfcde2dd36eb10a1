// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include <tessera/tessera.hpp>

#include <vector>

int main(int argc, char** argv) {
  using namespace tessera;
  using namespace tessera::axes;
  Environment const env{argc, argv};
  return env.guard([&] {
    // Samples of 4 x 4 x 4 cells, cut along depth over all ranks.
    RankGrid<Distribution<Depth>> const ranks(env.world());
    io::MemorySource<float> data({.depth = 4, .height = 4, .width = 4}, std::vector<float>(2 * 64, 0.5f), {},
                                 {1.0f, 2.0f});
    Trainer trainer{sequential<float>(ranks, SampleShape<3>{.space = {4, 4, 4}}, conv3d<3>(2, same), avg_pool3d<2>(),
                                      redistribute<Distribution<Sample>>(), flatten(), dense(1)),
                    Sgd{.rate = 0.01}, MeanSquaredError{}};
    double const before = trainer.step(data, {0, 1}, {}), after = trainer.evaluate(data, 2);
    env.out() << "consumer: Tessera " << version.major_number << '.' << version.minor_number << " on " << ranks.size()
              << " ranks, one step takes the loss from " << before << " to " << after << '\n';
    return after < before ? 0 : 1;
  });
}
