// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/core/error.hpp"
#include "tessera/io/hdf5_file.hpp"
#include "tessera/io/whole_file.hpp"
#include "tessera/model/model.hpp"

namespace tessera::io {

namespace detail {

/// A small dataset, written whole.
template <class T>
void write_dataset(hid_t file, std::string const& name, std::vector<std::int64_t> const& shape,
                   std::vector<T> const& values) {
  std::vector<hsize_t> const extents(shape.begin(), shape.end());
  Hdf5Handle const space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), H5Sclose);
  hid_t const type = std::is_same_v<T, float> ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE;
  Hdf5Handle const set(H5Dcreate2(file, name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                       H5Dclose);
  require(set.valid() && H5Dwrite(set.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0, "save_weights",
          "'", name, "' must fit into memory once more: ", hdf5_reason());
}

/// The bytes of an HDF5 file that is made in memory by fill(file). HDF5 itself writes nothing to disk: after a write
/// that fails (a full disk), version 1.10 cannot close the file, and crashes when the program ends.
template <class Fill>
std::string hdf5_image(Fill fill) {
  Hdf5Quiet const quiet;
  Hdf5Handle const access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_core(access.get(), std::size_t{1} << 20, 0);
  Hdf5Handle const file(H5Fcreate("tessera", H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
  fill(file.get());
  auto const bytes = H5Fflush(file.get(), H5F_SCOPE_GLOBAL) < 0 ? -1 : H5Fget_file_image(file.get(), nullptr, 0);
  std::string image(bytes > 0 ? static_cast<std::size_t>(bytes) : 0, '\0');
  require(bytes > 0 && H5Fget_file_image(file.get(), image.data(), image.size()) == bytes, "save_weights",
          "the file must fit into memory: ", hdf5_reason());
  return image;
}

/// A dataset, whole. Fails: naming file and dataset, if it has another shape.
inline std::vector<double> read_values(std::string const& path, std::string const& name,
                                       std::vector<std::int64_t> const& shape) {
  Hdf5Dataset const set("load_weights", path, name);
  std::vector<hsize_t> const wanted(shape.begin(), shape.end());
  require(set.extents() == wanted, "load_weights", "dataset '", name, "' of '", path, "' must have the shape ",
          shape_text(wanted), " of this network, but its shape is ", shape_text(set.extents()),
          "; give weights that were saved from the same network");
  std::size_t count = 1;
  for (hsize_t const n : wanted) count *= static_cast<std::size_t>(n);
  std::vector<std::byte> raw(count * set.element_bytes());
  set.read(std::vector<hsize_t>(wanted.size(), 0), wanted, raw.data());
  return with_type(set.type(), [&](auto example) {
    auto const* from = reinterpret_cast<decltype(example) const*>(raw.data());
    return std::vector<double>(from, from + count);
  });
}

}  // namespace detail

/// Writes parameters and running statistics into one HDF5 file, each whole, under its name and in PyTorch's order of
/// axes. The file appears whole or not at all. Collective; the first rank writes.
/// Fails: on every rank, if the file cannot be written.
template <class T, class Space>
void save_weights(Model<T, Space> const& model, std::string const& path) {
  Communicator<Mpi> const& ranks = model.input_ranks().world();
  std::vector<std::vector<T>> whole;
  for (Parameter<T, Space> const* p : model.parameters()) {
    whole.push_back(p->download_whole(ranks));
    if (ranks.rank() != 0) whole.back() = {};
  }
  agreed(ranks, [&] {
    if (ranks.rank() != 0) return;
    write_whole_file("save_weights", path, detail::hdf5_image([&](hid_t file) {
                       auto next = whole.begin();
                       for (Parameter<T, Space> const* p : model.parameters())
                         detail::write_dataset(file, p->name(), p->file_shape(), *next++);
                       model.for_each_buffer([&](std::string const& name, std::vector<double>& values) {
                         detail::write_dataset(file, name, {static_cast<std::int64_t>(values.size())}, values);
                       });
                     }));
  });
}

/// Reads what save_weights wrote, under any decomposition. The model must be allocated. Collective.
/// Fails: on every rank, naming file and dataset, if something is missing or has another shape; the model is then as it
/// was.
template <class T, class Space>
void load_weights(Model<T, Space> const& model, std::string const& path) {
  std::vector<std::vector<double>> found;
  agreed(model.input_ranks().world(), [&] {
    for (Parameter<T, Space> const* p : model.parameters())
      found.push_back(detail::read_values(path, p->name(), p->file_shape()));
    model.for_each_buffer([&](std::string const& name, std::vector<double>& values) {
      found.push_back(detail::read_values(path, name, {static_cast<std::int64_t>(values.size())}));
    });
  });
  auto next = found.begin();
  for (Parameter<T, Space> const* p : model.parameters()) {
    p->set_from_whole(std::vector<T>(next->begin(), next->end()));
    ++next;
  }
  model.for_each_buffer([&](std::string const&, std::vector<double>& values) { values = *next++; });
}

}  // namespace tessera::io
