// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "train.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "networks.hpp"
#include "tessera/io/checkpoint_folder.hpp"
#include "tessera/io/hdf5.hpp"
#include "tessera/io/sample_store.hpp"
#include "tessera/io/weights.hpp"
#include "tessera/io/whole_file.hpp"

namespace cosmoflow {
namespace {

using Real = float;
using Json = nlohmann::ordered_json;

constexpr std::array<char const*, 4> names{"omega_m", "sigma_8", "n_s", "h"};

/// Per target value: the mean over a source.
std::vector<double> mean_target(tessera::io::Hdf5Source& data) {
  std::int64_t const values = data.target_shape().channel;
  std::vector<double> mean(static_cast<std::size_t>(values), 0.0), one(mean);
  for (std::int64_t i = 0; i < data.size(); ++i) {
    data.read_target(i, data.target_shape().box(), one.data());
    for (std::size_t k = 0; k < mean.size(); ++k) mean[k] += one[k] / static_cast<double>(data.size());
  }
  return mean;
}

/// Per target value: squared error of the predictions / squared error of always predicting `mean`.
std::vector<double> error_ratios(tessera::io::Hdf5Source& data, std::vector<Real> const& predicted,
                                 std::vector<double> const& mean) {
  std::vector<double> error(mean.size(), 0.0), spread(error), truth(error);
  for (std::int64_t i = 0; i < data.size(); ++i) {
    data.read_target(i, data.target_shape().box(), truth.data());
    for (std::size_t k = 0; k < mean.size(); ++k) {
      double const p = static_cast<double>(predicted[static_cast<std::size_t>(i) * mean.size() + k]);
      error[k] += (p - truth[k]) * (p - truth[k]);
      spread[k] += (mean[k] - truth[k]) * (mean[k] - truth[k]);
    }
  }
  for (std::size_t k = 0; k < mean.size(); ++k) error[k] /= spread[k];
  return error;
}

void check(TrainOptions const& o) {
  using tessera::require;
  require(o.batch >= 1, "train", "--batch must be at least 1, it is ", o.batch);
  require(o.micro_batch >= 0, "train", "--micro-batch must be at least 0, it is ", o.micro_batch);
  require(o.epochs >= 1, "train", "--epochs must be at least 1, it is ", o.epochs);
  require(o.every >= 0, "train", "--every must be at least 0, it is ", o.every);
  require(o.keep >= 1, "train", "--keep must be at least 1, it is ", o.keep);
  require(o.memory >= -1, "train", "--memory must be at least 0, or -1 for no limit, it is ", o.memory);
  require(o.ahead >= 0 && o.ahead <= 1000, "train", "--ahead must be between 0 and 1000, it is ", o.ahead);
  require(o.rate > 0.0 && std::isfinite(o.rate), "train", "--rate must be positive and finite, it is ", o.rate);
}

/// "16 x 16 x 16 x 1 cells with 4 values".
std::string sample_text(tessera::io::Hdf5Source const& data) {
  tessera::Shape const s = data.input_shape();
  return tessera::detail::text(s.depth, " x ", s.height, " x ", s.width, " x ", s.channel, " cells with ",
                               data.target_shape().channel, " values");
}

/// The samples must fit the network and each other.
void check(TrainOptions const& o, tessera::io::Hdf5Source const& data,
           std::optional<tessera::io::Hdf5Source> const& validation) {
  auto const values = data.target_shape().channel;
  auto const outputs = static_cast<std::int64_t>(names.size());
  tessera::require(values == outputs, "train", "dataset 'y' of '", o.data, "' must hold the ", outputs,
                   " values that the network predicts, but it holds ", values);
  if (!validation) return;
  tessera::require(validation->input_shape() == data.input_shape() && validation->target_shape() == data.target_shape(),
                   "train", "'", o.validation, "' must hold samples like those of '", o.data, "', ", sample_text(data),
                   ", but its samples have ", sample_text(*validation));
}

/// One line that follows the training, on a terminal in place, else now and then.
class ProgressLine {
 public:
  explicit ProgressLine(bool speaks) : speaks_(speaks) {}

  void operator()(tessera::StepReport const& r) {
    bool const last = r.samples_done == r.samples_in_all;
    if (!speaks_ || (r.seconds < next_ && !last)) return;
    next_ = r.seconds + 2.0;
    double const rate = static_cast<double>(r.samples_done) / r.seconds;
    std::printf("train: epoch %lld, step %lld, loss %.4f, %.1f samples/s, %.0f s left\n",
                static_cast<long long>(r.epoch), static_cast<long long>(r.step), r.loss, rate,
                static_cast<double>(r.samples_in_all - r.samples_done) / rate);
    std::fflush(stdout);
  }

