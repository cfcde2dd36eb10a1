// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/comm/ranks.hpp"
#include "tessera/core/error.hpp"
#include "tessera/io/batch_request.hpp"
#include "tessera/io/buffer_pool.hpp"
#include "tessera/io/byte_exchange.hpp"
#include "tessera/io/read_ahead.hpp"
#include "tessera/io/sample_homes.hpp"
#include "tessera/io/store_options.hpp"
#include "tessera/io/stored.hpp"
#include "tessera/io/stored_copy.hpp"
#include "tessera/partition/partition.hpp"

namespace tessera::io {

/// Keeps the samples of a source in the memory of all ranks together: the first epoch reads them, later ones bring the
/// boxes of each micro-batch from rank to rank, in any order and under any decomposition. A thread of its own reads
/// ahead of the micro-batches that are expected.
///
/// A sample that is kept has its cells at the ranks of one sample block, cut as these cut space and channels, in the
/// type in which they are stored. Whether it is kept follows from what was asked for before, and is the same on every
/// rank without a word.
///
/// Moves: of each micro-batch, to each rank, one message from every rank that keeps cells that it wants.
/// Fails: on every rank with the source's error, if a read fails on any of them; what was kept is then forgotten.
template <StoredSource Source>
class SampleStore {
 public:
  /// `ranks` says how samples that are kept are cut. Collective.
  SampleStore(Ranks const& ranks, Source source, StoreOptions options = {})
      : exchange_(ranks.world().duplicate()),
        source_(std::move(source)),
        options_(std::move(options)),
        read_(static_cast<std::size_t>(source_.size()), false) {
    Counts counts = ranks.grid().counts();
    blocks_ = counts.sample;
    counts.sample = 1;
    Grid const inner(counts);
    inner_ = inner.size();
    for (Part const part : parts) {
      fields_[index(part)] = source_.field(part);
      check_transforms("SampleStore", field(part));
      homes_[index(part)] = Partition(inner, field(part).shape.with_samples(1));
    }
    bool const augments = options_.augmentation.flips || options_.augmentation.rotations;
    require(!augments || turns(Part::target) || space(Part::target) == std::array<std::int64_t, 3>{1, 1, 1},
            "SampleStore",
            "targets must be labels of the input's cells, or belong to whole samples, to be right for volumes "
            "that are mirrored and turned, but for inputs ",
            input_shape(), " they are ", target_shape());
    options_.budget_bytes = comm().all_reduce(options_.budget_bytes, Reduce::min);
    require(options_.budget_bytes >= 0 && options_.ahead >= 0, "SampleStore",
            "the budget and the number of micro-batches to read ahead must be at least 0, but they are ",
            options_.budget_bytes, " and ", options_.ahead);
    std::int64_t sample_bytes = 0;
    for (std::int64_t i = 0; i < inner_; ++i) sample_bytes = larger(sample_bytes, home_bytes(i));
    kept_at_ = SampleHomes(size(), blocks_, sample_bytes, options_.budget_bytes, options_.owner);
    if (options_.preload) preload();
  }

  SampleStore(SampleStore const&) = delete;
  SampleStore& operator=(SampleStore const&) = delete;

  std::int64_t size() const { return static_cast<std::int64_t>(read_.size()); }
  StoredField const& field(Part part) const { return fields_[index(part)]; }
  Shape input_shape() const { return field(Part::input).shape; }
  Shape target_shape() const { return field(Part::target).shape; }
  /// The source itself; reads that are under way end first.
  Source& source() {
    reader_.finish();
    return source_;
  }

  /// `count` micro-batches are to come, next(0) to next(count - 1). Replaces what was expected before.
  void expect(std::int64_t count, std::function<BatchRequest(std::int64_t)> next) {
    drop_expected();
    coming_ = options_.ahead > 0 ? count : 0;
    next_ = std::move(next);
    look_ahead();
  }

  /// Brings the cells of a micro-batch. Collective.
  void fetch(BatchRequest const& request) {
    if (expected_.empty() || !answers(expected_.front(), request)) {
      drop_expected();
      expected_.push_back(prepare(request));
    }
    batch_ = std::move(expected_.front());
    expected_.pop_front();
    look_ahead();
    finish_reads(batch_.ticket);
    dropped_.clear();
    exchange();
  }

