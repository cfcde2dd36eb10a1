// expect: tessera: host code cannot access a tensor in device memory; copy it to a host tensor first
// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "tessera/tensor/shard.hpp"

/// Stands for a device that no backend is there for: memory that the host cannot access.
struct DeviceMemory {
  using memory_space = DeviceMemory;
  using execution_space = Kokkos::DefaultHostExecutionSpace;
  using device_type = Kokkos::Device<execution_space, DeviceMemory>;
  using size_type = std::size_t;
};
struct Device {
  using memory_space = DeviceMemory;
};
template <>
struct Kokkos::Impl::MemorySpaceAccess<Kokkos::HostSpace, DeviceMemory> {
  enum : bool { assignable = false, accessible = false, deepcopy = true };
};

#ifdef TESSERA_CONTROL
using Space = Kokkos::DefaultHostExecutionSpace;
#else
using Space = Device;
#endif

float first_cell(tessera::Shard<float, Space> const& shard) { return shard(0, 0, 0, 0, 0); }
