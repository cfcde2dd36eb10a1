// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/partition/counts_text.hpp"

#include <cstdint>
#include <string>

#include "support/property.hpp"

namespace {

using tessera::Counts;
using tessera::Error;
using tessera::parse_counts;
using tessera::to_text;

std::string refusal(std::string const& text) {
  try {
    (void)parse_counts(text);
  } catch (Error const& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("counts_text: counts become text and come back") {
  CHECK(to_text({}) == "sample=1");
  CHECK(to_text({.sample = 2, .depth = 3}) == "sample=2,depth=3");
  CHECK(to_text({.sample = 2, .channel = 3, .depth = 5, .height = 7, .width = 11}) ==
        "sample=2,channel=3,depth=5,height=7,width=11");
  tessera::test::property("to_text, then parse_counts, changes nothing", [] {
    auto const draw = [](char const* axis) {
      return *rc::gen::oneOf(rc::gen::just(std::int64_t{1}), rc::gen::inRange<std::int64_t>(1, 5000)).as(axis);
    };
    Counts const counts{.sample = draw("sample"),
                        .channel = draw("channel"),
                        .depth = draw("depth"),
                        .height = draw("height"),
                        .width = draw("width")};
    RC_ASSERT(parse_counts(to_text(counts)) == counts);
  });
}

TEST_CASE("counts_text: axes in any order, absent ones are whole") {
  CHECK(parse_counts("") == Counts{});
  CHECK(parse_counts("width=3,sample=2") == Counts{.sample = 2, .width = 3});
  CHECK(parse_counts("sample=1,depth=1,height=1,width=1,channel=1") == Counts{});
  CHECK(parse_counts("depth=9223372036854775807").depth == INT64_MAX);
}

TEST_CASE("counts_text: what is refused, and what is said") {
  std::string const known = " must be one of sample, channel, depth, height, width, as in sample=2,depth=2";
  std::string const number = " must be an axis and a whole number of at least 1, as in depth=2";
  CHECK(refusal("depht=2") == "split: 'depht'" + known);
  CHECK(refusal("Depth=2") == "split: 'Depth'" + known);
  CHECK(refusal("2") == "split: '2'" + known);
  CHECK(refusal("sample=2 depth=2") == "split: 'sample=2 depth=2'" + number);
  CHECK(refusal("sample=2, depth=2") == "split: ' depth'" + known);
  CHECK(refusal("depth=2,depth=2") == "split: 'depth' must be given only once");
  CHECK(refusal("depth=1,width=2,depth=1") == "split: 'depth' must be given only once");
  for (std::string const item : {"depth", "depth=", "depth=two", "depth=2x", "depth=2.5", "depth=0", "depth=-1",
                                 "depth=+2", "depth= 2", "depth=2=2", "depth=9223372036854775808"}) {
    CHECK(refusal(item) == "split: '" + item + "'" + number);
    CHECK(refusal("sample=2," + item + ",width=2") == "split: '" + item + "'" + number);
  }
  for (std::string const text : {",", ",depth=2", "depth=2,", "depth=2,,width=2"}) {
    CAPTURE(text);
    CHECK(refusal(text) == "split: ''" + known);
  }
}
