// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/io/hdf5_file.hpp"
#include "tessera/io/whole_file.hpp"

namespace tessera::io {

namespace detail {

template <class T>
hid_t native_type() {
  if constexpr (std::is_same_v<T, float>)
    return H5T_NATIVE_FLOAT;
  else if constexpr (std::is_same_v<T, double>)
    return H5T_NATIVE_DOUBLE;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return H5T_NATIVE_INT64;
  else {
    static_assert(std::is_same_v<T, std::uint64_t>);
    return H5T_NATIVE_UINT64;
  }
}

/// How datasets are made: without the time of day, so that equal contents make equal files.
inline Hdf5Handle dataset_form() {
  Hdf5Handle form(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(form.get(), false);
  return form;
}
/// How they are linked: a name such as a/b makes the group a where it is missing.
inline Hdf5Handle dataset_links() {
  Hdf5Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links.get(), 1);
  return links;
}

/// A small dataset, written whole.
template <class T>
void write_dataset(hid_t file, std::string const& name, std::vector<std::int64_t> const& shape,
                   std::vector<T> const& values) {
  std::vector<hsize_t> const extents(shape.begin(), shape.end());
  Hdf5Handle const space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), H5Sclose);
  Hdf5Handle const links = dataset_links(), form = dataset_form();
  Hdf5Handle const set(
      H5Dcreate2(file, name.c_str(), native_type<T>(), space.get(), links.get(), form.get(), H5P_DEFAULT), H5Dclose);
  require(set.valid() && H5Dwrite(set.get(), native_type<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0,
          "HDF5", "'", name, "' must be writable: ", hdf5_reason());
}

/// The bytes of an HDF5 file without content.
inline std::string empty_hdf5_file() {
  Hdf5Handle const access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_core(access.get(), std::size_t{1} << 16, 0);
  Hdf5Handle const file(H5Fcreate("tessera", H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
  auto const bytes = H5Fflush(file.get(), H5F_SCOPE_GLOBAL) < 0 ? -1 : H5Fget_file_image(file.get(), nullptr, 0);
  std::string image(bytes > 0 ? static_cast<std::size_t>(bytes) : 0, '\0');
  require(bytes > 0 && H5Fget_file_image(file.get(), image.data(), image.size()) == bytes, "HDF5",
          "an empty file must fit into memory: ", hdf5_reason());
  return image;
}

}  // namespace detail

/// A dataset to come.
struct Hdf5Promise {
  std::string name;
  std::vector<std::int64_t> shape;
};

/// An HDF5 file in the making: datasets of T are promised first, and then filled one after the other, so that their
/// bytes are never in memory together. HDF5 lays the file out; the bytes of these datasets are written without it, and
/// all room on the disk is claimed before it begins: after a write that fails (a full disk), HDF5 1.10 cannot close the
/// file, and crashes when the program ends.
template <class T>
class Hdf5Draft {
 public:
  /// `small` writes what else the file holds, `small_count` datasets and attributes of a few kilobytes together. The
  /// file's first `user_block` bytes, 0 or at least 512, are the application's.
  Hdf5Draft(std::string who, std::string const& path, std::vector<Hdf5Promise> const& promises,
            std::function<void(hid_t)> const& small, std::size_t small_count, std::int64_t user_block = 0)
      : who_(std::move(who)), file_(who_, path) {
    detail::Hdf5Quiet const quiet;
    std::int64_t room = user_block;
    for (Hdf5Promise const& each : promises) room += bytes_of(each);
    file_.claim(room + std::int64_t{4096} * static_cast<std::int64_t>(promises.size() + small_count + 16));
    // With a user block, a file that HDF5 does not truncate when it begins.
    file_.write(user_block, detail::empty_hdf5_file());
    detail::Hdf5Handle file(H5Fopen(file_.part().c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
    require(file.valid(), who_, "'", file_.part(), "' must open again: ", detail::hdf5_reason());
    for (Hdf5Promise const& each : promises) places_.push_back({promise(file.get(), each), bytes_of(each)});
    small(file.get());
    require(H5Fflush(file.get(), H5F_SCOPE_GLOBAL) >= 0, who_, "'", file_.part(),
            "' must take its outline: ", detail::hdf5_reason());
  }

  /// The elements of the next dataset, in row-major order.
  void fill(std::vector<T> const& elements) {
    auto const [at, bytes] = places_.at(next_++);
    require(static_cast<std::int64_t>(elements.size() * sizeof(T)) == bytes, who_, "a dataset of ", bytes,
            " bytes must be filled with as many");
    file_.write(at, {reinterpret_cast<char const*>(elements.data()), elements.size() * sizeof(T)});
  }

  /// The file so far, whose user block may be written.
  WholeFile& file() { return file_; }

  /// Lets the file reach the disk and get its name. All promises must be kept.
  void commit() {
    require(next_ == places_.size(), who_, "all ", places_.size(), " datasets must be filled, not ", next_);
    file_.commit();
  }

 private:
  static std::int64_t bytes_of(Hdf5Promise const& promise) {
    std::int64_t bytes = sizeof(T);
    for (std::int64_t const n : promise.shape) bytes *= n;
    return bytes;
  }

  /// Where the dataset's bytes belong.
  std::int64_t promise(hid_t file, Hdf5Promise const& promise) const {
    std::vector<hsize_t> const extents(promise.shape.begin(), promise.shape.end());
    detail::Hdf5Handle const space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
                                   H5Sclose);
    detail::Hdf5Handle const links = detail::dataset_links(), form = detail::dataset_form();
    H5Pset_layout(form.get(), H5D_CONTIGUOUS);
    H5Pset_alloc_time(form.get(), H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(form.get(), H5D_FILL_TIME_NEVER);
    detail::Hdf5Handle const set(H5Dcreate2(file, promise.name.c_str(), detail::native_type<T>(), space.get(),
                                            links.get(), form.get(), H5P_DEFAULT),
                                 H5Dclose);
    haddr_t const at = set.valid() ? H5Dget_offset(set.get()) : HADDR_UNDEF;
    require(at != HADDR_UNDEF, who_, "'", promise.name, "' must get a place in the file: ", detail::hdf5_reason());
    return static_cast<std::int64_t>(at);
  }

  struct Place {
    std::int64_t at, bytes;
  };

  std::string who_;
  WholeFile file_;
  std::vector<Place> places_;
  std::size_t next_ = 0;
};

}  // namespace tessera::io
