// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <hdf5.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/core/error.hpp"
#include "tessera/io/hdf5_file.hpp"
#include "tessera/model/model.hpp"

namespace tessera::io {

namespace detail {

/// A small dataset, written whole.
template <class T>
void write_dataset(hid_t file, std::string const& name, std::vector<std::int64_t> const& shape, std::vector<T> const& values) {
  std::vector<hsize_t> const extents(shape.begin(), shape.end());
  Hdf5Handle const space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), H5Sclose);
  hid_t const type = std::is_same_v<T, float> ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE;
  Hdf5Handle const set(H5Dcreate2(file, name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose);
  require(set.valid() && H5Dwrite(set.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0, "save_weights",
          "writing '", name, "' must succeed: ", hdf5_reason());
}

/// Makes what was written survive a crash of the machine.
inline void sync_path(std::string const& path) {
  int const file = ::open(path.c_str(), O_RDONLY);
  bool const synced = file >= 0 && ::fsync(file) == 0;
  if (file >= 0) ::close(file);
  require(synced, "save_weights", "'", path, "' must reach the disk, but fsync failed");
}

inline std::string folder_of(std::string const& path) {
  std::size_t const slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace detail

/// Writes parameters and running statistics into one HDF5 file, each under its name and in PyTorch's order of axes. The
/// file appears whole or not at all. Collective; the first rank writes.
/// Fails: on every rank, if the file cannot be written.
template <class T, class Space>
void save_weights(Model<T, Space> const& model, std::string const& path) {
  Communicator<Mpi> const& ranks = model.input_ranks().world();
  agreed(ranks, [&] {
    if (ranks.rank() != 0) return;
    std::string const part = path + ".part";
    {
      detail::Hdf5Quiet const quiet;
      detail::Hdf5Handle const file(H5Fcreate(part.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
      require(file.valid(), "save_weights", "the file '", part, "' must be writable: ", detail::hdf5_reason());
      for (Parameter<T, Space> const* p : model.parameters()) {
        require(!p->sharded(), "save_weights", p->name(), " is split over ranks; only whole parameters can be saved yet");
        detail::write_dataset(file.get(), p->name(), p->shape(), p->download());
      }
      model.for_each_buffer([&](std::string const& name, std::vector<double>& values) {
        detail::write_dataset(file.get(), name, {static_cast<std::int64_t>(values.size())}, values);
      });
    }
    detail::sync_path(part);
    require(std::rename(part.c_str(), path.c_str()) == 0, "save_weights", "'", part, "' must be renamed to '", path, "'");
    detail::sync_path(detail::folder_of(path));
  });
}

/// Reads what save_weights wrote, under any decomposition. The model must be allocated. Collective.
/// Fails: on every rank, naming file and dataset, if something is missing or has another shape.
template <class T, class Space>
void load_weights(Model<T, Space> const& model, std::string const& path) {
  agreed(model.input_ranks().world(), [&] {
    auto const read = [&](std::string const& name, std::vector<std::int64_t> const& shape) {
      Hdf5Dataset const set(path, name);
      std::vector<hsize_t> const wanted(shape.begin(), shape.end());
      require(set.extents() == wanted, "load_weights", "'", name, "' of '", path, "' has the shape ", set.shape_text(),
              ", but the model wants another; was it saved from this network?");
      std::size_t count = 1;
      for (hsize_t const n : wanted) count *= static_cast<std::size_t>(n);
      std::vector<double> values(count);
      std::vector<std::byte> raw(count * set.element_bytes());
      set.read(std::vector<hsize_t>(wanted.size(), 0), wanted, raw.data());
      detail::with_type(set.type(), [&](auto example) {
        auto const* from = reinterpret_cast<decltype(example) const*>(raw.data());
        for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>(from[i]);
      });
      return values;
    };
    for (Parameter<T, Space>* p : model.parameters()) {
      std::vector<double> const values = read(p->name(), p->shape());
      p->set(std::vector<T>(values.begin(), values.end()));
    }
    model.for_each_buffer([&](std::string const& name, std::vector<double>& values) {
      values = read(name, {static_cast<std::int64_t>(values.size())});
    });
  });
}

}  // namespace tessera::io
