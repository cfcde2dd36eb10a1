// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/io/stored.hpp"

namespace tessera::io {

namespace detail {

/// HDF5 serves one thread at a time: whoever calls it holds this lock.
class Hdf5Lock {
 public:
  Hdf5Lock() : held_(mutex()) {}

 private:
  static std::recursive_mutex& mutex() {
    static std::recursive_mutex only;
    return only;
  }
  std::lock_guard<std::recursive_mutex> held_;
};

/// An HDF5 identifier that closes itself.
class Hdf5Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Handle() = default;
  Hdf5Handle(hid_t id, Close close) : id_(id), close_(close) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Hdf5Handle() {
    if (id_ < 0) return;
    Hdf5Lock const lock;
    close_(id_);
  }
  hid_t get() const { return id_; }
  bool valid() const { return id_ >= 0; }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

/// Holds HDF5, and keeps it from printing its error stack; the errors reach the user as messages.
class Hdf5Quiet {
 public:
  Hdf5Quiet() {
    H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  Hdf5Quiet(Hdf5Quiet const&) = delete;
  Hdf5Quiet& operator=(Hdf5Quiet const&) = delete;
  ~Hdf5Quiet() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }

 private:
  Hdf5Lock lock_;
  H5E_auto2_t print_ = nullptr;
  void* data_ = nullptr;
};

/// What HDF5 itself says of its last failure, from the innermost function out.
inline std::string hdf5_reason() {
  std::string reason;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, H5E_error2_t const* entry, void* out) -> herr_t {
        auto& text = *static_cast<std::string*>(out);
        if (text.empty() && entry->desc != nullptr) text = entry->desc;
        return 0;
      },
      &reason);
  return reason.empty() ? "unknown reason" : reason;
}

/// Extents as text, for messages.
inline std::string shape_text(std::vector<hsize_t> const& extents) {
  std::string text = "(";
  for (std::size_t i = 0; i < extents.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(extents[i]);
  return text + ")";
}

using FileType = CellType;

inline hid_t memory_type(FileType type) {
  switch (type) {
    case FileType::int8: return H5T_NATIVE_INT8;
    case FileType::uint8: return H5T_NATIVE_UINT8;
    case FileType::int16: return H5T_NATIVE_INT16;
    case FileType::uint16: return H5T_NATIVE_UINT16;
    case FileType::int32: return H5T_NATIVE_INT32;
    case FileType::float32: return H5T_NATIVE_FLOAT;
    case FileType::float64: return H5T_NATIVE_DOUBLE;
  }
  return -1;
}

/// Calls use(T{}) with the C++ type of a file's elements.
template <class Use>
decltype(auto) with_type(FileType type, Use use) {
  switch (type) {
    case FileType::int8: return use(std::int8_t{});
    case FileType::uint8: return use(std::uint8_t{});
    case FileType::int16: return use(std::int16_t{});
    case FileType::uint16: return use(std::uint16_t{});
    case FileType::int32: return use(std::int32_t{});
    case FileType::float32: return use(float{});
    case FileType::float64: break;
  }
  return use(double{});
}

}  // namespace detail

/// A dataset opened for reading by one process, with the POSIX driver. Boxes are read in the file's own element type.
class Hdf5Dataset {
 public:
  /// `who` begins the messages.
  /// Fails: naming file and dataset, if the file cannot be opened, lacks the dataset, or holds another kind of type.
  Hdf5Dataset(std::string who, std::string const& path, std::string name)
      : who_(std::move(who)), path_(path), name_(std::move(name)) {
    detail::Hdf5Quiet const quiet;
    open_file();
    // A name such as a/b leads through groups, each of which must be there before the next is asked for.
    bool there = true;
    for (std::size_t end = name_.find('/', 1); there && end != std::string::npos; end = name_.find('/', end + 1))
      there = H5Lexists(file_.get(), name_.substr(0, end).c_str(), H5P_DEFAULT) > 0;
    there = there && H5Lexists(file_.get(), name_.c_str(), H5P_DEFAULT) > 0;
    require(there, who_, "the file '", path_, "' must hold a dataset '", name_, "', but it holds ", content());
    open_set(H5P_DEFAULT);
    detail::Hdf5Handle const space(H5Dget_space(set_.get()), H5Sclose);
    int const rank = H5Sget_simple_extent_ndims(space.get());
    extents_.resize(static_cast<std::size_t>(rank < 0 ? 0 : rank));
    if (rank > 0) H5Sget_simple_extent_dims(space.get(), extents_.data(), nullptr);
    type_ = file_type();
    look_at_filters();
  }

  std::string const& path() const { return path_; }
  std::string const& name() const { return name_; }
  std::vector<hsize_t> const& extents() const { return extents_; }
  detail::FileType type() const { return type_; }
  std::size_t element_bytes() const { return static_cast<std::size_t>(size_of(type_)); }
  /// The extents of a chunk, if reading one means to decompress it; else nothing.
  std::vector<hsize_t> const& compressed_chunk() const { return chunk_; }

  /// Keeps up to so many bytes of decompressed chunks from read to read. What was kept is forgotten.
  void set_cache(std::int64_t bytes) {
    // HDF5 looks a chunk up by the bits of its indices, one axis after the other: with a slot for each there are no two
    // that evict each other.
    std::size_t slots = 1;
    constexpr std::size_t most = (1 << 20) + 7;
    for (std::size_t a = 0; a < chunk_.size() && slots < most; ++a) {
      hsize_t const chunks = (extents_[a] + chunk_[a] - 1) / chunk_[a];
      for (hsize_t room = 1; room < chunks && slots < most; room *= 2) slots *= 2;
    }
    detail::Hdf5Quiet const quiet;
    detail::Hdf5Handle const access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
    H5Pset_chunk_cache(access.get(), slots < most ? slots : most, static_cast<std::size_t>(bytes),
                       H5D_CHUNK_CACHE_W0_DEFAULT);
    set_ = {};
    open_set(access.get());
  }

