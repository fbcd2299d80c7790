// The insides of HLRC's driver, where it is explored (hlrc_driver_world.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "coherence/hlrc/driver.h"
#include "coherence/hlrc/words.h"
#include "hlrc_scenarios.h"

namespace multigrain::hlrc {

// What a driver keeps to itself: where it is, and what it says.
struct Explored {
  using Pieces = std::vector<std::span<std::byte>>;
  static constexpr size_t kPages = explored::kMaxPages;
  static constexpr size_t kNodes = explored::kMaxNodes;
  static constexpr size_t kBuffers = 4;   // of a pool, that are ever in use
  static constexpr size_t kEntries = 32;  // of logs, that an acquire reads
  // Runs of pages that a node says it has written: as many as there are pages, if there is room.
  static size_t runs() { return std::min<size_t>(kPages, words::kEpisodeRuns); }

  template <typename T>
  static void add(Pieces& pieces, T& what) {
    pieces.push_back(std::as_writable_bytes(std::span(&what, 1)));
  }
  // A free buffer's first word names the next free one. Pages have kMaxWords words that are not zero.
  static void add_pool(Pieces& pieces, PagePool& pool, size_t bytes) {
    add(pieces, pool);
    for (size_t i = 0; i < kBuffers; ++i) pieces.push_back({pool.memory() + i * pool.page_size(), bytes});
  }
  static Pieces pieces(Driver& driver) {
    Pieces all;
    add_pool(all, *driver.twins_, explored::kMaxWords * sizeof(uint64_t));
    add(all, driver.pages_looked_up_);
    for (size_t page = 0; page < kPages; ++page) add(all, driver.records_[page]);
    add(all, driver.history_);
    if (driver.chains_.learns()) all.push_back(std::as_writable_bytes(std::span(&driver.chains_.links_[0], kPages)));
    add(all, driver.around_);
    add(all, driver.epochs_);
    add(all, driver.intervals_);
    add(all, driver.at_barrier_);
    add(all, driver.ending_pages_);
    add(all, driver.episode_ends_);
    add(all, driver.leaves_barrier_);
    add(all, driver.keeps_used_);
    SerialPages& serial = driver.serial_pages_;
    add(all, serial.is_serial_);
    add(all, serial.lock_);
    add(all, serial.size_);
    all.push_back(std::as_writable_bytes(std::span(&serial.runs_[0], kPages)));
    FetchLog& fetch_log = driver.fetch_log_;
    add(all, fetch_log.all_fetched_);
    for (size_t n = 0; n < kNodes; ++n) {
      add(all, fetch_log.read_[n]);
      add(all, fetch_log.written_[n].lock);
      add(all, fetch_log.written_[n].end);
      add(all, driver.known_[n]);
      add(all, driver.known_before_[n]);
    }
    WrittenPages& written = driver.written_;
    add(all, written.lock_);
    add(all, written.current_);
    add(all, written.size_);
    add(all, written.unpublished_);
    for (auto& list : written.lists_) all.push_back(std::as_writable_bytes(std::span(&list[0], kPages)));
    add(all, driver.interval_lock_);
    all.push_back(std::as_writable_bytes(std::span(&driver.noticed_[0], kPages)));
    add(all, driver.notices_);
    add(all, driver.acquire_lock_);
    add(all, driver.reader_->runs_read_);
    all.push_back(std::as_writable_bytes(std::span(&driver.reader_->entries_[0], kEntries)));
    all.push_back(std::as_writable_bytes(std::span(&driver.reader_->runs_[0], kEntries)));
    all.push_back(std::as_writable_bytes(std::span(&driver.reader_->gets_[0], kNodes)));
    add(all, driver.arrived_);
    add(all, driver.left_);
    for (EpisodePages* const lists : {driver.episode_.get(), driver.to_lines_.get()})
      if (lists != nullptr) add_lists(all, *lists);
    driver.acquire_lock_.assume_held();
    if (driver.gathered_) add_gathered(all, *driver.gathered_);
    if (driver.to_lines_) {
      driver.wanted_lock_.assume_held();
      add(all, driver.wanted_count_);
      all.push_back(std::as_writable_bytes(std::span(&driver.wanted_[0], kPages)));
    }
    return all;
  }
  static void add_lists(Pieces& all, EpisodePages& episode) {
    add(all, episode.size_);
    add(all, episode.is_too_much_);
    add(all, episode.has_all_);
    for (size_t n = 0; n < kNodes; ++n) {
      const NodeId node(static_cast<uint16_t>(n));
      add(all, episode.reads_[n]);
      add(all, episode.lists_[n]);
      all.push_back(std::as_writable_bytes(std::span(episode.words_of(node), 1 + runs())));
      all.push_back(std::as_writable_bytes(std::span(episode.runs_of(node), runs())));
    }
    all.push_back(std::as_writable_bytes(std::span(&episode.own_[0], 2 * runs())));
  }

  // As many words of a block as are ever used.
  static size_t words_of_block(const GatheredNotices& gathered) {
    return std::min<size_t>(explored::kGatheredWords, gathered.places_.words);
  }
  static void add_gathered(Pieces& pieces, GatheredNotices& gathered) {
    add(pieces, gathered.size_);
    for (size_t n = 0; n < kNodes; ++n) {
      add(pieces, gathered.reads_[n]);
      add(pieces, gathered.lists_[n]);
      add(pieces, gathered.time_[n]);
      pieces.push_back(std::as_writable_bytes(std::span(gathered.block(n), words_of_block(gathered))));
    }
    pieces.push_back(std::as_writable_bytes(std::span(&gathered.own_[0], runs())));
    pieces.push_back(std::as_writable_bytes(std::span(&gathered.runs_[0], runs())));
  }
  // What the node has written since the last barrier.
  static auto written(Driver& driver) { return driver.episode_->own(); }

