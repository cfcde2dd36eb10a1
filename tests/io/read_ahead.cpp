// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/io/read_ahead.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tessera/core/error.hpp"

using tessera::Error;
using tessera::io::ReadAhead;

TEST_CASE("jobs run in order on a thread of their own, and what they wrote is there after the wait") {
  ReadAhead reader;
  std::vector<int> order;
  std::thread::id where;
  ReadAhead::Ticket last = 0;
  for (int i = 0; i < 1000; ++i)
    last = reader.submit([&, i] {
      order.push_back(i);
      where = std::this_thread::get_id();
    });
  CHECK(last == 1000);
  reader.wait(last);
  REQUIRE(order.size() == 1000);
  for (int i = 0; i < 1000; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
  CHECK(where != std::this_thread::get_id());
}

TEST_CASE("an error is thrown where its job is awaited, once, and not before") {
  ReadAhead reader;
  std::atomic<int> runs = 0;
  auto const good = [&] { ++runs; };
  auto const bad = [](std::string const& what) { return [what] { throw Error(what); }; };
  auto const first = reader.submit(good), second = reader.submit(bad("two")), third = reader.submit(bad("three")),
             fourth = reader.submit(good), fifth = reader.submit(bad("five"));
  while (runs < 2) std::this_thread::yield();
  CHECK_NOTHROW(reader.wait(first));
  CHECK_THROWS_WITH_AS(reader.wait(second), "two", Error);
  CHECK_NOTHROW(reader.wait(second));
  CHECK_THROWS_WITH_AS(reader.wait(fourth), "three", Error);
  CHECK_NOTHROW(reader.wait(third));
  CHECK_THROWS_WITH_AS(reader.wait(fifth), "five", Error);
}

TEST_CASE("the thread ends with its reader, after the job that runs and before those behind it") {
  std::atomic<bool> begun = false, goes_on = false;
  std::atomic<int> runs = 0;
  auto const held = std::make_shared<int>(0);
  {
    auto reader = std::make_unique<ReadAhead>();
    reader->submit([&, held] {
      begun = true;
      while (!goes_on) std::this_thread::yield();
      ++runs;
    });
    for (int i = 0; i < 10; ++i) reader->submit([&, held] { ++runs; });
    while (!begun) std::this_thread::yield();
    std::thread end([&] { reader.reset(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the end is asked for while the first job runs
    goes_on = true;
    end.join();
  }
  CHECK(runs == 1);
  CHECK(held.use_count() == 1);
  ReadAhead never_used;
}
