// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace tessera::test {

/// From `begin` to the end of its scope, writes beyond `bytes` fail on this rank as they do on a full disk.
class FullDisk {
 public:
  FullDisk() : handler_{std::signal(SIGXFSZ, SIG_IGN)} { getrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(FullDisk const&) = delete;
  FullDisk& operator=(FullDisk const&) = delete;
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  void begin(rlim_t bytes) const {
    rlimit limited = before_;
    limited.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limited);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

}  // namespace tessera::test
