// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tessera/core/error.hpp"

namespace tessera::test {

/// Numbers in row-major order, with their extents; none for a number alone.
struct Array {
  std::vector<std::int64_t> shape;
  std::vector<double> values;

  double number() const { return values.at(0); }
  std::vector<std::int64_t> whole() const { return {values.begin(), values.end()}; }

  Array magnitude() const {
    Array all = *this;
    for (double& value : all.values) value = std::abs(value);
    return all;
  }
};

/// One case of a file that tests/fixtures/make.py wrote.
struct FixtureCase {
  std::string kind;
  std::string name;  ///< for messages: file, kind and number
  std::map<std::string, Array> arrays;

  bool has(std::string const& key) const { return arrays.contains(key); }
  Array const& operator[](std::string const& key) const {
    auto const found = arrays.find(key);
    require(found != arrays.end(), name, "the fixture has no '", key, "'; run tests/fixtures/make.py");
    return found->second;
  }
  double number(std::string const& key) const { return (*this)[key].number(); }
};

/// Reads tests/fixtures/<name>.txt, where the environment's TESSERA_TESTS is the folder tests; make.py tells its form.
inline std::vector<FixtureCase> read_fixture(std::string const& name) {
  char const* const folder = std::getenv("TESSERA_TESTS");
  require(folder != nullptr, "TESSERA_TESTS", "must name the folder that holds fixtures/; ctest sets it");
  std::string const path = std::string(folder) + "/fixtures/" + name + ".txt";
  std::ifstream file(path);
  require(file.good(), path, "cannot be read; run tests/fixtures/make.py");
  std::vector<FixtureCase> cases;
  std::string word;
  while (file >> word) {
    if (word.front() == '#') {
      std::getline(file, word);
    } else if (word == "case") {
      file >> word;
      cases.push_back({word, name + ", case " + std::to_string(cases.size()) + ", " + word, {}});
    } else {
      require(!cases.empty(), path, "must begin with a case, but begins with ", word);
      std::size_t axes = 0;
      std::int64_t count = 1;
      require(static_cast<bool>(file >> axes), path, "the number of axes of ", word, " is missing");
      Array array;
      array.shape.resize(axes);
      for (std::int64_t& extent : array.shape) {
        file >> extent;
        count *= extent;
      }
      std::string number;
      for (std::int64_t i = 0; i < count; ++i) {
        require(static_cast<bool>(file >> number), path, "ends within ", word);
        array.values.push_back(std::strtod(number.c_str(), nullptr));  // reads nan and inf as well
      }
      cases.back().arrays[word] = std::move(array);
    }
  }
  require(!cases.empty(), path, "holds no cases");
  return cases;
}

/// Whether `got` is what is expected where that is not finite: NaN for NaN, the same infinity for an infinity.
inline bool same_special(double got, double expected) {
  return std::isnan(expected) ? std::isnan(got) : got == expected;
}

/// Norm-wise agreement of a whole tensor: |got - expected| <= 1e-12 |expected|, both Euclidean norms over the finite
/// cells. Both sides compute in double: a sum of n terms is off by at most n 2^-53 times the sum of their magnitudes,
/// and no sum here has more than 300 terms, so 1e-12 leaves a factor of 30 for cancellation; the 14 digits of the files
/// take 5e-14. A wrong term, on the other hand, is off by 0.01 or more.
inline void check_norm_wise(std::string const& what, std::vector<double> const& got, Array const& expected) {
  REQUIRE_MESSAGE(got.size() == expected.values.size(), what);
  double error = 0.0, norm = 0.0;
  bool specials = true;
  for (std::size_t i = 0; i < got.size(); ++i) {
    double const e = expected.values[i];
    if (!std::isfinite(e)) {
      specials = specials && same_special(got[i], e);
    } else {
      error += (got[i] - e) * (got[i] - e);
      norm += e * e;
    }
  }
  CHECK_MESSAGE(specials, what << ": cells that are not finite");
  CHECK_MESSAGE(std::sqrt(error) <= 1e-12 * std::sqrt(norm),
                what << ": error " << std::sqrt(error) << " of norm " << std::sqrt(norm));
}

/// Agreement cell by cell in float: |got - expected| <= g magnitude, g = n u / (1 - n u), u = 2^-24, where n roundings
/// at most touch a term, and `magnitude` is the result with every term replaced by its magnitude (Higham, "Accuracy and
/// Stability of Numerical Algorithms", chapter 3).
inline void check_roundings(std::string const& what, std::vector<double> const& got, Array const& expected,
                            std::vector<double> const& magnitude, double roundings) {
  REQUIRE_MESSAGE(got.size() == expected.values.size(), what);
  REQUIRE_MESSAGE(got.size() == magnitude.size(), what);
  double const g = roundings * 0x1p-24 / (1.0 - roundings * 0x1p-24);
  for (std::size_t i = 0; i < got.size(); ++i) {
    double const e = expected.values[i];
    double const bound = g * magnitude[i] + 1e-13 * std::abs(e) + 0x1p-149;  // the digits of the files, and underflow
    bool const holds = std::isfinite(e) ? std::abs(got[i] - e) <= bound : same_special(got[i], e);
    CHECK_MESSAGE(holds, what << ": cell " << i << " is " << got[i] << ", expected " << e << " within " << bound);
    if (!holds) return;
  }
}

}  // namespace tessera::test
