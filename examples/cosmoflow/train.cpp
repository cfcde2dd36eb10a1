// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "train.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "flipped.hpp"
#include "networks.hpp"
#include "tessera/io/hdf5.hpp"
#include "tessera/io/weights.hpp"

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
std::vector<double> error_ratios(tessera::io::Hdf5Source& data, std::vector<Real> const& predicted, std::vector<double> const& mean) {
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

void write_text(std::string const& path, std::string const& text) {
  std::ofstream out(path);
  out << text << '\n';
  out.flush();
  tessera::require(out.good(), "cosmoflow", "the file '", path, "' must be writable");
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
    std::printf("train: epoch %lld, step %lld, loss %.4f, %.1f samples/s, %.0f s left\n", static_cast<long long>(r.epoch),
                static_cast<long long>(r.step), r.loss, rate,
                static_cast<double>(r.samples_in_all - r.samples_done) / rate);
    std::fflush(stdout);
  }

 private:
  bool speaks_;
  double next_ = 0.0;
};

}  // namespace

CLI::App* add_train(CLI::App& app, TrainOptions& o) {
  CLI::App* const sub = app.add_subcommand("train", "Train a network on simulated universes, cut over the ranks as --split says");
  sub->add_option("--data", o.data, "HDF5 file with x (N,D,H,W,C) and y (N,4)")->required();
  sub->add_option("--validation", o.validation, "HDF5 file of the same form, to validate on after each epoch");
  sub->add_option("--split", o.split,
                  "How samples are cut, such as sample=2,depth=2,height=1,width=1; the product is the number of ranks "
                  "(default: all ranks along depth)");
  sub->add_option("--network", o.network, "Which CosmoFlow: paper (Oyama et al. 2021) or mlperf")->capture_default_str();
  sub->add_option("--batch", o.batch, "Samples per optimizer step, over all ranks")->capture_default_str();
  sub->add_option("--micro-batch", o.micro_batch, "Samples at a time; gradients accumulate over a batch (0: all)")->capture_default_str();
  sub->add_option("--epochs", o.epochs, "Passes over the data")->capture_default_str();
  sub->add_option("--rate", o.rate, "Learning rate of Adam at the start")->capture_default_str();
  sub->add_option("--seed", o.seed, "Of initial weights, order, dropout and flips")->capture_default_str();
  sub->add_flag("--norm,!--no-norm", o.norm, "Batch norm after each convolution (default: on)");
  sub->add_flag("--flips,!--no-flips", o.flips, "Mirror universes at random (default: on)");
  sub->add_flag("--decay,!--constant-rate", o.decay, "Let the rate fall linearly to zero (default: on)");
  sub->add_flag("--log,!--raw", o.log_input, "Train on log(1 + counts) (default: on)");
  sub->add_option("--metrics", o.metrics, "JSON file for losses, ratios and bytes read");
  sub->add_option("--weights", o.weights, "HDF5 file for the trained weights");
  return sub;
}

void train(TrainOptions const& o, tessera::Communicator<tessera::Mpi> const& world) {
  tessera::require(o.batch >= 1 && o.micro_batch >= 0 && o.epochs >= 1, "train",
                   "--batch and --epochs must be at least 1 and --micro-batch at least 0, but they are ", o.batch, ", ", o.epochs,
                   " and ", o.micro_batch);
  tessera::require(o.rate > 0.0, "train", "--rate must be positive, it is ", o.rate);
  tessera::Counts counts{.depth = world.size()};
  if (!o.split.empty()) counts = tessera::parse_counts(o.split);
  tessera::RankGrid<Spatial> const ranks(world, counts);

  tessera::io::Hdf5Options const form{.transform = o.log_input ? tessera::io::Transform::log1p : tessera::io::Transform::none};
  tessera::io::Hdf5Source data(o.data, form);
  std::optional<tessera::io::Hdf5Source> validation;
  if (!o.validation.empty()) validation.emplace(o.validation, form);

  auto net = network<Real>(o.network, ranks, data.sample_shape(), o.norm);
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
  Flipped<tessera::io::Hdf5Source> flipped(data, o.seed);
  std::int64_t const steps = o.epochs * ((data.size() + o.batch - 1) / o.batch);
  Json epochs = Json::array();
  tessera::FitOptions fit{.epochs = o.epochs, .batch = o.batch, .micro_batch = o.micro_batch, .seed = o.seed};
  // The first half at full rate: batch statistics settle only as the rate falls.
  if (o.decay && steps > 1) fit.schedule = tessera::linear_decay(steps / 3, steps);
  ProgressLine line(speaks);
  fit.on_step = std::ref(line);
  fit.on_epoch = [&](tessera::EpochReport const& r) {
    flipped.set_epoch(r.epoch);
    Json entry{{"epoch", r.epoch}, {"train_loss", r.train_loss}, {"seconds", r.seconds}};
    if (std::isfinite(r.validation_loss)) entry["validation_loss"] = r.validation_loss;
    epochs.push_back(entry);
    if (speaks && validation)
      std::printf("train: epoch %lld of %lld: loss %.4f, validation %.4f, %.1f s\n", static_cast<long long>(r.epoch),
                  static_cast<long long>(o.epochs), r.train_loss, r.validation_loss, r.seconds);
  };
  auto const run = [&](auto& source) {
    if (validation) trainer.fit(source, *validation, fit);
    else trainer.fit(source, fit);
  };
  if (o.flips) run(flipped);
  else run(data);
  if (o.norm) trainer.refresh_statistics(data, o.batch);

  std::int64_t const most = world.all_reduce(data.bytes_read(), tessera::Reduce::max), all = world.all_reduce(data.bytes_read());
  Json metrics{{"network", o.network}, {"ranks", world.size()}, {"split", tessera::to_text(counts)},
               {"parameters", net.parameter_count()}, {"epochs", epochs}, {"bytes_read_most", most}, {"bytes_read_all", all}};
  if (speaks)
    std::printf("train: read %.1f MB of training data in all, %.1f MB on the busiest rank\n", static_cast<double>(all) / 1e6,
                static_cast<double>(most) / 1e6);
  if (validation && data.target_shape().channel == 4) {
    auto const ratios = error_ratios(*validation, tessera::predict(net, *validation, o.batch), mean_target(data));
    for (std::size_t k = 0; k < names.size(); ++k) {
      metrics["ratios"][names[k]] = ratios[k];
      if (speaks) std::printf("train: %s: validation error / error of the mean = %.3f\n", names[k], ratios[k]);
    }
  }
  tessera::agreed(world, [&] {
    if (speaks && !o.metrics.empty()) write_text(o.metrics, metrics.dump(2));
  });
  if (!o.weights.empty()) tessera::io::save_weights(net, o.weights);
}

}  // namespace cosmoflow
