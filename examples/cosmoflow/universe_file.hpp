// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <hdf5.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cosmology.hpp"
#include "universe.hpp"

namespace cosmoflow {

/// An HDF5 identifier, closed with its scope.
class H5Handle {
 public:
  H5Handle(hid_t id, herr_t (*closer)(hid_t), std::string const& what) : id_{id}, close_{closer} {
    if (id < 0) throw std::runtime_error(what);
  }
  H5Handle(H5Handle const&) = delete;
  H5Handle& operator=(H5Handle const&) = delete;
  ~H5Handle() { close(); }

  bool close() { return id_ < 0 || close_(std::exchange(id_, -1)) >= 0; }
  [[nodiscard]] hid_t get() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

/// Where the datasets' values begin, in bytes from the start of the file.
struct UniverseOffsets {
  std::int64_t x = 0;
  std::int64_t y = 0;
  std::int64_t parameters = 0;
};

/// One file of universes in the layout of MLPerf HPC: `x` (N, depth, height, width, redshift) int16 and `y` (N, 4)
/// float32 in [-1, 1]; besides, `parameters` (N, 4) float64 in physical units, and attributes.
///
/// HDF5 lays the file out, on one rank; each rank then puts its universes where they belong by itself. Installed HDF5
/// (1.10) is not trusted with the values: after a write that fails, its close fails, and the program crashes at exit.
/// All work on FILE.part, which gets its name once it is safely on disk, so that FILE is never half a file.
class UniverseFile {
 public:
  /// On one rank: the file with everything but the universes in it. Its bytes do not depend on who makes them, or when.
  static UniverseOffsets create(std::filesystem::path const& path, UniverseShape const& shape, std::uint64_t seed,
                                std::uint64_t first_index, std::int64_t count) {
    check_place(path, shape, count);
    try {
      return lay_out(path, shape, seed, first_index, count);
    } catch (...) {
      discard(path);
      throw;
    }
  }
  /// On every rank, after `create`.
  UniverseFile(std::filesystem::path const& path, UniverseOffsets offsets)
      : part_{part_of(path)}, offsets_{offsets}, file_{::open(part_.c_str(), O_WRONLY | O_CLOEXEC)} {
    if (file_ < 0)
      throw std::runtime_error("simulate: every rank must be able to open '" + part_.string() + "' (" +
                               std::strerror(errno) + "); choose for --out a folder that all nodes share");
    ::flock(file_, LOCK_SH | LOCK_NB);  // for check_place of another run; a file system without locks does without
  }
  UniverseFile(UniverseFile const&) = delete;
  UniverseFile& operator=(UniverseFile const&) = delete;
  ~UniverseFile() {
    if (file_ >= 0) ::close(file_);
  }

  /// Universe `i` of this file.
  void write(std::int64_t i, Truth const& truth, std::span<std::int16_t const> counts) {
    Cosmology const& c = truth.cosmology;
    std::array const physical{c.omega_m, c.sigma_8, c.n_s, c.h};
    put(offsets_.x, i, std::as_bytes(counts));
    put(offsets_.y, i, std::as_bytes(std::span{truth.target}));
    put(offsets_.parameters, i, std::as_bytes(std::span{physical}));
  }

  /// Returns when what this rank wrote is on disk.
  void finish() {
    bool good = ::fsync(file_) == 0;
    int const error = errno;
    good = ::close(std::exchange(file_, -1)) == 0 && good;
    if (!good) throw std::runtime_error(failure(part_, std::strerror(error)));
  }

  /// On one rank, when all have finished.
  static void commit(std::filesystem::path const& path) {
    std::error_code error;
    std::filesystem::rename(part_of(path), path, error);
    if (error)
      throw std::runtime_error("simulate: '" + part_of(path).string() + "' must be renamable to '" + path.string() +
                               "' (" + error.message() + "); choose another --out");
    int const folder = ::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool const good = folder >= 0 && ::fsync(folder) == 0;
    std::string const reason = std::strerror(errno);
    if (folder >= 0) ::close(folder);
    if (!good) throw std::runtime_error(failure(path, reason));
  }

  /// On one rank, instead of `commit`.
  static void discard(std::filesystem::path const& path) {
    std::error_code ignored;
    std::filesystem::remove(part_of(path), ignored);
  }

 private:
  /// No traces from HDF5 within a scope: this class reports failures itself, in one line.
  class Quiet {
   public:
    Quiet() {
      H5Eget_auto2(H5E_DEFAULT, &report_, &data_);
      H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    }
    Quiet(Quiet const&) = delete;
    Quiet& operator=(Quiet const&) = delete;
    ~Quiet() { H5Eset_auto2(H5E_DEFAULT, report_, data_); }

   private:
    H5E_auto2_t report_ = nullptr;
    void* data_ = nullptr;
  };

  static std::filesystem::path part_of(std::filesystem::path const& path) { return path.string() + ".part"; }
  static std::filesystem::path folder_of(std::filesystem::path const& path) {
    return path.has_parent_path() ? path.parent_path() : std::filesystem::path{"."};
  }
  static std::string failure(std::filesystem::path const& path, std::string const& reason) {
    return "simulate: '" + path.string() + "' must take what is written to it (" + reason +
           "); check the disk and its quota";
  }
  static std::string mebibytes(double bytes) {
    return std::to_string(static_cast<std::int64_t>(bytes / 0x1p20)) + " MiB";
  }
  static void expect(herr_t status, std::string const& failed) {
    if (status < 0) throw std::runtime_error(failed);
  }

