// What a node tells the judge: its accesses, and its sections, in the order in which they happened. The stream is a ring of
// words in memory that the node exports; the judge reads it with one-sided gets, and no node is asked.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/spin_lock.h"
#include "fabric/fabric.h"
#include "races/accesses.h"
#include "races/words.h"

namespace multigrain::races {

// One entry of a stream, as words.
class Entry {
 public:
  enum class Kind : uint8_t { kAccess = 1, kSection = 2 };
  static constexpr size_t kAccessWords = 6;
  static constexpr size_t kSectionWords = 3;  // and the clock's
  static constexpr size_t kMostWords = kSectionWords + kMaxOwners;

  static Entry of(const Access& access);
  static Entry of(uint64_t section, uint64_t site, ClockView clock);
  [[nodiscard]] std::span<const uint64_t> words() const { return {words_.data(), size_}; }

  // Returns how many words the entry has that begins with this word; 0 if no entry of a run of so many owners begins so.
  static size_t size_of(uint64_t first_word, size_t owners);
  static Kind kind_of(uint64_t first_word) { return static_cast<Kind>(first_word & 0xff); }
  // Return what the words of an entry of `owner` mean, whose size and kind are right.
  static Access access_of(std::span<const uint64_t> words, uint16_t owner);
  struct Section {
    uint64_t number = 0;
    uint64_t site = 0;
    ClockView clock;
  };
  static Section section_of(std::span<const uint64_t> words);

 private:
  static constexpr unsigned kSizeShift = 16;
  static constexpr unsigned kBytesShift = 32;
  static constexpr uint64_t kWrite = 1u << 8;
  static uint64_t head(Kind kind, size_t words) { return static_cast<uint64_t>(kind) | words << kSizeShift; }

  std::array<uint64_t, kMostWords> words_;
  size_t size_ = 0;
};

// The writer's end. Any thread may append, in signal context as well. An append waits while the ring is full.
class StreamWriter {
 public:
  explicit StreamWriter(Fabric& fabric);

  void append(const Entry& entry);
  // Waits until the judge has read all that was appended before, or has ended.
  void wait_until_read();

 private:
  // The judge sets the word of what it has read to this when it ends.
  static constexpr uint64_t kEnded = ~uint64_t{0};
  friend class StreamReader;

  [[nodiscard]] uint64_t read() { return fabric_.load_own(SegmentId::kWords, words::kRaceStreamRead); }
  void store(uint64_t position, std::span<const uint64_t> words);

  Fabric& fabric_;
  std::byte* const own_;  // the node's words, if they are mapped as a whole
  SpinLock lock_;
  std::atomic<uint64_t> end_{0};
  uint64_t read_ MG_GUARDED_BY(lock_) = 0;  // the judge had read so much when this was looked up last
};

// The judge's end of one node's stream. One thread uses it.
class StreamReader {
 public:
  StreamReader(Fabric& fabric, NodeId node) : fabric_(fabric), node_(node) {}

  // Reads what the node has appended, and calls visit(words) for each entry. Ends the run if it is no entry. Returns
  // whether there was any.
  template <typename Visit>
  bool read(Visit&& visit);
  // Tells the node that the judge ends: nothing is read any more, and nobody waits for that.
  void end();

 private:
  static constexpr uint64_t kMost = 8192;  // words that are read at a time

  [[nodiscard]] std::span<const uint64_t> fetch();
  void done(size_t words);

  Fabric& fabric_;
  const NodeId node_;
  uint64_t position_ = 0;
  std::array<uint64_t, kMost> buffer_;
};

template <typename Visit>
bool StreamReader::read(Visit&& visit) {
  const std::span<const uint64_t> words = fetch();
  if (words.empty()) return false;
  size_t taken = 0;
  while (taken < words.size()) {
    const size_t size = Entry::size_of(words[taken], fabric_.nodes());
    if (size == 0)
      panic("a node has appended to its stream of accesses what is no entry (node, word):", node_.value, words[taken]);
    if (size > words.size() - taken) break;
    visit(words.subspan(taken, size));
    taken += size;
  }
  done(taken);
  return taken != 0;
}

}  // namespace multigrain::races
