#include "base/node_set.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "base/error.h"
#include "base/spin_lock.h"

namespace multigrain {
namespace {

constexpr size_t kWords = NodeSet::kCapacity / 64;

// One that no set has is a link of the list of those, by number and one, in its first word.
struct BitMap {
  std::array<uint64_t, kWords> words;
};

// 8 GiB of address space. A directory has a few sets for each page, so so many of more than kFew nodes at one node would be
// those of more than 40 GiB of pages, each of which many nodes share.
constexpr uint64_t kMost = uint64_t{1} << 26;

class Pool {
 public:
  // Returns the number of a bit map with no bits.
  uint64_t take() {
    uint64_t number;
    {
      const LockGuard hold(lock_);
      if (maps_.load(std::memory_order_relaxed) == nullptr) reserve();
      ++in_use_;
      if (free_ != 0) {
        number = free_ - 1;
        free_ = map(number).words[0];
      } else {
        if (fresh_ == kMost) panic("too many sets of many nodes; a process has room for", kMost);
        number = fresh_++;
      }
    }
    map(number).words.fill(0);
    return number;
  }
  void give_back(uint64_t number) {
    const LockGuard hold(lock_);
    map(number).words[0] = free_;
    free_ = number + 1;
    --in_use_;
  }
  [[nodiscard]] BitMap& map(uint64_t number) const { return maps_.load(std::memory_order_acquire)[number]; }
  uint64_t in_use() {
    const LockGuard hold(lock_);
    return in_use_;
  }

 private:
  void reserve() MG_REQUIRES(lock_) {
    void* const memory = mmap(nullptr, kMost * sizeof(BitMap), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) panic("no address space for sets of nodes (and its size)", kMost * sizeof(BitMap));
    static_cast<void>(madvise(memory, kMost * sizeof(BitMap), MADV_NOHUGEPAGE));
    static_cast<void>(madvise(memory, kMost * sizeof(BitMap), MADV_DONTDUMP));
    maps_.store(static_cast<BitMap*>(memory), std::memory_order_release);
  }

  SpinLock lock_;
  std::atomic<BitMap*> maps_{nullptr};
  uint64_t fresh_ MG_GUARDED_BY(lock_) = 0;  // how many were ever used
  uint64_t free_ MG_GUARDED_BY(lock_) = 0;
  uint64_t in_use_ MG_GUARDED_BY(lock_) = 0;
};

constinit Pool g_pool;

BitMap& map_of(uint64_t word) {
  return g_pool.map(word & ((uint64_t{1} << 60) - 1));
}

unsigned size_of(const BitMap& map) {
  unsigned size = 0;
  for (const uint64_t word : map.words) size += static_cast<unsigned>(std::popcount(word));
  return size;
}

}  // namespace

uint64_t NodeSet::bit_maps_in_use() {
  return g_pool.in_use();
}

uint64_t NodeSet::copy_of(uint64_t word) {
  const uint64_t number = g_pool.take();
  g_pool.map(number) = map_of(word);
  return kMany | number;
}

void NodeSet::give_back(uint64_t word) {
  g_pool.give_back(word & ~kMany);
}

NodeId NodeSet::next(NodeId from) const {
  constexpr NodeId kNone(kCapacity);
  if (from.value >= kCapacity) return kNone;
  if (is_bits()) {
    const uint64_t rest = from.value < 63 ? word_ >> from.value << from.value : 0;
    return rest == 0 ? kNone : NodeId(static_cast<uint16_t>(std::countr_zero(rest)));
  }
  if (!is_many()) {
    for (unsigned i = 0; i < count(); ++i)
      if (at(i) >= from) return at(i);
    return kNone;
  }
  const BitMap& map = map_of(word_);
  size_t which = from.value / 64;
  for (uint64_t rest = map.words[which] >> (from.value % 64) << (from.value % 64);; rest = map.words[which]) {
    if (rest != 0) return NodeId(static_cast<uint16_t>(which * 64 + static_cast<unsigned>(std::countr_zero(rest))));
    if (++which == kWords) return kNone;
  }
}

void NodeSet::spread() {
  const uint64_t number = g_pool.take();
  BitMap& map = g_pool.map(number);
  for_each([&](NodeId node) { map.words[node.value / 64] |= uint64_t{1} << (node.value % 64); });
  clear();
  word_ = kMany | number;
}

// The set is of the form "many".
void NodeSet::settle() {
  const BitMap& map = map_of(word_);
  const bool is_low = (map.words[0] & kHasForm) == 0 &&
                      std::all_of(map.words.begin() + 1, map.words.end(), [](uint64_t word) { return word == 0; });
  uint64_t word = map.words[0];
  if (!is_low) {
    const unsigned size = size_of(map);
    if (size > kFew) return;
    word = kHasForm | uint64_t{size} << kCountShift;
    unsigned i = 0;
    for_each([&](NodeId node) { word |= uint64_t{node.value} << (i++ * kNodeBits); });
  }
  clear();
  word_ = word;
}

void NodeSet::insert_slowly(NodeId node) {
  MG_CHECK(node.value < kCapacity, node.value);
  if (contains(node)) return;
  if (!is_many()) spread();
  map_of(word_).words[node.value / 64] |= uint64_t{1} << (node.value % 64);
  settle();
}

void NodeSet::erase_slowly(NodeId node) {
  if (!contains(node)) return;
  if (!is_many()) spread();
  map_of(word_).words[node.value / 64] &= ~(uint64_t{1} << (node.value % 64));
  settle();
}

bool NodeSet::contains_slowly(NodeId node) const {
  if (node.value >= kCapacity) return false;
  if (is_many()) return (map_of(word_).words[node.value / 64] >> (node.value % 64) & 1) != 0;
  for (unsigned i = 0; i < count(); ++i)
    if (at(i) == node) return true;
  return false;
}

unsigned NodeSet::size_slowly() const {
  return is_many() ? size_of(map_of(word_)) : count();
}

uint64_t NodeSet::bits_slowly() const {
  uint64_t bits = 0;
  for_each([&](NodeId node) {
    MG_CHECK(node.value < 64, node.value);
    bits |= uint64_t{1} << node.value;
  });
  return bits;
}

bool NodeSet::equals_slowly(const NodeSet& other) const {
  return map_of(word_).words == map_of(other.word_).words;
}

}  // namespace multigrain
