// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tessera::io {

/// Bytes that whoever holds them gives back by letting go.
using Buffer = std::shared_ptr<std::vector<std::byte>>;

/// Memory that is used again once nobody holds it.
class BufferPool {
 public:
  /// At least so many bytes: a free buffer that is large enough, else one that grows, else a new one.
  Buffer take(std::int64_t bytes) {
    auto const size = static_cast<std::size_t>(bytes);
    Buffer best;
    for (Buffer const& buffer : buffers_)
      if (buffer.use_count() == 1 && (!best || buffer->size() >= size)) best = buffer;
    if (!best) return buffers_.emplace_back(std::make_shared<std::vector<std::byte>>(size));
    best->resize(std::max(best->size(), size));
    return best;
  }

 private:
  std::vector<Buffer> buffers_;
};

}  // namespace tessera::io
