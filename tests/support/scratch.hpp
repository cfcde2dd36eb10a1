// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>
#include <stdlib.h>

#include <exception>
#include <filesystem>
#include <string>
#include <system_error>

#include "tessera/core/error.hpp"

namespace tessera::test {

/// A folder that all ranks share, empty at first and gone at the end. Collective.
class Scratch {
 public:
  Scratch() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    std::string path = (std::filesystem::temp_directory_path() / "tessera-XXXXXX").string();
    if (rank_ == 0) require(::mkdtemp(path.data()) != nullptr, "Scratch", "'", path, "' must be creatable");
    MPI_Bcast(path.data(), static_cast<int>(path.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
    folder_ = path;
  }
  Scratch(Scratch const&) = delete;
  Scratch& operator=(Scratch const&) = delete;
  ~Scratch() {
    MPI_Barrier(MPI_COMM_WORLD);
    std::error_code ignored;
    if (rank_ == 0) std::filesystem::remove_all(folder_, ignored);
  }

  std::string operator/(std::string const& name) const { return (folder_ / name).string(); }
  std::filesystem::path const& folder() const { return folder_; }

 private:
  int rank_ = 0;
  std::filesystem::path folder_;
};

/// What an action throws, or nothing.
template <class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (std::exception const& error) {
    return error.what();
  }
  return {};
}

}  // namespace tessera::test
