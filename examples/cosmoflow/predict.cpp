// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "predict.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "networks.hpp"
#include "tessera/io/hdf5.hpp"
#include "tessera/io/weights.hpp"
#include "tessera/io/whole_file.hpp"

namespace cosmoflow {

CLI::App* add_predict(CLI::App& app, PredictOptions& o) {
  CLI::App* const sub = app.add_subcommand("predict", "Predict the parameters of universes with trained weights");
  sub->add_option("--data", o.data, "HDF5 file with x (N,D,H,W,C) and y (N,4)")->required();
  sub->add_option("--weights", o.weights, "HDF5 file that train wrote")->required();
  sub->add_option("--out", o.out, "JSON file for true and predicted values")->required();
  sub->add_option("--split", o.split, "How samples are cut, such as sample=2,depth=2 (default: all ranks along depth)");
  sub->add_option("--network", o.network, "The network that was trained: paper or mlperf")->capture_default_str();
  sub->add_option("--batch", o.batch, "Samples at a time, over all ranks")->capture_default_str();
  sub->add_flag("--norm,!--no-norm", o.norm, "Whether it was trained with batch norm (default: on)");
  sub->add_flag("--log,!--raw", o.log_input, "Whether it was trained on log(1 + counts) (default: on)");
  return sub;
}

void predict(PredictOptions const& o, tessera::Communicator<tessera::Mpi> const& world) {
  tessera::require(o.batch >= 1, "predict", "--batch must be at least 1, it is ", o.batch);
  tessera::Counts const counts = split(o.split, world.size());
  tessera::RankGrid<Spatial> const ranks(world, counts);
  std::optional<tessera::io::Hdf5Source> source;
  tessera::agreed(world, [&] {
    using tessera::io::Transform;
    source.emplace(world, o.data,
                   tessera::io::Hdf5Schema{.transform = {o.log_input ? Transform::log1p : Transform::none}});
    if (world.rank() == 0) tessera::io::check_place("predict", o.out);
  });
  tessera::io::Hdf5Source& data = *source;
  auto net = network<float>(o.network, ranks, data.sample_shape(), o.norm);
  net.allocate(std::min(o.batch, data.size()));
  tessera::io::load_weights(net, o.weights);
  std::vector<float> const predicted = tessera::predict(net, data, o.batch);

  nlohmann::ordered_json out{{"true", nlohmann::json::array()}, {"predicted", nlohmann::json::array()}};
  auto const values = static_cast<std::size_t>(data.target_shape().channel);
  std::vector<double> truth(values);
  for (std::int64_t i = 0; i < data.size(); ++i) {
    data.read_target(i, data.target_shape().box(), truth.data());
    auto const from = predicted.begin() + i * data.target_shape().channel;
    out["true"].push_back(truth);
    out["predicted"].push_back(std::vector<float>(from, from + data.target_shape().channel));
  }
  tessera::agreed(world, [&] {
    if (world.rank() != 0) return;
    tessera::io::write_whole_file("predict", o.out, out.dump(1) + '\n');
    std::printf("predict: wrote '%s', %lld universes\n", o.out.c_str(), static_cast<long long>(data.size()));
  });
}

}  // namespace cosmoflow
