// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
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

/// Reads up to `count` bytes, fewer only at the end of the file. False, with the reason in errno, if that fails.
inline bool read_at(int file, std::int64_t at, std::size_t count, std::string& bytes) {
  bytes.resize(count);
  std::size_t have = 0;
  while (have < count) {
    auto const got = ::pread(file, bytes.data() + have, count - have, at + static_cast<std::int64_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return true;
}

/// Lets the entry of a file or folder in its folder reach the disk.
inline void sync_folder_of(std::string const& who, std::string const& path) {
  Descriptor const folder(folder_of(path), O_RDONLY | O_DIRECTORY);
  require(folder.get() >= 0 && ::fsync(folder.get()) == 0, who, "the folder of '", path, "' must reach the disk (",
          std::strerror(errno), "); check the disk");
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

/// A file that appears whole or not at all, also after a crash of the machine: its bytes go to PATH.part, and `commit`
/// lets them reach the disk and get their name. Without it nothing is left behind, and a file of that name is as it
/// was.
class WholeFile {
 public:
  /// Fails: with the system's reason, if there is no place for the file.
  WholeFile(std::string who, std::string path) : who_(std::move(who)), path_(std::move(path)) {
    check_place(who_, path_);
    file_.emplace(part(), O_RDWR | O_CREAT | O_TRUNC);
    need(file_->get() >= 0);
  }
  WholeFile(WholeFile const&) = delete;
  WholeFile& operator=(WholeFile const&) = delete;
  ~WholeFile() {
    if (!committed_) ::unlink(part().c_str());
  }

  std::string const& path() const { return path_; }
  std::string part() const { return path_ + ".part"; }

  /// Claims room on the disk for so many bytes: a disk that is full says so now. Does nothing where the file system
  /// cannot do that.
  void claim(std::int64_t bytes) {
#if defined(__linux__)
    int code = 0;
    do code = ::fallocate(file_->get(), 0, 0, bytes);
    while (code != 0 && errno == EINTR);
    need(code == 0 || errno == EOPNOTSUPP || errno == ENOSYS);
#else
    (void)bytes;
#endif
  }

  void write(std::int64_t at, std::string_view bytes) {
    while (!bytes.empty()) {
      auto const written = ::pwrite(file_->get(), bytes.data(), bytes.size(), at);
      if (written < 0 && errno == EINTR) continue;
      need(written >= 0);
      at += written;
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  /// The file of the name PATH.part, to read what was written.
  int descriptor() const { return file_->get(); }

  void commit() {
    need(::fsync(file_->get()) == 0 && file_->close() && std::rename(part().c_str(), path_.c_str()) == 0);
    committed_ = true;
    detail::sync_folder_of(who_, path_);
  }

 private:
  void need(bool done) const {
    if (done) return;
    std::string const reason = std::strerror(errno);
    require(false, who_, "'", path_, "' must take what is written to it (", reason, "); check the disk and its quota");
  }

  std::string who_, path_;
  std::optional<detail::Descriptor> file_;
  bool committed_ = false;
};

/// Writes a whole file: see WholeFile.
/// Fails: with the system's reason; nothing is left behind, and a file of that name is as it was.
inline void write_whole_file(std::string const& who, std::string const& path, std::string_view bytes) {
  WholeFile file(who, path);
  file.write(0, bytes);
  file.commit();
}

}  // namespace tessera::io
