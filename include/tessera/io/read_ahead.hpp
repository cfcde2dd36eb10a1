// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace tessera::io {

/// Runs jobs one after the other on a thread of its own, which calls neither MPI nor Kokkos. An error in a job is
/// thrown where the job is awaited.
class ReadAhead {
 public:
  using Ticket = std::uint64_t;  ///< numbers jobs from 1

  ReadAhead() = default;
  ReadAhead(ReadAhead const&) = delete;
  ReadAhead& operator=(ReadAhead const&) = delete;

  /// Ends after the job that runs; those behind it are dropped.
  ~ReadAhead() {
    {
      std::lock_guard const lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  Ticket submit(std::function<void()> job) {
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    Ticket ticket = 0;
    {
      std::lock_guard const lock(mutex_);
      jobs_.push_back(std::move(job));
      ticket = ++submitted_;
    }
    changed_.notify_all();
    return ticket;
  }

  /// Returns when all jobs are done, whatever came of them.
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ == submitted_; });
  }

  /// Returns when the job, and all before it, are done.
  /// Fails: with the error of the first of them that failed, and has not been said yet. The others ran all the same.
  void wait(Ticket ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= ticket; });
    if (failures_.empty() || failures_.front().first > ticket) return;
    std::exception_ptr const failure = failures_.front().second;
    while (!failures_.empty() && failures_.front().first <= ticket) failures_.pop_front();
    std::rethrow_exception(failure);
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
      if (ends_) return;
      auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      std::exception_ptr failure;
      try {
        job();
      } catch (...) {
        failure = std::current_exception();
      }
      job = nullptr;  // and what it holds, before anybody is told
      lock.lock();
      ++done_;
      if (failure) failures_.emplace_back(done_, failure);
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::deque<std::pair<Ticket, std::exception_ptr>> failures_;
  Ticket submitted_ = 0, done_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace tessera::io
