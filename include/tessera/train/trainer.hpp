// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/core/error.hpp"
#include "tessera/io/batch.hpp"
#include "tessera/io/source.hpp"
#include "tessera/io/training_state.hpp"
#include "tessera/model/model.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/optim/schedule.hpp"
#include "tessera/train/batch_loader.hpp"
#include "tessera/train/loss.hpp"
#include "tessera/train/loss_pass.hpp"

namespace tessera {

/// What fit reports after a step; the same on every rank.
struct StepReport {
  std::int64_t epoch = 0;  ///< from 1
  std::int64_t step = 0;   ///< optimizer steps so far
  std::int64_t samples_done = 0;
  std::int64_t samples_in_all = 0;  ///< of the whole fit
  double loss = 0.0;
  double seconds = 0.0;  ///< since fit began
};

/// How to train. Batches are global: all ranks together take `batch` samples per optimizer step, in micro-batches of at
/// most `micro_batch` (0: the whole batch at once).
struct FitOptions {
  std::int64_t epochs = 1;
  std::int64_t batch = 1;
  std::int64_t micro_batch = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
  double clip_norm = 0.0;
  Schedule schedule = constant();
  std::function<void(StepReport const&)> on_step = nullptr;
  std::function<void(EpochReport const&)> on_epoch = nullptr;
  /// Where to go on from; io::CheckpointFolder fills it in, with network and optimizer as they were then.
  TrainingState start = {};
  /// Is given the state at the end of each epoch, after on_epoch, and after every `checkpoint_every` steps (0: never in
  /// between).
  std::function<void(TrainingState const&)> on_checkpoint = nullptr;
  std::int64_t checkpoint_every = 0;
};

/// Trains a model: epochs over a source, a loss as global sum / global count, an optimizer.
///
/// Fails: on every rank, when the loss is not finite or replicated parameters have come to differ between ranks.
template <class T, class Space, class Method, class Objective>
class Trainer {
  static_assert(Loss<Objective, T, Space>,
                "tessera: a loss needs `LossTarget target(Shape const&) const` and `LossPart operator()(LossPass<T, "
                "Space> const&) const`");

 public:
  Trainer(Model<T, Space> model, Method method, Objective loss)
      : model_(std::move(model)), optimizer_(std::move(method)), loss_(std::move(loss)), loader_(model_) {}

  template <io::AnySource<T> Data>
  std::vector<EpochReport> fit(Data& data, FitOptions const& options) {
    return fit_and_validate<Data, Data>(data, nullptr, options);
  }

  /// The same, with the loss on other data after each epoch, evaluated by micro-batches.
  template <io::AnySource<T> Data, io::AnySource<T> Validation>
  std::vector<EpochReport> fit(Data& data, Validation& validation, FitOptions const& options) {
    return fit_and_validate(data, &validation, options);
  }

  /// One optimizer step on the samples listed, which are indices into the source. Returns the loss of the whole batch.
  /// The parameters' gradients are left as the optimizer found them: times a factor that the loss chose (see Loss).
  /// `epoch` chooses how a SampleStore turns and mirrors them.
  template <io::AnySource<T> Data>
  double step(Data& data, std::vector<std::int64_t> const& samples, FitOptions const& options,
              std::uint64_t epoch = 0) {
    auto const batch = static_cast<std::int64_t>(samples.size());
    std::int64_t const micro = micro_batch(options, batch);
    model_.allocate(std::max(micro, model_.capacity()), options.seed);
    double const divisor = static_cast<double>(model_.output_partition(batch).shape().volume());
    model_.zero_gradients();
    LossPart part;
    for (std::int64_t first = 0; first < batch; first += micro) {
      std::int64_t const n = std::min(micro, batch - first);
      Pass const pass{.mode = Mode::training,
                      .seed = options.seed,
                      .step = static_cast<std::uint64_t>(optimizer_.steps()),
                      .first_sample = first,
                      .reduce_gradients = first + n == batch};
      loader_.load(data, loss_, {samples.begin() + first, samples.begin() + first + n}, epoch);
      model_.forward(n, pass);
      part += loss_(loss_pass(n, &model_.error(n), divisor, first, batch));
      model_.backward(n, pass);
    }
    reduce(part);
    double const loss = mean_of(part);
    if (!std::isfinite(loss)) model_.finish_gradients();  // nothing is under way when the error is caught
    require(std::isfinite(loss), "Trainer", "the loss must stay finite, but at step ", optimizer_.steps() + 1,
            " it is ", loss,
            "; lower the learning rate, clip gradients, or look for values in the input that are not finite");
    optimizer_.step(model_.parameters(), world(), options.schedule(optimizer_.steps()), options.clip_norm,
                    part.count != 0.0 ? divisor / part.count : 0.0);
    return loss;
  }

