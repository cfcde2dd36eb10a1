// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace tessera {

/// Whether host code may touch the memory of an execution space.
template <class Space>
inline constexpr bool host_can_access =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Space::memory_space>::accessible;

/// Whether an execution space is the host's own.
template <class Space>
inline constexpr bool runs_on_host =
    host_can_access<Space>&& Kokkos::SpaceAccessibility<Space, Kokkos::HostSpace>::accessible;

/// Flat memory that only grows: what a smaller batch needs is a prefix of it. Copies share it. Contents are undefined
/// until written.
template <class T, class Space>
class Storage {
 public:
  using memory_space = typename Space::memory_space;

  Storage() = default;
  explicit Storage(std::int64_t count) { grow(count); }

  /// At least `count` elements; contents are lost if the memory had to grow.
  void grow(std::int64_t count) {
    if (count <= capacity_) return;
    cells_.reset();
    cells_ = std::shared_ptr<void>(
        Kokkos::kokkos_malloc<memory_space>("tessera", static_cast<std::size_t>(count) * sizeof(T)),
        [](void* cells) { Kokkos::kokkos_free<memory_space>(cells); });
    capacity_ = count;
  }

  std::int64_t capacity() const { return capacity_; }
  T* data() const { return static_cast<T*>(cells_.get()); }

 private:
  std::shared_ptr<void> cells_;
  std::int64_t capacity_ = 0;
};

/// Copies `count` elements between the memories of two execution spaces, and waits. One function for all element types:
/// Kokkos::deep_copy would be compiled anew for each.
template <class ToSpace, class FromSpace, class T>
void copy_flat(T* to, T const* from, std::int64_t count) {
  if (count <= 0) return;
  std::size_t const bytes = static_cast<std::size_t>(count) * sizeof(T);
  if constexpr (host_can_access<ToSpace> && host_can_access<FromSpace>) {
    std::memcpy(to, from, bytes);
  } else {
    using To = Kokkos::View<char*, typename ToSpace::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    using From = Kokkos::View<char const*, typename FromSpace::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    Kokkos::deep_copy(To(reinterpret_cast<char*>(to), bytes), From(reinterpret_cast<char const*>(from), bytes));
  }
}

}  // namespace tessera
