// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/core/error.hpp"
#include "tessera/io/convert.hpp"
#include "tessera/io/file_list.hpp"
#include "tessera/io/hdf5_file.hpp"
#include "tessera/io/hdf5_samples.hpp"
#include "tessera/io/hdf5_schema.hpp"
#include "tessera/io/source.hpp"
#include "tessera/io/stored.hpp"
#include "tessera/model/model.hpp"

namespace tessera::io {

/// Samples in an HDF5 file, or in all files of a folder that end in .h5, .hdf5 or .hdf, sorted by name. Every rank
/// reads just the boxes it is asked for, in the file's own type, by itself: ranks that ask for nothing need do nothing.
///
/// Fails: naming file and dataset, when a file is missing, damaged or truncated, a dataset is missing or has another
/// rank, shape or type than the schema, or than those of the other files, or there are no samples.
class Hdf5Source {
 public:
  /// Looks at all files, on this rank alone.
  explicit Hdf5Source(std::string path, Hdf5Schema schema = {}, Hdf5Options const& options = {})
      : Hdf5Source(options, std::move(path), std::move(schema)) {
    files_ = is_folder(path_) ? names_in(path_) : std::vector<std::string>{""};
    std::vector<std::int64_t> samples(files_.size(), 0);
    look_at_files(0, 1, samples);
    number(samples);
  }

  /// The ranks share the work of looking at the files, and what fails on any of them fails on all. Collective.
  Hdf5Source(Communicator<Mpi> const& ranks, std::string path, Hdf5Schema schema = {}, Hdf5Options const& options = {})
      : Hdf5Source(options, std::move(path), std::move(schema)) {
    std::string list;  // each name and a zero; nothing for a file
    agreed(ranks, [&] {
      if (ranks.rank() == 0 && is_folder(path_))
        for (std::string const& name : names_in(path_)) list += name + '\0';
    });
    auto length = static_cast<std::int64_t>(list.size());
    ranks.broadcast(&length, 1, 0);
    list.resize(static_cast<std::size_t>(length));
    ranks.broadcast(reinterpret_cast<std::uint8_t*>(list.data()), length, 0);
    for (std::size_t at = 0; at < list.size(); at += files_.back().size() + 1) files_.emplace_back(list.c_str() + at);
    if (files_.empty()) files_.emplace_back();
    std::vector<std::int64_t> samples(files_.size(), 0);
    agreed(ranks, [&] { look_at_files(ranks.rank(), ranks.size(), samples); });
    if (ranks.rank() != 0) samples.front() = 0;  // all have looked at the first
    ranks.all_reduce(samples.data(), static_cast<std::int64_t>(samples.size()));
    number(samples);
  }

  std::int64_t size() const { return first_.back(); }
  StoredField const& field(Part part) const { return fields_[index(part)]; }
  Shape input_shape() const { return field(Part::input).shape; }
  Shape target_shape() const { return field(Part::target).shape; }
  SampleShape<3> sample_shape() const {
    Shape const s = input_shape();
    return {.channels = s.channel, .space = {s.depth, s.height, s.width}};
  }
  std::int64_t files() const { return static_cast<std::int64_t>(files_.size()); }

  /// What this rank has read so far.
  std::int64_t bytes_read() const { return std::atomic_ref(bytes_read_).load(std::memory_order_relaxed); }

  /// Fails: naming file and dataset, if the box lies outside the sample, the file cannot be read, or holds what the
  /// options tell to refuse.
  void read_stored(Part part, std::int64_t sample, Box const& box, std::byte* cells) {
    if (box.empty()) return;
    detail::Hdf5Lock const lock;  // several stores may share a source
    StoredField const& f = field(part);
    Box inside = box;
    inside.axis[0] = {0, 1};
    require(0 <= sample && sample < size() && f.shape.box().contains(inside), "Hdf5Source",
            "what is read must lie within the ", size(), " samples of shape ", f.shape, " of '", path_,
            "', but it is the box ", inside, " of sample ", sample);
    std::size_t const file = file_of(sample);
    detail::Hdf5Samples& samples = opened(file);
    auto const selection = samples.select(detail::axes_of(schema_, part), sample - first_[file], box);
    make_room(samples, part, selection);
    samples.read(part, selection, cells);
    std::atomic_ref(bytes_read_).fetch_add(f.bytes(inside), std::memory_order_relaxed);
    if (options_.check_finite) check_values(part, sample, inside, cells);
  }