  /// The loss over all samples of a source in inference mode. A loss that cannot do without its whole batch (Dice with
  /// Reduction::batch) gives the mean over these batches, each by its samples.
  template <io::AnySource<T> Data>
  double evaluate(Data& data, std::int64_t batch) {
    LossPart part;
    for_each_batch(data, batch, Mode::inference,
                   [&](std::int64_t, std::int64_t n) { part += loss_(loss_pass(n, nullptr, 1.0, 0, n)); });
    reduce(part);
    return mean_of(part);
  }

  /// Takes running statistics anew, as the plain mean over the batches of a source: what the last steps left behind may
  /// lag behind the parameters.
  template <io::AnySource<T> Data>
  void refresh_statistics(Data& data, std::int64_t batch) {
    for_each_batch(data, batch, Mode::training, [](std::int64_t, std::int64_t) {});
  }

  Model<T, Space>& model() { return model_; }
  Optimizer<T, Space, Method>& optimizer() { return optimizer_; }
  std::int64_t steps() const { return optimizer_.steps(); }

  /// Throws on every rank if a parameter that all hold differs between them: a sign of a wrong reduction, or of memory
  /// that was overwritten. Collective.
  void check_replicas() {
    for (Parameter<T, Space> const* p : model_.parameters()) {
      std::uint64_t const hash = p->checksum();
      std::uint64_t const low = p->replicas().all_reduce(hash, Reduce::min),
                          high = p->replicas().all_reduce(hash, Reduce::max);
      require(world().all_reduce(low == high ? 0 : 1, Reduce::max) == 0, "Trainer",
              "the ranks must hold equal copies of ", p->name(), ", but their checksums differ after step ",
              optimizer_.steps());
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

  Communicator<Mpi> const& world() const { return model_.input_ranks().world(); }

  void reduce(LossPart& part) const {
    double totals[2] = {part.sum, part.count};
    world().all_reduce(totals, 2);
    part = {totals[0], totals[1]};
  }
  /// An epoch's samples.
  static std::vector<std::int64_t> order_of(std::int64_t samples, FitOptions const& options, std::int64_t epoch) {
    auto order = io::shuffled(samples, options.seed, static_cast<std::uint64_t>(epoch));
    if (!options.shuffle) std::sort(order.begin(), order.end());
    return order;
  }
  static std::int64_t micro_batch(FitOptions const& options, std::int64_t batch) {
    return options.micro_batch > 0 ? std::min(options.micro_batch, batch) : batch;
  }
  static double mean_of(LossPart const& part) { return part.count != 0.0 ? part.sum / part.count : 0.0; }

  /// What the loss is given of a micro-batch of n samples, the batch's samples from `first` on.
  LossPass<T, Space> loss_pass(std::int64_t n, Shard<T, Space> const* error, double divisor, std::int64_t first,
                               std::int64_t samples) {
    return {.space = space_,
            .ranks = model_.output_ranks(),
            .prediction = model_.output(n),
            .target = loader_.target(),
            .targets = loader_.target_box(),
            .error = error,
            .divisor = divisor,
            .first_sample = first,
            .samples = samples,
            .memory = memory_};
  }

  template <class Data, class Validation>
  std::vector<EpochReport> fit_and_validate(Data& data, Validation* validation, FitOptions const& options) {
    require(options.batch >= 1 && options.epochs >= 0, "Trainer::fit", "needs a batch of at least 1 sample, not ",
            options.batch);
    require(data.size() >= 1, "Trainer::fit", "the source holds no samples");
    require(validation == nullptr || validation->size() >= 1, "Trainer::fit",
            "the source to validate on holds no samples; leave it out, or give it some");
    require(options.checkpoint_every >= 0, "Trainer::fit", "checkpoints every ", options.checkpoint_every,
            " steps are not possible; give a positive number, or 0 for the ends of epochs alone");
    TrainingState at = start_of(data.size(), options);
    auto const start = Clock::now();
    double const before = at.seconds;
    StepReport report;
    report.samples_in_all = options.epochs * data.size();
    report.samples_done = at.epoch * data.size() + at.samples_done;
    // The next epoch's first samples are read during the validation, unless that needs the same store.
    bool const apart = static_cast<void const*>(validation) != static_cast<void const*>(&data);
    auto const expect = [&](std::int64_t epoch, std::int64_t from) {
      if (epoch < options.epochs)
        loader_.expect(
            data, loss_,
            {order_of(data.size(), options, epoch), from, options.batch, micro_batch(options, options.batch)},
            static_cast<std::uint64_t>(epoch));
    };
    expect(at.epoch, at.samples_done);
    while (at.epoch < options.epochs) {
      auto const epoch_start = Clock::now();
      double const epoch_before = at.epoch_seconds;
      auto const order = order_of(data.size(), options, at.epoch);
      while (at.samples_done < data.size()) {
        auto const first = order.begin() + at.samples_done;
        std::int64_t const n = std::min(options.batch, data.size() - at.samples_done);
        report.loss =
            step(data, std::vector<std::int64_t>(first, first + n), options, static_cast<std::uint64_t>(at.epoch));
        at.loss_sum += report.loss * static_cast<double>(n);
        at.samples_done += n;
        at.seconds = before + since(start);
        at.epoch_seconds = epoch_before + since(epoch_start);
        report.epoch = at.epoch + 1;
        report.step = optimizer_.steps();
        report.samples_done += n;
        report.seconds = at.seconds;
        if (options.on_step) options.on_step(report);
        bool const due = options.checkpoint_every > 0 && optimizer_.steps() % options.checkpoint_every == 0;
        if (options.on_checkpoint && due && at.samples_done < data.size()) options.on_checkpoint(at);
      }
      if (apart) expect(at.epoch + 1, 0);
      check_replicas();
      double const validation_loss =
          validation != nullptr ? evaluate(*validation, micro_batch(options, options.batch)) : std::nan("");
      at.reports.push_back({at.epoch + 1, at.loss_sum / static_cast<double>(data.size()), validation_loss,
                            epoch_before + since(epoch_start), optimizer_.steps()});
      ++at.epoch;
      if (!apart) expect(at.epoch, 0);
      at.samples_done = 0;
      at.loss_sum = at.epoch_seconds = 0.0;
      at.seconds = before + since(start);
      if (options.on_epoch) options.on_epoch(at.reports.back());
      if (options.on_checkpoint) options.on_checkpoint(at);
    }
    return at.reports;
  }

  /// Where fit begins, which must suit its options.
  static TrainingState start_of(std::int64_t samples, FitOptions const& options) {
    TrainingState at = options.start;
    if (!at.is_new())
      require(at.seed == options.seed && at.shuffle == options.shuffle && at.batch == options.batch &&
                  at.samples == samples,
              "Trainer::fit", "a training goes on with the samples, batch, seed and order that it began with, ",
              settings(at.samples, at.batch, at.seed, at.shuffle), ", but was given ",
              settings(samples, options.batch, options.seed, options.shuffle));
    at.samples = samples;
    at.batch = options.batch;
    at.seed = options.seed;
    at.shuffle = options.shuffle;
    return at;
  }
  static std::string settings(std::int64_t samples, std::int64_t batch, std::uint64_t seed, bool shuffle) {
    return detail::text(samples, " samples in batches of ", batch, ", seed ", seed,
                        shuffle ? ", shuffled" : ", in the source's order");
  }

  /// use(number of batches before, samples in this one) after each forward pass, in the source's order.
  template <class Data, class Use>
  void for_each_batch(Data& data, std::int64_t batch, Mode mode, Use use) {
    require(batch >= 1, "Trainer", "needs a batch of at least 1 sample, not ", batch);
    require(data.size() >= 1, "Trainer", "the source holds no samples");
    std::vector<std::int64_t> samples(static_cast<std::size_t>(data.size()));
    std::iota(samples.begin(), samples.end(), std::int64_t{0});
    std::int64_t const most = std::min(batch, data.size());
    model_.allocate(std::max(most, model_.capacity()));
    loader_.expect(data, loss_, {samples, 0, most, most}, std::nullopt);
    std::int64_t batches = 0;
    for (std::int64_t first = 0; first < data.size(); first += most, ++batches) {
      std::int64_t const n = std::min(most, data.size() - first);
      loader_.load(data, loss_, {samples.begin() + first, samples.begin() + first + n}, std::nullopt);
      model_.forward(n, Pass{.mode = mode, .running_momentum = 1.0 / static_cast<double>(batches + 1)});
      use(batches, n);
    }
  }

  Model<T, Space> model_;
  Optimizer<T, Space, Method> optimizer_;
  Objective loss_;
  Space space_;
  LossMemory<Space> memory_;
  BatchLoader<T, Space> loader_;
};

}  // namespace tessera
