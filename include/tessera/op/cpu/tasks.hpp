// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace tessera::op::cpu {

/// A reference to something callable, so that the kernels are compiled once and not once per lambda.
template <class Signature>
class FunctionRef;

template <class... Arguments>
class FunctionRef<void(Arguments...)> {
 public:
  template <class Callable>
  requires(!std::same_as<std::remove_cvref_t<Callable>, FunctionRef> && std::invocable<Callable&, Arguments...>)
      FunctionRef(Callable&& callable)
      : object_(const_cast<void*>(static_cast<void const*>(std::addressof(callable)))),
        call_([](void* object, Arguments... arguments) {
          (*static_cast<std::remove_reference_t<Callable>*>(object))(arguments...);
        }) {}

  void operator()(Arguments... arguments) const { call_(object_, arguments...); }

 private:
  void* object_;
  void (*call_)(void*, Arguments...);
};

/// How the tasks of a kernel are run: by how many workers, how those are started, and what is called between tasks.
class Tasks {
 public:
  /// What a worker does, given its number, and what starts that many workers at a time and waits for them.
  using Worker = FunctionRef<void(std::int64_t)>;
  using Launch = FunctionRef<void(std::int64_t, Worker)>;

  /// Work below this many multiply-adds is done by the calling thread: a launch would cost more.
  static constexpr std::int64_t smallest_launch = 50'000;

  Tasks(std::int64_t workers, Launch launch, FunctionRef<void()> poll)
      : workers_(workers), launch_(launch), poll_(poll) {}

  /// The workers that `count` tasks of `work` multiply-adds altogether are shared between.
  std::int64_t workers(std::int64_t count, std::int64_t work) const {
    return work < smallest_launch ? 1 : workers_ < count ? workers_ : count;
  }

  /// Calls task(worker, i) for each i < count. A worker runs one task at a time; which one runs which is left open, so
  /// that results must not depend on it. With one worker, polls after each task.
  void run(std::int64_t count, std::int64_t work, FunctionRef<void(std::int64_t, std::int64_t)> task) const {
    std::int64_t const team = workers(count, work);
    if (team <= 1) {
      for (std::int64_t i = 0; i < count; ++i) {
        task(0, i);
        poll_();
      }
      return;
    }
    std::atomic<std::int64_t> next{0};
    launch_(team, [&](std::int64_t worker) {
      for (std::int64_t i = next++; i < count; i = next++) task(worker, i);
    });
    poll_();
  }

 private:
  std::int64_t workers_;
  Launch launch_;
  FunctionRef<void()> poll_;
};

}  // namespace tessera::op::cpu