  // Overwrites what nobody will read again, and what would make two states differ that are the same.
  static void forget_dead(Driver& driver) {
    WrittenPages& written = driver.written_;
    const auto clear = [](SparseTable<PageId>& list, size_t from) {
      for (size_t i = from; i < kPages; ++i) list[i] = PageId(0);
    };
    clear(written.lists_[written.current_], written.size_);
    // The explorer tries all that a driver may decide by these.
    if (!driver.learns())
      for (size_t page = 0; page < kPages; ++page) forget_use(driver, page);
    if (is_free(driver.interval_lock_)) {
      driver.ending_pages_ = 0;
      clear(written.lists_[written.current_ ^ 1], 0);
      std::memset(&driver.noticed_[0], 0, kPages);
    }
    if (is_free(driver.acquire_lock_)) {
      NoticeReader& reader = *driver.reader_;
      reader.runs_read_ = 0;
      std::fill_n(&reader.entries_[0], kEntries, 0);
      std::fill_n(&reader.runs_[0], kEntries, NoticeRun{});
      std::fill_n(&reader.gets_[0], kNodes, NoticeReader::Get{});
      for (EpisodePages* const lists : {driver.episode_.get(), driver.to_lines_.get()})
        if (lists != nullptr) forget_what_was_read(*lists);
      if (driver.gathered_) forget_what_was_read(*driver.gathered_);
    }
    for (size_t i = driver.episode_->size_; i < 2 * runs(); ++i) driver.episode_->own_[i] = {};
    if (driver.to_lines_) {
      for (size_t i = driver.to_lines_->size_; i < 2 * runs(); ++i) driver.to_lines_->own_[i] = {};
      driver.wanted_lock_.assume_held();
      for (size_t i = driver.wanted_count_; i < kPages; ++i) driver.wanted_[i] = PageId(0);
    }
    for (size_t i = 0; i < kBuffers; ++i) {
      std::byte* const buffer = driver.twins_->memory() + i * driver.twins_->page_size();
      bool is_used = !is_free(driver.acquire_lock_);  // an acquire has fetched a home copy into it
      for (size_t page = 0; page < kPages; ++page) is_used = is_used || driver.records_[page].twin == buffer;
      if (!is_used) std::memset(buffer + sizeof(void*), 0, explored::kMaxWords * sizeof(uint64_t) - sizeof(void*));
    }
  }

  static void forget_what_was_read(EpisodePages& episode) {
    episode.has_all_ = false;
    episode.reads_ = {};
    episode.lists_ = {};
    for (size_t n = 0; n < kNodes; ++n) {
      const NodeId node(static_cast<uint16_t>(n));
      std::fill_n(episode.words_of(node), 1 + runs(), 0);
      std::fill_n(episode.runs_of(node), runs(), NoticeRun{});
    }
  }

  static void forget_what_was_read(GatheredNotices& gathered) {
    gathered.reads_ = {};
    gathered.lists_ = {};
    for (size_t n = 0; n < kNodes; ++n) {
      const size_t from = n == 0 ? std::min<size_t>(gathered.size_, words_of_block(gathered)) : 0;
      std::fill_n(gathered.block(n) + from, words_of_block(gathered) - from, 0);
    }
    if (gathered.size_ == 0) gathered.time_ = {};
    std::fill_n(&gathered.own_[0], runs(), 0);
    std::fill_n(&gathered.runs_[0], runs(), NoticeRun{});
  }

  static void forget_use(Driver& driver, size_t page) MG_NO_THREAD_SAFETY_ANALYSIS { driver.records_[page].use = {}; }

  static bool is_free(SpinLock& lock) {
    if (!lock.try_lock()) return false;
    lock.unlock();
    return true;
  }
  static bool is_locked(Driver& driver, unsigned page) { return !is_free(driver.records_[page].lock); }
  static const Page& page(Driver& driver, size_t page) { return driver.records_[page].page; }
  // nullopt: the node has not looked it up.
  static std::optional<NodeId> home(Driver& driver, unsigned page) {
    if (driver.records_[page].home_plus_one.load() == 0) return std::nullopt;
    return driver.records_[page].home();
  }
  // At how many barriers of all processors all of the node's have been.
  static uint64_t left(Driver& driver) {
    driver.acquire_lock_.assume_held();
    return driver.left_;
  }
  // No processor of the node is on its way out of a barrier of all, which takes the lock.
  static bool is_between_barriers(Driver& driver) { return is_free(driver.acquire_lock_); }
  static bool has_twin(Driver& driver, unsigned page) { return driver.records_[page].twin != nullptr; }
  static bool is_at_rest(Driver& driver) {
    size_t kept = 0;  // pages that stay writable, and have joined the next interval
    for (size_t page = 0; page < kPages; ++page) kept += Explored::page(driver, page).queued ? 1 : 0;
    return driver.written_.unpublished_.load() == kept && driver.written_.size_ == kept &&
           is_free(driver.interval_lock_) && is_free(driver.acquire_lock_);
  }
  static FaultHistory& history() { return Driver::t_history; }
};

}  // namespace multigrain::hlrc