 private:
  bool speaks_;
  double next_ = 0.0;
};

/// Where a training begins that has checkpoints.
void say(bool speaks, tessera::io::Resumed const& from, TrainOptions const& o) {
  if (!speaks || !o.resume) return;
  if (!from.refused.empty()) std::printf("train: %s\n", from.refused.c_str());
  if (from.path.empty())
    std::printf("train: no checkpoint in '%s' yet: training begins\n", o.checkpoint.c_str());
  else
    std::printf("train: goes on from '%s'\n", from.path.c_str());
  std::fflush(stdout);
}

}  // namespace

CLI::App* add_train(CLI::App& app, TrainOptions& o) {
  CLI::App* const sub =
      app.add_subcommand("train", "Train a network on simulated universes, cut over the ranks as --split says");
  sub->add_option("--data", o.data, "HDF5 file with x (N,D,H,W,C) and y (N,4)")->required();
  sub->add_option("--validation", o.validation, "HDF5 file of the same form, to validate on after each epoch");
  sub->add_option("--split", o.split,
                  "How samples are cut, such as sample=2,depth=2,height=1,width=1; the product is the number of ranks "
                  "(default: all ranks along depth)");
  sub->add_option("--network", o.network, "Which CosmoFlow: paper (Oyama et al. 2021) or mlperf")
      ->capture_default_str();
  sub->add_option("--batch", o.batch, "Samples per optimizer step, over all ranks")->capture_default_str();
  sub->add_option("--micro-batch", o.micro_batch, "Samples at a time; gradients accumulate over a batch (0: all)")
      ->capture_default_str();
  sub->add_option("--epochs", o.epochs, "Passes over the data")->capture_default_str();
  sub->add_option("--rate", o.rate, "Learning rate of Adam at the start")->capture_default_str();
  sub->add_option("--seed", o.seed, "Of initial weights, order, dropout and flips")->capture_default_str();
  sub->add_flag("--norm,!--no-norm", o.norm, "Batch norm after each convolution (default: on)");
  sub->add_flag("--flips,!--no-flips", o.flips, "Mirror universes at random (default: on)");
  sub->add_flag("--rotations", o.rotations, "Turn universes by quarters at random");
  sub->add_option("--memory", o.memory,
                  "MiB of universes that each rank keeps in memory once it has read them, and as much of those to "
                  "validate on; others are read again in every epoch (-1: no limit)")
      ->capture_default_str();
  sub->add_flag("--preload", o.preload, "Read all universes that fit into memory before training begins");
  sub->add_option("--ahead", o.ahead, "Read this many micro-batches ahead on a thread of its own (0: none)")
      ->capture_default_str();
  sub->add_flag("--decay,!--constant-rate", o.decay,
                "Let the rate rise over the first tenth, and fall linearly to zero from a third on (default: on)");
  sub->add_flag("--log,!--raw", o.log_input, "Train on log(1 + counts) (default: on)");
  sub->add_option("--metrics", o.metrics, "JSON file for losses, ratios and bytes read");
  sub->add_option("--weights", o.weights, "HDF5 file for the trained weights");
  auto* const folder = sub->add_option("--checkpoint", o.checkpoint,
                                       "Folder for checkpoints, one at the end of each epoch, and of the best of them");
  sub->add_option("--every", o.every, "Write a checkpoint every so many steps too (0: at the ends of epochs alone)")
      ->capture_default_str()
      ->needs(folder);
  sub->add_option("--keep", o.keep, "How many of the newest checkpoints stay")->capture_default_str()->needs(folder);
  auto* const resume =
      sub->add_flag("--resume", o.resume, "Go on from the newest checkpoint, if there is one")->needs(folder);
  sub->add_flag("--use-previous", o.use_previous,
                "Where the newest checkpoint cannot be used, go on from the newest that can")
      ->needs(resume);
  return sub;
}

void train(TrainOptions const& o, tessera::Communicator<tessera::Mpi> const& world) {
  check(o);
  tessera::Counts const counts = split(o.split, world.size());
  tessera::RankGrid<Spatial> const ranks(world, counts);

  using tessera::io::Transform;
  tessera::io::Hdf5Schema const form{.transform = {o.log_input ? Transform::log1p : Transform::none}};
  using tessera::io::Hdf5Source;
  using Store = tessera::io::SampleStore<Hdf5Source>;
  std::optional<Hdf5Source> training, validating;
  tessera::agreed(world, [&] {
    training.emplace(world, o.data, form);
    if (!o.validation.empty()) validating.emplace(world, o.validation, form);
    check(o, *training, validating);
    for (std::string const& path : {o.metrics, o.weights})
      if (!path.empty() && world.rank() == 0) tessera::io::check_place("train", path);
  });
  tessera::io::StoreOptions keep{.preload = o.preload, .ahead = static_cast<int>(o.ahead)};
  if (o.memory >= 0) keep.budget_bytes = o.memory << 20;
  std::optional<Store> validation;
  if (validating) validation.emplace(ranks, std::move(*validating), keep);
  keep.augmentation = {.flips = o.flips, .rotations = o.rotations, .seed = o.seed};
  Store data(ranks, std::move(*training), keep);

  auto net = network<Real>(o.network, ranks, data.source().sample_shape(), o.norm);
  bool const speaks = world.rank() == 0;
  if (speaks) {
    std::printf("train: %lld universes of %lld x %lld x %lld x %lld, network '%s' with %lld parameters, split %s\n",
                static_cast<long long>(data.size()), static_cast<long long>(data.input_shape().depth),
                static_cast<long long>(data.input_shape().height), static_cast<long long>(data.input_shape().width),
                static_cast<long long>(data.input_shape().channel), o.network.c_str(),
                static_cast<long long>(net.parameter_count()), tessera::to_text(counts).c_str());
    std::fflush(stdout);
  }

  tessera::Trainer trainer{net, tessera::Adam{.rate = o.rate}, tessera::MeanSquaredError{}};
  std::int64_t const steps = o.epochs * ((data.size() + o.batch - 1) / o.batch);
  tessera::FitOptions fit{.epochs = o.epochs, .batch = o.batch, .micro_batch = o.micro_batch, .seed = o.seed};
  // Adam's first steps are as large as all others, and too large before its averages mean anything; and running
  // statistics follow the weights only as the rate falls.
  if (o.decay && steps >= 10) fit.schedule = tessera::warm_up(steps / 10, tessera::linear_decay(steps / 3, steps));
  ProgressLine line(speaks);
  fit.on_step = std::ref(line);
  fit.on_epoch = [&](tessera::EpochReport const& r) {
    if (speaks && validation)
      std::printf("train: epoch %lld of %lld: loss %.4f, validation %.4f, %.1f s\n", static_cast<long long>(r.epoch),
                  static_cast<long long>(o.epochs), r.train_loss, r.validation_loss, r.seconds);
  };
  std::optional<tessera::io::CheckpointFolder> checkpoints;
  if (!o.checkpoint.empty()) {
    checkpoints.emplace(world, o.checkpoint,
                        tessera::io::CheckpointOptions{
                            .every = o.every, .keep = o.keep, .resume = o.resume, .use_previous = o.use_previous});
    say(speaks, checkpoints->attach(trainer, fit), o);
  }
  auto const reports = validation ? trainer.fit(data, *validation, fit) : trainer.fit(data, fit);
  std::int64_t const at_a_time = o.micro_batch > 0 ? o.micro_batch : o.batch;
  if (o.norm) trainer.refresh_statistics(data, at_a_time);
  Json epochs = Json::array();
  for (tessera::EpochReport const& r : reports) {
    Json entry{{"epoch", r.epoch}, {"train_loss", r.train_loss}, {"seconds", r.seconds}};
    if (std::isfinite(r.validation_loss)) entry["validation_loss"] = r.validation_loss;
    epochs.push_back(entry);
  }

  std::int64_t const bytes = data.source().bytes_read(), most = world.all_reduce(bytes, tessera::Reduce::max),
                     all = world.all_reduce(bytes);
  Json metrics{{"network", o.network},
               {"ranks", world.size()},
               {"split", tessera::to_text(counts)},
               {"parameters", net.parameter_count()},
               {"epochs", epochs},
               {"bytes_read_most", most},
               {"bytes_read_all", all}};
  if (speaks)
    std::printf("train: read %.1f MB of training data in all, %.1f MB on the busiest rank\n",
                static_cast<double>(all) / 1e6, static_cast<double>(most) / 1e6);
  if (speaks && data.kept_samples() < data.size()) std::printf("train: %s\n", data.report().c_str());
  if (validation) {
    auto const ratios =
        error_ratios(validation->source(), tessera::predict(net, *validation, at_a_time), mean_target(data.source()));
    for (std::size_t k = 0; k < names.size(); ++k) {
      metrics["ratios"][names[k]] = ratios[k];
      if (speaks) std::printf("train: %s: validation error / error of the mean = %.3f\n", names[k], ratios[k]);
    }
  }
  tessera::agreed(world, [&] {
    if (speaks && !o.metrics.empty()) tessera::io::write_whole_file("train", o.metrics, metrics.dump(2) + '\n');
  });
  if (!o.weights.empty()) tessera::io::save_weights(net, o.weights);
}

}  // namespace cosmoflow
