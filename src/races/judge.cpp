#include "races/judge.h"

#include <algorithm>
#include <ctime>

#include "base/standard_error.h"

namespace multigrain::races {
namespace {

constexpr long kShortestNap = 20'000;  // nanoseconds
constexpr long kLongestNap = 500'000;

void nap(long nanoseconds) {
  const timespec moment{.tv_sec = 0, .tv_nsec = nanoseconds};
  nanosleep(&moment, nullptr);
}

}  // namespace

Judge::Judge(Fabric& fabric, const Machine& machine, std::unique_ptr<Places> places)
    : fabric_(fabric),
      machine_(machine),
      places_(std::move(places)),
      sections_(fabric.nodes(), kSectionBytes),
      window_(kAccesses),
      suspects_(kPages),
      reports_(*places_, machine.region) {
  for (uint16_t n = 0; n < fabric.nodes(); ++n) readers_.push_back(std::make_unique<StreamReader>(fabric, NodeId(n)));
}

void Judge::run() {
  long rest = kShortestNap;
  while (true) {
    const bool finishing = finishing_.load(std::memory_order_acquire);
    if (read_all()) {
      rest = kShortestNap;
      continue;
    }
    if (finishing) break;
    nap(rest);
    rest = std::min(rest * 2, kLongestNap);
  }
  for (const auto& reader : readers_) reader->end();
  write_to_standard_error(reports_.finish(window_.forgotten()));
  ended_.store(true, std::memory_order_release);
}

void Judge::finish() {
  finishing_.store(true, std::memory_order_release);
  while (!ended_.load(std::memory_order_acquire)) nap(kLongestNap);
}

bool Judge::read_all() {
  bool any = false;
  for (uint16_t n = 0; n < readers_.size(); ++n)
    any |= readers_[n]->read([&](std::span<const uint64_t> words) { take(NodeId(n), words); });
  return any;
}

void Judge::take(NodeId node, std::span<const uint64_t> words) {
  if (Entry::kind_of(words.front()) == Entry::Kind::kAccess) return take_access(Entry::access_of(words, node.value));
  const Entry::Section section = Entry::section_of(words);
  sections_.begin({node.value, section.number}, section.site, section.clock);
}

void Judge::take_access(const Access& access) {
  constexpr uint64_t kLongest = uint64_t{1} << 20;
  if (access.bytes > kLongest || access.address >= uint64_t{1} << 48)
    panic("a node has told of an access that cannot be (node, address, bytes):", access.section.owner, access.address,
          access.bytes);
  window_.add(access, sections_, [&](const Access& other) {
    write_to_standard_error(reports_.add(other, access, sections_));
    if (reports_.any()) found_.store(true, std::memory_order_release);
  });
  const PageId page(access.address >> machine_.page_shift);
  if (const Level level = suspects_.note(page, access.section, access.is_write, sections_); level != Level::kNot)
    suspect(page, level);
}

void Judge::suspect(PageId page, Level level) {
  const uint64_t slot = words::kRaceSuspects + suspects_told_++ % words::kRaceSuspectCount * sizeof(uint64_t);
  for (uint16_t n = 0; n < fabric_.nodes(); ++n) {
    fabric_.fetch_and_set(NodeId(n), SegmentId::kWords, slot, page.value << 8 | static_cast<uint64_t>(level));
    fabric_.fetch_and_set(NodeId(n), SegmentId::kWords, words::kRaceSuspectsEnd, suspects_told_);
  }
}

}  // namespace multigrain::races