  static void check_place(std::filesystem::path const& path, UniverseShape const& shape, std::int64_t count) {
    namespace fs = std::filesystem;
    std::error_code error;
    std::string const name = "'" + path.string() + "'";
    if (!path.has_filename() || fs::is_directory(path, error))
      throw std::runtime_error("simulate: --out must name a file, " + name + " is a folder; add a file name");
    auto const space = fs::space(folder_of(path), error);
    double const needed = static_cast<double>(count) * static_cast<double>(shape.values()) * sizeof(std::int16_t);
    if (!error && static_cast<double>(space.available) < needed)
      throw std::runtime_error("simulate: " + name + " needs " + mebibytes(needed) + ", its folder has " +
                               mebibytes(static_cast<double>(space.available)) + " free; free some or lower --count");
    int const file = error ? -1 : ::open(part_of(path).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
      throw std::runtime_error("simulate: the folder of " + name + " must exist and be writable (" +
                               (error ? error.message() : std::strerror(errno)) +
                               "); create it or choose another --out");
    bool const taken = ::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    ::close(file);
    if (taken)
      throw std::runtime_error("simulate: " + name + " must not be in the making by another run; choose another --out");
  }

  static UniverseOffsets lay_out(std::filesystem::path const& path, UniverseShape const& shape, std::uint64_t seed,
                                 std::uint64_t first_index, std::int64_t count) {
    Quiet const quiet;
    auto const part = part_of(path);
    std::string const failed = failure(part, "HDF5 could not");
    H5Handle file{H5Fcreate(part.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose, failed};
    auto const n = static_cast<hsize_t>(count);
    auto const side = static_cast<hsize_t>(shape.size);
    auto const channels = static_cast<hsize_t>(shape.channels());
    UniverseOffsets const offsets{.x = dataset(file, "x", H5T_NATIVE_INT16, {n, side, side, side, channels}, failed),
                                  .y = dataset(file, "y", H5T_NATIVE_FLOAT, {n, 4}, failed),
                                  .parameters = dataset(file, "parameters", H5T_NATIVE_DOUBLE, {n, 4}, failed)};
    Cosmology const centre;
    std::array const centres{centre.omega_m, centre.sigma_8, centre.n_s, centre.h};
    double const box = shape.box();
    attribute(file, "redshifts", H5T_NATIVE_DOUBLE, shape.redshifts.data(), shape.redshifts.size(), failed);
    attribute(file, "box_mpc_per_h", H5T_NATIVE_DOUBLE, &box, 1, failed);
    attribute(file, "voxel_mpc_per_h", H5T_NATIVE_DOUBLE, &shape.voxel, 1, failed);
    attribute(file, "omega_b", H5T_NATIVE_DOUBLE, &omega_b, 1, failed);
    attribute(file, "parameter_centres", H5T_NATIVE_DOUBLE, centres.data(), centres.size(), failed);
    attribute(file, "parameter_spread", H5T_NATIVE_DOUBLE, &parameter_spread, 1, failed);
    attribute(file, "seed", H5T_NATIVE_UINT64, &seed, 1, failed);
    attribute(file, "first_index", H5T_NATIVE_UINT64, &first_index, 1, failed);
    H5Handle const text{H5Tcopy(H5T_C_S1), H5Tclose, failed};
    expect(H5Tset_size(text.get(), H5T_VARIABLE), failed);
    attribute(file, "parameter_names", text.get(), parameter_names.data(), parameter_names.size(), failed);
    if (!file.close()) throw std::runtime_error(failed);
    return offsets;
  }

  /// Returns where its values begin.
  static std::int64_t dataset(H5Handle const& file, char const* name, hid_t type, std::vector<hsize_t> const& extents,
                              std::string const& failed) {
    H5Handle const space{H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), H5Sclose, failed};
    H5Handle const properties{H5Pcreate(H5P_DATASET_CREATE), H5Pclose, failed};
    expect(H5Pset_alloc_time(properties.get(), H5D_ALLOC_TIME_EARLY), failed);
    expect(H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER), failed);
    expect(H5Pset_obj_track_times(properties.get(), false), failed);
    H5Handle const made{H5Dcreate2(file.get(), name, type, space.get(), H5P_DEFAULT, properties.get(), H5P_DEFAULT),
                        H5Dclose, failed};
    haddr_t const offset = H5Dget_offset(made.get());
    if (offset == HADDR_UNDEF) throw std::runtime_error(failed);
    return static_cast<std::int64_t>(offset);
  }

  static void attribute(H5Handle const& file, char const* name, hid_t type, void const* values, std::size_t count,
                        std::string const& failed) {
    hsize_t const extent = count;
    H5Handle const space{count == 1 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &extent, nullptr), H5Sclose, failed};
    H5Handle const made{H5Acreate2(file.get(), name, type, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, failed};
    expect(H5Awrite(made.get(), type, values), failed);
  }

  /// Row `i` of the dataset that begins at `offset`.
  void put(std::int64_t offset, std::int64_t i, std::span<std::byte const> row) {
    offset += i * static_cast<std::int64_t>(row.size());
    while (!row.empty()) {
      auto const written = ::pwrite(file_, row.data(), row.size(), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw std::runtime_error(failure(part_, std::strerror(errno)));
      row = row.subspan(static_cast<std::size_t>(written));
      offset += written;
    }
  }

  std::filesystem::path part_;
  UniverseOffsets offsets_;
  int file_;
};

}  // namespace cosmoflow