  /// The cells that the last fetch brought for sample n of its micro-batch, within this rank's box.
  std::byte const* cells(Part part, std::int64_t n) const {
    Wanted const& w = batch_.wanted[index(part)];
    return w.cells->data() + (n - w.box.axis[0].begin) * w.sample_bytes;
  }
  Symmetry const& symmetry(Part part, std::int64_t n) const {
    static constexpr Symmetry none{};
    return turns(part) ? batch_.symmetries[static_cast<std::size_t>(n)] : none;
  }

  std::int64_t kept_samples() const { return kept_at_.kept(); }
  /// On this rank.
  std::int64_t kept_bytes() const {
    std::int64_t sum = 0;
    for (auto const& [sample, own] : own_)
      for (auto const& cells : own) sum += static_cast<std::int64_t>(cells.size());
    return sum;
  }
  /// How many samples were read once more, because they do not fit.
  std::int64_t read_again() const { return read_again_; }
  /// What a user should know, as a line.
  std::string report() const {
    return kept_samples() == size()
               ? tessera::detail::text("SampleStore: all ", size(), " samples are kept in memory")
               : tessera::detail::text("SampleStore: ", kept_samples(), " of ", size(), " samples are kept in ",
                                       options_.budget_bytes, " bytes per rank, the others are read each time (",
                                       read_again_, " so far)");
  }

 private:
  static constexpr std::int64_t nowhere = SampleHomes::nowhere;

  using Own = std::array<std::vector<std::byte>, 2>;  ///< this rank's cells of a sample

  /// What this rank wants of a micro-batch.
  struct Wanted {
    Box box;                        ///< in samples of the micro-batch
    std::int64_t sample_bytes = 0;  ///< of one sample
    Buffer cells;
  };
  struct Prepared {
    BatchRequest request;
    std::array<std::vector<Box>, 2> boxes;  ///< what each rank wants
    std::vector<Symmetry> symmetries;
    std::vector<std::int64_t> homes;  ///< of each sample, `nowhere` if it is read straight to where it is wanted
    std::array<Wanted, 2> wanted;
    ReadAhead::Ticket ticket = 0;
    std::shared_ptr<std::atomic<bool>> dropped = std::make_shared<std::atomic<bool>>(false);
  };
  /// Cells of one sample that travel between this rank and another.
  struct Piece {
    std::int64_t sample;  ///< of the micro-batch
    Part part;
    Box box;
  };

  Communicator<Mpi> const& comm() const { return exchange_.comm(); }
  int rank() const { return comm().rank(); }
  std::int64_t block() const { return rank() / inner_; }
  Box home_box(Part part, std::int64_t inner) const { return homes_[index(part)].owned(inner); }
  std::int64_t home_bytes(std::int64_t inner) const {
    return field(Part::input).bytes(home_box(Part::input, inner)) +
           field(Part::target).bytes(home_box(Part::target, inner));
  }

  /// Whether a part is turned with the sample: the input, and labels of its cells.
  bool turns(Part part) const { return part == Part::input || space(part) == space(Part::input); }
  std::array<std::int64_t, 3> space(Part part) const {
    Shape const& s = field(part).shape;
    return {s.depth, s.height, s.width};
  }

  /// The stored cells of one sample that become `box`.
  Box original(Part part, Box box, Prepared const& p, std::int64_t n) const {
    box.axis[0] = {0, 1};
    return turns(part) ? p.symmetries[static_cast<std::size_t>(n)].original(box, field(part).shape) : box;
  }

  /// Gives a sample a home, if it has none and there is room, and begins to read it there.
  void settle(std::int64_t sample, std::int64_t needed_by) {
    if (!kept_at_.settle(sample, needed_by) || kept_at_[sample] != block()) return;
    Own& own = own_[sample];
    for (Part const part : parts) {
      Box const box = home_box(part, rank() % inner_);
      auto& cells = own[index(part)];
      cells.resize(static_cast<std::size_t>(field(part).bytes(box)));
      if (!box.empty())
        submit([this, part, sample, box, to = cells.data()] { source_.read_stored(part, sample, box, to); });
    }
  }