  /// Reads a box into dense memory of the file's element type.
  void read(std::vector<hsize_t> const& start, std::vector<hsize_t> const& count, void* cells) const {
    detail::Hdf5Quiet const quiet;
    detail::Hdf5Handle const from(H5Dget_space(set_.get()), H5Sclose);
    detail::Hdf5Handle const to(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr), H5Sclose);
    bool const read =
        H5Sselect_hyperslab(from.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr) >= 0 &&
        H5Dread(set_.get(), detail::memory_type(type_), to.get(), from.get(), H5P_DEFAULT, cells) >= 0;
    require(read, who_, "dataset '", name_, "' of '", path_,
            "' must be readable, but HDF5 says: ", detail::hdf5_reason(),
            "; the file may be damaged: make it or copy it again");
  }

 private:
  void open_file() {
    errno = 0;
    struct stat there {};
    bool const found =
        ::stat(path_.c_str(), &there) == 0 && (S_ISDIR(there.st_mode) || ::access(path_.c_str(), R_OK) == 0);
    require(found, who_, "the file '", path_, "' must be there and readable (", std::strerror(errno), ")");
    require(!S_ISDIR(there.st_mode), who_, "'", path_, "' must be an HDF5 file, but it is a folder");
    file_ = {H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose};
    if (file_.valid()) return;
    std::string const reason = detail::hdf5_reason();
    require(H5Fis_hdf5(path_.c_str()) > 0, who_, "the file '", path_, "' must be an HDF5 file, but it ",
            there.st_size == 0 ? "is empty" : "does not begin like one");
    throw Error(tessera::detail::text(who_, ": the file '", path_, "' must be a whole HDF5 file, but HDF5 says: ",
                                      reason, "; make it or copy it again"));
  }

  void open_set(hid_t access) {
    set_ = {H5Dopen2(file_.get(), name_.c_str(), access), H5Dclose};
    require(set_.valid(), who_, "'", name_, "' in '", path_,
            "' must be a dataset, but HDF5 says: ", detail::hdf5_reason());
  }

  /// Fails: if a filter is missing, which HDF5 would say at the first read.
  void look_at_filters() {
    detail::Hdf5Handle const made(H5Dget_create_plist(set_.get()), H5Pclose);
    int const filters = H5Pget_layout(made.get()) == H5D_CHUNKED ? H5Pget_nfilters(made.get()) : 0;
    for (int i = 0; i < filters; ++i) {
      char name[64] = {};
      unsigned flags = 0, config = 0;
      std::size_t values = 0;
      H5Z_filter_t const filter =
          H5Pget_filter2(made.get(), static_cast<unsigned>(i), &flags, &values, nullptr, sizeof name, name, &config);
      require(H5Zfilter_avail(filter) > 0, who_, "dataset '", name_, "' of '", path_,
              "' must be packed with filters that this HDF5 has, but filter ", filter, " '", name,
              "' is missing; name its folder in HDF5_PLUGIN_PATH, or pack the file with gzip");
    }
    if (filters <= 0) return;
    chunk_.resize(extents_.size());
    H5Pget_chunk(made.get(), static_cast<int>(chunk_.size()), chunk_.data());
  }

  /// The names at the top of the file, for a message.
  std::string content() const {
    constexpr hsize_t most = 12;
    H5G_info_t info{};
    H5Gget_info(file_.get(), &info);
    std::string names;
    for (hsize_t i = 0; i < info.nlinks && i < most; ++i) {
      char name[64] = {};
      H5Lget_name_by_idx(file_.get(), ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name, H5P_DEFAULT);
      names += (i == 0 ? "'" : ", '") + std::string(name) + "'";
    }
    if (info.nlinks > most) names += " and " + std::to_string(info.nlinks - most) + " more";
    return names.empty() ? "nothing" : names;
  }

  detail::FileType file_type() const {
    using detail::FileType;
    detail::Hdf5Handle type(H5Dget_type(set_.get()), H5Tclose);
    if (H5Tget_class(type.get()) == H5T_ENUM) type = {H5Tget_super(type.get()), H5Tclose};  // h5py's booleans
    H5T_class_t const kind = H5Tget_class(type.get());
    std::size_t const bytes = H5Tget_size(type.get());
    bool const is_signed = kind == H5T_INTEGER && H5Tget_sign(type.get()) == H5T_SGN_2;
    if (kind == H5T_FLOAT && bytes == 4) return FileType::float32;
    if (kind == H5T_FLOAT && bytes == 8) return FileType::float64;
    if (kind == H5T_INTEGER && bytes == 1) return is_signed ? FileType::int8 : FileType::uint8;
    if (kind == H5T_INTEGER && bytes == 2) return is_signed ? FileType::int16 : FileType::uint16;
    if (kind == H5T_INTEGER && bytes == 4 && is_signed) return FileType::int32;
    throw Error(tessera::detail::text(
        who_, ": dataset '", name_, "' of '", path_,
        "' must hold int8, uint8, int16, uint16, int32, float or double, but it holds ",
        kind == H5T_INTEGER || kind == H5T_FLOAT ? "numbers of another size or sign" : "something else than numbers"));
  }

  std::string who_, path_, name_;
  detail::Hdf5Handle file_, set_;
  std::vector<hsize_t> extents_, chunk_;
  detail::FileType type_ = detail::FileType::float32;
};

}  // namespace tessera::io
