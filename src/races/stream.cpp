#include "races/stream.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <ctime>

namespace multigrain::races {

Entry Entry::of(const Access& access) {
  Entry entry;
  entry.words_[0] =
      head(Kind::kAccess, kAccessWords) | (access.is_write ? kWrite : 0) | uint64_t{access.bytes} << kBytesShift;
  entry.words_[1] = access.address;
  entry.words_[2] = access.pc;
  entry.words_[3] = access.caller;
  entry.words_[4] = access.section.number;
  entry.words_[5] = access.processor;
  entry.size_ = kAccessWords;
  return entry;
}

Entry Entry::of(uint64_t section, uint64_t site, ClockView clock) {
  Entry entry;
  entry.size_ = kSectionWords + clock.size();
  entry.words_[0] = head(Kind::kSection, entry.size_);
  entry.words_[1] = section;
  entry.words_[2] = site;
  std::copy(clock.begin(), clock.end(), entry.words_.begin() + kSectionWords);
  return entry;
}

size_t Entry::size_of(uint64_t first_word, size_t owners) {
  const size_t size = first_word >> kSizeShift & 0xffff;
  const Kind kind = kind_of(first_word);
  const bool is_entry =
      (kind == Kind::kAccess && size == kAccessWords) || (kind == Kind::kSection && size == kSectionWords + owners);
  return is_entry ? size : 0;
}

Access Entry::access_of(std::span<const uint64_t> words, uint16_t owner) {
  return {.address = words[1],
          .pc = words[2],
          .caller = words[3],
          .section = {owner, words[4]},
          .bytes = static_cast<uint32_t>(words[0] >> kBytesShift),
          .processor = static_cast<uint32_t>(words[5]),
          .is_write = (words[0] & kWrite) != 0};
}

Entry::Section Entry::section_of(std::span<const uint64_t> words) {
  return {.number = words[1], .site = words[2], .clock = words.subspan(kSectionWords)};
}

// --- The writer

namespace {

// The judge looks at the streams again after a moment, so a thread that waits for it need not spin.
void wait_for_the_judge() {
  const timespec moment{.tv_sec = 0, .tv_nsec = 20'000};
  nanosleep(&moment, nullptr);
}

}  // namespace

StreamWriter::StreamWriter(Fabric& fabric) : fabric_(fabric), own_(fabric.own_segment(SegmentId::kWords).data()) {}

void StreamWriter::append(const Entry& entry) {
  const std::span<const uint64_t> words = entry.words();
  const LockGuard hold(lock_);
  const uint64_t end = end_.load(std::memory_order_relaxed);
  while (end + words.size() - read_ > words::kRaceStreamWords) {
    if ((read_ = read()) == kEnded) return;
    if (end + words.size() - read_ > words::kRaceStreamWords) wait_for_the_judge();
  }
  if (read_ == kEnded) return;
  const uint64_t at = end % words::kRaceStreamWords;
  const size_t before_the_end = std::min<uint64_t>(words.size(), words::kRaceStreamWords - at);
  store(at, words.first(before_the_end));
  store(0, words.subspan(before_the_end));
  end_.store(end + words.size(), std::memory_order_release);
  fabric_.fetch_and_set(fabric_.self(), SegmentId::kWords, words::kRaceStreamEnd, end + words.size());
}

void StreamWriter::store(uint64_t position, std::span<const uint64_t> words) {
  if (words.empty()) return;
  const uint64_t offset = words::kRaceStream + position * sizeof(uint64_t);
  if (own_ != nullptr)
    std::memcpy(own_ + offset, words.data(), words.size_bytes());
  else
    fabric_.put(fabric_.self(), SegmentId::kWords, offset, std::as_bytes(words));
}

void StreamWriter::wait_until_read() {
  const uint64_t end = end_.load(std::memory_order_acquire);
  while (read() < end) wait_for_the_judge();
}

// --- The reader

std::span<const uint64_t> StreamReader::fetch() {
  uint64_t end = 0;
  fabric_.get(node_, SegmentId::kWords, words::kRaceStreamEnd, std::as_writable_bytes(std::span(&end, 1)));
  if (end < position_ || end - position_ > words::kRaceStreamWords)
    panic("a node's stream of accesses ends where it cannot (node, end, read):", node_.value, end, position_);
  const uint64_t at = position_ % words::kRaceStreamWords;
  const uint64_t count = std::min(end - position_, kMost);
  const uint64_t before_the_end = std::min(count, words::kRaceStreamWords - at);
  const auto get = [this](uint64_t from, std::span<uint64_t> to) {
    if (to.empty()) return;
    fabric_.get(node_, SegmentId::kWords, words::kRaceStream + from * sizeof(uint64_t), std::as_writable_bytes(to));
  };
  get(at, std::span(buffer_).first(before_the_end));
  get(0, std::span(buffer_).subspan(before_the_end, count - before_the_end));
  return std::span(buffer_).first(count);
}

void StreamReader::done(size_t words) {
  position_ += words;
  fabric_.fetch_and_set(node_, SegmentId::kWords, words::kRaceStreamRead, position_);
}

void StreamReader::end() {
  fabric_.fetch_and_set(node_, SegmentId::kWords, words::kRaceStreamRead, StreamWriter::kEnded);
}

}  // namespace multigrain::races