  /// What is prepared is compared on every rank with what all of them want now: they decide alike.
  bool answers(Prepared const& p, BatchRequest const& request) const {
    if (p.request.samples != request.samples || p.request.epoch != request.epoch) return false;
    for (Part const part : parts)
      for (int r = 0; r < comm().size(); ++r)
        if (!(p.boxes[index(part)][static_cast<std::size_t>(r)] == request.box(part, r))) return false;
    return true;
  }

  /// Begins to read what a micro-batch needs from files.
  Prepared prepare(BatchRequest const& request) {
    Prepared p;
    p.request = request;
    for (Part const part : parts)
      for (int r = 0; r < comm().size(); ++r) {
        Box box = p.boxes[index(part)].emplace_back(request.box(part, r));
        if (box.empty()) continue;
        box.axis[0] = {0, 1};
        require(field(part).shape.box().contains(box), "SampleStore", "samples of shape ", field(part).shape,
                " do not hold the box ", box, " that rank ", r, " wants; the network must fit the samples");
      }
    auto const count = static_cast<std::int64_t>(request.samples.size());
    for (std::int64_t const sample : request.samples) {
      require(0 <= sample && sample < size(), "SampleStore", "there are ", size(), " samples, but sample ", sample,
              " is wanted");
      p.symmetries.push_back(
          request.epoch ? options_.augmentation.draw(*request.epoch, sample, field(Part::input).shape) : Symmetry{});
    }
    for (std::int64_t n = 0; n < count; ++n) {
      std::int64_t const sample = request.samples[static_cast<std::size_t>(n)];
      settle(sample, first_wanting(p, n) / inner_);
      p.homes.push_back(kept_at_[sample]);
      if (p.homes.back() == nowhere) {
        std::vector<bool>::reference seen = read_[static_cast<std::size_t>(sample)];
        read_again_ += seen ? 1 : 0;
        seen = true;
      }
    }
    for (Part const part : parts) {
      Wanted& w = p.wanted[index(part)];
      w.box = p.boxes[index(part)][static_cast<std::size_t>(rank())];
      Box one = w.box;
      one.axis[0] = {0, 1};
      w.sample_bytes = field(part).bytes(one);
      if (w.box.empty()) continue;
      w.cells = buffers_.take(w.box.axis[0].size() * w.sample_bytes);
      for (std::int64_t n = w.box.axis[0].begin; n < w.box.axis[0].end; ++n) {
        if (p.homes[static_cast<std::size_t>(n)] != nowhere) continue;
        submit([this, part, sample = request.samples[static_cast<std::size_t>(n)], box = original(part, w.box, p, n),
                cells = w.cells, at = (n - w.box.axis[0].begin) * w.sample_bytes, dropped = p.dropped] {
          if (!*dropped) source_.read_stored(part, sample, box, cells->data() + at);
        });
      }
    }
    p.ticket = submitted_;
    return p;
  }

  static bool has_sample(Box const& box, std::int64_t n) {
    return !box.empty() && box.axis[0].begin <= n && n < box.axis[0].end;
  }

  /// The first rank that wants cells of a sample of the micro-batch.
  static std::int64_t first_wanting(Prepared const& p, std::int64_t n) {
    for (auto const& boxes : p.boxes)
      for (std::size_t r = 0; r < boxes.size(); ++r)
        if (has_sample(boxes[r], n)) return static_cast<std::int64_t>(r);
    return 0;
  }

  void look_ahead() {
    while (asked_ < coming_ && static_cast<int>(expected_.size()) < options_.ahead)
      expected_.push_back(prepare(next_(asked_++)));
    if (asked_ == coming_) next_ = nullptr;
  }

  /// Another order than expected. What was to be read for it alone is not read any more; a read that is under way keeps
  /// its memory until it is done.
  void drop_expected() {
    for (Prepared& p : expected_) {
      *p.dropped = true;
      dropped_.push_back(std::move(p));
    }
    expected_.clear();
    coming_ = asked_ = 0;
    next_ = nullptr;
  }

  /// Awaits the reads up to a ticket, on every rank. Fails: on every rank.
  void finish_reads(ReadAhead::Ticket ticket) {
    try {
      agreed(comm(), [&] { reader_.wait(ticket); });
    } catch (...) {
      forget();
      throw;
    }
  }

