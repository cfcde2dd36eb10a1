// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A training with a checkpoint every second step, for kill.py to kill: killed <folder> <epochs>. It goes on from what
// it finds in the folder, and at its end says in one line all that came of it.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/io/checkpoint_folder.hpp"
#include "tessera/io/sample_store.hpp"
#include "tessera/io/source.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/batch_norm.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/flat_dense.hpp"
#include "tessera/model/model.hpp"
#include "tessera/train/trainer.hpp"

namespace {

using namespace tessera;
using Split = Distribution<axes::Channel, axes::Depth>;

constexpr Shape input_shape{1, 12, 12, 12, 4}, target_shape{1, 1, 1, 1, 2};

io::MemorySource<float> numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<float> x, y;
  RandomStream const inputs = random_stream(seed, "inputs"), targets = random_stream(seed, "targets");
  for (std::int64_t i = 0; i < count * input_shape.volume(); ++i)
    x.push_back(static_cast<float>(inputs.uniform(i, 1.0)));
  for (std::int64_t i = 0; i < count * target_shape.volume(); ++i)
    y.push_back(static_cast<float>(targets.uniform(i, 1.0)));
  return {input_shape, x, target_shape, y};
}

/// The same as a file would hold them, for a thread to read.
struct Stored {
  io::MemorySource<float> data;
  std::int64_t size() const { return data.size(); }
  io::StoredField field(io::Part part) const { return {part == io::Part::input ? input_shape : target_shape}; }
  void read_stored(io::Part part, std::int64_t sample, Box const& box, std::byte* cells) const {
    auto* const to = reinterpret_cast<float*>(cells);
    part == io::Part::input ? data.read_input(sample, box, to) : data.read_target(sample, box, to);
  }
};

int run(Environment const& env, std::string const& folder, std::int64_t epochs) {
  auto const world = env.world();
  if (world.rank() == 0) std::printf("killed: began\n");
  std::fflush(stdout);
  int const ranks = world.size();
  RankGrid<Split> const grid(world, {.channel = ranks % 2 == 0 ? 2 : 1, .depth = ranks % 2 == 0 ? ranks / 2 : ranks});
  auto const net =
      sequential<float>(grid, SampleShape<3>{.channels = 4, .space = {12, 12, 12}}, conv3d<3>(16, same), batch_norm(),
                        leaky_relu(0.01), conv3d<3>(16, stride(2), padding(1)), batch_norm(), leaky_relu(0.01),
                        dropout(0.2), dense(64, flattened), leaky_relu(0.01), dropout(0.2), dense(2));
  io::StoreOptions const keep{.budget_bytes = std::int64_t{200} << 10,
                              .augmentation = {.flips = true, .rotations = true}};
  io::SampleStore data(grid, Stored{numbers(20, 3)}, keep);
  auto validation = numbers(6, 4);
  // [train]
  Trainer trainer{net, Adam{.rate = 1e-3}, MeanSquaredError{}};
  FitOptions options{.epochs = epochs, .batch = 3, .seed = 5};
  options.schedule = warm_up(5, linear_decay(10, 7 * epochs));

  io::CheckpointFolder checkpoints(world, folder, {.every = 2, .keep = 2, .resume = true});
  std::string const from = checkpoints.attach(trainer, options).path;
  if (world.rank() == 0) std::printf("killed: goes on from '%s'\n", from.c_str());
  auto const reports = trainer.fit(data, validation, options);
  // [end]
  std::uint64_t sum = 0;
  for (auto const* p : net.parameters()) sum = sum * 31 + p->checksum();
  auto const& states = trainer.optimizer().states(net.parameters());
  for (std::size_t i = 0; i < states.size(); ++i)
    for (auto const& state : states[i])
      for (float const number : net.parameters()[i]->download(state))
        sum = sum * 31 + std::bit_cast<std::uint32_t>(number);
  sum = world.all_reduce(sum);
  std::string said = "killed: outcome";
  for (EpochReport const& r : reports) {
    char text[96] = {};
    std::snprintf(text, sizeof text, " %lld:%a,%a", static_cast<long long>(r.step), r.train_loss, r.validation_loss);
    said += text;
  }
  if (world.rank() == 0) std::printf("%s, sum %016llx\n", said.c_str(), static_cast<unsigned long long>(sum));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Environment const env{argc, argv};
  return env.guard([&] {
    require(argc == 3, "killed", "needs a folder and a number of epochs");
    return run(env, argv[1], std::atoll(argv[2]));
  });
}