  /// The same, converted to cells (depth, height, width, channel) of T.
  template <class T>
  void read_input(std::int64_t sample, Box const& box, T* cells) {
    read_as(Part::input, sample, box, cells);
  }
  template <class T>
  void read_target(std::int64_t sample, Box const& box, T* cells) {
    read_as(Part::target, sample, box, cells);
  }

 private:
  struct OpenFile {
    std::size_t file;
    detail::Hdf5Samples samples;
  };

  Hdf5Source(Hdf5Options const& options, std::string path, Hdf5Schema schema)
      : path_(std::move(path)), schema_(std::move(schema)), options_(options) {
    require(options.open_files >= 1 && options.cache_bytes >= 0, "Hdf5Source",
            "open_files must be at least 1 and cache_bytes at least 0, but they are ", options.open_files, " and ",
            options.cache_bytes);
  }

  static bool is_folder(std::string const& path) {
    struct stat there {};
    return ::stat(path.c_str(), &there) == 0 && S_ISDIR(there.st_mode);
  }
  static std::vector<std::string> names_in(std::string const& folder) {
    return detail::file_names("Hdf5Source", folder, {".h5", ".hdf5", ".hdf"});
  }
  std::string path_of(std::size_t file) const { return files_[file].empty() ? path_ : path_ + '/' + files_[file]; }

