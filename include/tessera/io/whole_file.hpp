// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/core/error.hpp"

namespace tessera::io {

namespace detail {

inline std::string folder_of(std::string const& path) {
  std::size_t const slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(std::string const& path, int flags) : file_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  Descriptor(Descriptor const&) = delete;
  Descriptor& operator=(Descriptor const&) = delete;
  ~Descriptor() { close(); }

  int get() const { return file_; }
  bool close() { return file_ < 0 || ::close(std::exchange(file_, -1)) == 0; }

 private:
  int file_;
};

/// Writes, and returns when all of it is on disk. False, with the reason in errno, if that fails.
inline bool write_synced(std::string const& path, std::string_view bytes) {
  Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.get() < 0) return false;
  while (!bytes.empty()) {
    auto const written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return ::fsync(file.get()) == 0 && file.close();
}

}  // namespace detail

/// Whether write_whole_file may succeed: a check to make before the work whose result will be written.
/// Fails: with the system's reason, if the folder is missing or not writable, or the path names something else than a
/// file.
inline void check_place(std::string const& who, std::string const& path) {
  std::string const folder = detail::folder_of(path);
  struct stat there {};
  bool const exists = ::stat(path.c_str(), &there) == 0;
  require(!exists || S_ISREG(there.st_mode), who, "'", path, "' must be the name of a file, but it is a ",
          S_ISDIR(there.st_mode) ? "folder; add a file name" : "device or pipe; choose another name");
  require(!path.empty() && path.back() != '/', who, "'", path, "' must be the name of a file; add a file name");
  require(::stat(folder.c_str(), &there) == 0, who, "the folder '", folder, "' of '", path, "' must exist (",
          std::strerror(errno), "); create it or choose another");
  require(S_ISDIR(there.st_mode), who, "'", folder, "' in '", path, "' must be a folder; choose another");
  require(::access(folder.c_str(), W_OK | X_OK) == 0, who, "the folder '", folder, "' of '", path,
          "' must be writable (", std::strerror(errno), "); choose another");
}

/// Writes a file that appears whole or not at all, also after a crash of the machine: the bytes go to PATH.part, reach
/// the disk, and get their name.
/// Fails: with the system's reason; nothing is left behind, and a file of that name is as it was.
inline void write_whole_file(std::string const& who, std::string const& path, std::string_view bytes) {
  check_place(who, path);
  std::string const part = path + ".part";
  bool const written = detail::write_synced(part, bytes) && std::rename(part.c_str(), path.c_str()) == 0;
  std::string const reason = std::strerror(errno);
  if (!written) ::unlink(part.c_str());
  require(written, who, "'", path, "' must take what is written to it (", reason, "); check the disk and its quota");
  detail::Descriptor const folder(detail::folder_of(path), O_RDONLY | O_DIRECTORY);
  require(folder.get() >= 0 && ::fsync(folder.get()) == 0, who, "the folder of '", path, "' must reach the disk (",
          std::strerror(errno), "); check the disk");
}

}  // namespace tessera::io