  void submit(std::function<void()> job) { submitted_ = reader_.submit(std::move(job)); }

  /// Calls visit(peer, piece) for all cells that travel to or from this rank, in the order of samples.
  template <class Send, class Receive>
  void for_each_piece(Send send, Receive receive) const {
    auto const count = static_cast<std::int64_t>(batch_.request.samples.size());
    for (Part const part : parts) {
      Box const mine = batch_.wanted[index(part)].box;
      for (std::int64_t n = 0; n < count; ++n) {
        std::int64_t const home = batch_.homes[static_cast<std::size_t>(n)];
        if (home == nowhere) continue;
        if (home == block())
          for (int r = 0; r < comm().size(); ++r) {
            Box const& wanted = batch_.boxes[index(part)][static_cast<std::size_t>(r)];
            if (!has_sample(wanted, n)) continue;
            Box const both = intersect(home_box(part, rank() % inner_), original(part, wanted, batch_, n));
            if (!both.empty()) send(r, Piece{n, part, both});
          }
        if (!has_sample(mine, n)) continue;
        for (std::int64_t i = 0; i < inner_; ++i) {
          Box const both = intersect(home_box(part, i), original(part, mine, batch_, n));
          if (!both.empty()) receive(static_cast<int>(home * inner_ + i), Piece{n, part, both});
        }
      }
    }
  }

  /// Brings the kept cells of the micro-batch to where they are wanted.
  void exchange() {
    auto const bytes = [&](Piece const& piece) { return field(piece.part).bytes(piece.box); };
    auto const nothing = [](int, Piece const&) {};
    exchange_.begin();
    for_each_piece([&](int peer, Piece const& piece) { exchange_.count_outgoing(peer, bytes(piece)); },
                   [&](int peer, Piece const& piece) { exchange_.count_incoming(peer, bytes(piece)); });
    exchange_.start();
    for_each_piece(
        [&](int peer, Piece const& piece) {
          std::int64_t const sample = batch_.request.samples[static_cast<std::size_t>(piece.sample)];
          copy_stored(field(piece.part), own_.at(sample)[index(piece.part)].data(),
                      home_box(piece.part, rank() % inner_), exchange_.outgoing(peer, bytes(piece)), piece.box,
                      piece.box);
        },
        nothing);
    exchange_.finish();
    for_each_piece(nothing, [&](int peer, Piece const& piece) {
      Wanted const& w = batch_.wanted[index(piece.part)];
      copy_stored(field(piece.part), exchange_.incoming(peer, bytes(piece)), piece.box,
                  w.cells->data() + (piece.sample - w.box.axis[0].begin) * w.sample_bytes,
                  original(piece.part, w.box, batch_, piece.sample), piece.box);
    });
  }

  void preload() {
    for (std::int64_t sample = 0; sample < size(); ++sample) settle(sample, sample * blocks_ / size());
    finish_reads(submitted_);
  }

  /// After a read that failed nobody knows what is there.
  void forget() {
    try {
      reader_.wait(submitted_);
    } catch (...) {  // one error is enough
    }
    drop_expected();
    dropped_.clear();
    kept_at_.forget();
    own_.clear();
  }

  ByteExchange exchange_;
  Source source_;
  StoreOptions options_;
  std::int64_t blocks_ = 1, inner_ = 1;  ///< sample blocks, and the ranks of each
  std::array<StoredField, 2> fields_;
  std::array<Partition, 2> homes_;  ///< how the ranks of a block cut what they keep of a sample
  SampleHomes kept_at_;
  std::int64_t read_again_ = 0;
  std::vector<bool> read_;  ///< of samples without a home: whether they were read
  std::map<std::int64_t, Own> own_;

  std::deque<Prepared> expected_, dropped_;
  std::function<BatchRequest(std::int64_t)> next_;
  std::int64_t coming_ = 0, asked_ = 0;
  Prepared batch_;
  BufferPool buffers_;
  ReadAhead::Ticket submitted_ = 0;
  ReadAhead reader_;  ///< the last member: its thread ends before what it fills
};

}  // namespace tessera::io