  std::size_t file_of(std::int64_t sample) const {
    return static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), sample) - first_.begin()) - 1;
  }

  /// Every step-th file from `begin` on, and the first, which all others must be like.
  void look_at_files(int begin, int step, std::vector<std::int64_t>& samples) {
    detail::Hdf5Samples const& first = opened(0);
    samples[0] = first.size();
    std::vector<hsize_t> extents[2];
    CellType types[2] = {};
    for (Part const part : parts) {
      std::size_t const i = index(part);
      extents[i] = first.extents(part);
      types[i] = first.type(part);
      Hdf5Axes const axes = detail::axes_of(schema_, part);
      StoredField& f = fields_[i];
      f.type = types[i];
      f.order = axes == Hdf5Axes::channels_first ? CellOrder::channels_first : CellOrder::channels_last;
      f.transforms = part == Part::input ? schema_.transform : schema_.target_transform;
      Box box = f.shape.box();
      auto extent = extents[i].begin();
      for (int const axis : detail::box_axes(axes)) box.axis[axis] = {0, static_cast<std::int64_t>(*extent++)};
      f.shape = {1, box.axis[1].end, box.axis[2].end, box.axis[3].end, box.axis[4].end};
      check_transforms("Hdf5Source", f);
    }
    for (auto file = static_cast<std::size_t>(begin); file < files_.size(); file += static_cast<std::size_t>(step)) {
      detail::Hdf5Samples const& other = opened(file);
      samples[file] = other.size();
      for (Part const part : parts) {
        std::size_t const i = index(part);
        require(other.extents(part) == extents[i] && other.type(part) == types[i], "Hdf5Source", "dataset '",
                detail::name_of(schema_, part),
                "' must hold samples of the same shape and type in all files, but those of '", path_of(0), "' are ",
                detail::shape_text(extents[i]), " of ", types[i], ", and those of '", path_of(file), "' ",
                detail::shape_text(other.extents(part)), " of ", other.type(part));
      }
    }
  }

  void number(std::vector<std::int64_t> const& samples) {
    first_.assign(1, 0);
    for (std::int64_t const n : samples) first_.push_back(first_.back() + n);
  }

  /// A file among those that are open, which it is from now on; the one not used for longest may be closed for it.
  detail::Hdf5Samples& opened(std::size_t file) {
    auto const found = std::find_if(open_.begin(), open_.end(), [&](OpenFile const& o) { return o.file == file; });
    if (found != open_.end()) {
      open_.splice(open_.begin(), open_, found);
    } else {
      detail::Hdf5Samples samples(path_of(file), schema_);
      if (open_.size() >= static_cast<std::size_t>(options_.open_files)) open_.pop_back();
      open_.push_front({file, std::move(samples)});
    }
    return open_.front().samples;
  }

  /// Lets the file opened last keep decompressed chunks within its share of the budget, or as many as a box of these
  /// extents may touch: then a read of its neighbours, or of another sample in the same chunks, finds them.
  void make_room(detail::Hdf5Samples& samples, Part part, detail::Hdf5Samples::Selection const& selection) {
    double const needed = samples.bytes_to_unpack(part, selection);
    if (needed <= static_cast<double>(samples.cache(part)) || needed > static_cast<double>(options_.cache_bytes))
      return;
    std::int64_t const share = options_.cache_bytes / (2 * std::min<std::int64_t>(options_.open_files, files()));
    std::int64_t const wanted = std::max(share, static_cast<std::int64_t>(needed));
    auto const kept = [](OpenFile const& o) { return o.samples.cache(Part::input) + o.samples.cache(Part::target); };
    std::int64_t others = -samples.cache(part);
    for (OpenFile const& o : open_) others += kept(o);
    while (others + wanted > options_.cache_bytes && open_.size() > 1) {
      others -= kept(open_.back());
      open_.pop_back();
    }
    std::int64_t const room = std::min(wanted, options_.cache_bytes - others);
    if (static_cast<double>(room) >= needed) samples.set_cache(part, room);
  }

  template <class T>
  void read_as(Part part, std::int64_t sample, Box const& box, T* cells) {
    if (box.empty()) return;
    detail::Hdf5Lock const lock;
    Box one = box;
    one.axis[0] = {0, 1};
    StoredField const& f = field(part);
    buffer_.resize(static_cast<std::size_t>(f.bytes(one)));
    read_stored(part, sample, one, buffer_.data());
    Converter<T, Kokkos::DefaultHostExecutionSpace>{}(f, one, buffer_.data(), dense_tile(cells, one));
  }

  void check_values(Part part, std::int64_t sample, Box const& box, std::byte const* cells) const {
    StoredField const& f = field(part);
    bool const logarithm =
        std::any_of(f.transforms.begin(), f.transforms.end(), [](Transform const& t) { return t.logarithm; });
    detail::with_type(f.type, [&](auto example) {
      using S = decltype(example);
      if (std::is_integral_v<S> && !logarithm) return;
      auto const* values = reinterpret_cast<S const*>(cells);
      for (std::int64_t i = 0; i < box.volume(); ++i) {
        auto const v = static_cast<double>(values[i]);
        bool bad = !std::isfinite(v);
        if (!bad && !(logarithm && v <= -1.0)) continue;
        std::int64_t at[axis_count] = {}, rest = i;
        auto const axes = detail::box_axes(detail::axes_of(schema_, part));
        for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
          at[*axis] = box.axis[*axis].begin + rest % box.axis[*axis].size();
          rest /= box.axis[*axis].size();
        }
        if (!bad) {
          auto const& t = f.transforms[f.transforms.size() > 1 ? static_cast<std::size_t>(at[4]) : 0];
          if (!t.logarithm) continue;
        }
        std::size_t const file = file_of(sample);
        throw Error(tessera::detail::text("Hdf5Source: dataset '", detail::name_of(schema_, part), "' of '",
                                          path_of(file), "' must hold ",
                                          bad ? "finite numbers" : "numbers above -1, to have a logarithm of 1 + x",
                                          ", but sample ", sample - first_[file], " has ", v, " at depth ", at[1],
                                          ", height ", at[2], ", width ", at[3], ", channel ", at[4]));
      }
    });
  }

  std::string path_;
  Hdf5Schema schema_;
  Hdf5Options options_;
  std::vector<std::string> files_;   ///< names in the folder `path_`, or one empty name
  std::vector<std::int64_t> first_;  ///< the number of each file's first sample, and of all samples
  StoredField fields_[2];
  std::list<OpenFile> open_;  ///< the one used last is the first
  std::vector<std::byte> buffer_;
  mutable std::int64_t bytes_read_ = 0;
};

}  // namespace tessera::io
