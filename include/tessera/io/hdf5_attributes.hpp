// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <cstddef>
#include <string>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/io/hdf5_draft.hpp"
#include "tessera/io/hdf5_file.hpp"

namespace tessera::io {

namespace detail {

template <class Number>
void write_number(hid_t group, std::string const& name, Number value) {
  Hdf5Handle const space(H5Screate(H5S_SCALAR), H5Sclose);
  Hdf5Handle const made(H5Acreate2(group, name.c_str(), native_type<Number>(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                        H5Aclose);
  require(made.valid() && H5Awrite(made.get(), native_type<Number>(), &value) >= 0, "HDF5", "the attribute '", name,
          "' must be writable: ", hdf5_reason());
}

inline Hdf5Handle text_type(std::size_t length) {
  Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), length == 0 ? 1 : length);
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  return type;
}

inline void write_text(hid_t group, std::string const& name, std::string const& value) {
  Hdf5Handle const space(H5Screate(H5S_SCALAR), H5Sclose), type = text_type(value.size());
  Hdf5Handle const made(H5Acreate2(group, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  require(made.valid() && H5Awrite(made.get(), type.get(), value.data()) >= 0, "HDF5", "the attribute '", name,
          "' must be writable: ", hdf5_reason());
}

}  // namespace detail

/// The attributes of a group in a file, numbers and texts.
class Hdf5Attributes {
 public:
  /// `who` begins the messages. Fails: if the file cannot be opened or has no such group.
  Hdf5Attributes(std::string who, std::string const& path, std::string group)
      : who_(std::move(who)), path_(path), group_(std::move(group)) {
    detail::Hdf5Quiet const quiet;
    file_ = {H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose};
    require(file_.valid(), who_, "the file '", path_,
            "' must be a whole HDF5 file, but HDF5 says: ", detail::hdf5_reason());
    at_ = {H5Gopen2(file_.get(), group_.c_str(), H5P_DEFAULT), H5Gclose};
    require(at_.valid(), who_, "the file '", path_, "' must hold a group '", group_, "', but it does not");
  }

  template <class Number>
  Number number(std::string const& name) const {
    detail::Hdf5Quiet const quiet;
    Number value{};
    detail::Hdf5Handle const found = open(name);
    detail::Hdf5Handle const space(H5Aget_space(found.get()), H5Sclose);
    require(H5Sget_simple_extent_npoints(space.get()) == 1 &&
                H5Aread(found.get(), detail::native_type<Number>(), &value) >= 0,
            who_, "the attribute '", name, "' of '", group_, "' in '", path_, "' must be a number");
    return value;
  }

  /// A text of fixed length, as write_text makes it.
  std::string text(std::string const& name) const {
    detail::Hdf5Quiet const quiet;
    detail::Hdf5Handle const found = open(name);
    detail::Hdf5Handle const kind(H5Aget_type(found.get()), H5Tclose);
    bool const good = H5Tget_class(kind.get()) == H5T_STRING && H5Tis_variable_str(kind.get()) == 0;
    std::string value(good ? H5Tget_size(kind.get()) : 0, '\0');
    detail::Hdf5Handle const type = detail::text_type(value.size());
    require(good && H5Aread(found.get(), type.get(), value.data()) >= 0, who_, "the attribute '", name, "' of '",
            group_, "' in '", path_, "' must be a text");
    return value;
  }

 private:
  detail::Hdf5Handle open(std::string const& name) const {
    bool const there = H5Aexists(at_.get(), name.c_str()) > 0;
    require(there, who_, "the group '", group_, "' in '", path_, "' must have an attribute '", name,
            "', but it does not");
    return {H5Aopen(at_.get(), name.c_str(), H5P_DEFAULT), H5Aclose};
  }

  std::string who_, path_, group_;
  detail::Hdf5Handle file_, at_;
};

}  // namespace tessera::io
