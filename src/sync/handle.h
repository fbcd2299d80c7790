// Handles of synchronisation objects, and the tables that they index.
//
// A handle says everything that a node must know to find an object of which it has never heard: its kind, the node
// that created it, the index that the creator gave it, and one argument (a barrier's count). So creating an object
// sends no message, and every node's record of it starts out as zeroes, which mean "as created". Indices are used
// again after destroy. The generation is part of handle and record and tells the uses apart: a record of an older
// generation is as good as new.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/ids.h"
#include "base/node_set.h"
#include "base/spin_lock.h"

namespace multigrain {

enum class SyncKind : uint8_t { kLock = 1, kBarrier, kCond, kSem, kFlag };
inline constexpr unsigned kSyncKinds = 5;

// The fields of a SyncId, and how it packs them: kind 4 bits, generation 8, creator 10, argument 20, index 22. No handle
// is 0, since no kind is 0.
struct SyncHandle {
  static constexpr unsigned kIndexBits = 22;
  static constexpr unsigned kArgumentBits = 20;
  static constexpr unsigned kCreatorBits = 10;
  static constexpr unsigned kGenerationBits = 8;
  static_assert(NodeSet::kCapacity <= 1u << kCreatorBits);

  uint8_t kind = 0;  // a SyncKind, if the handle is valid
  uint8_t generation = 0;
  NodeId creator;
  uint32_t argument = 0;
  uint32_t index = 0;

  static constexpr SyncHandle decode(SyncId id) {
    const uint64_t bits = id.value;
    SyncHandle handle;
    handle.index = static_cast<uint32_t>(bits & ((1u << kIndexBits) - 1));
    handle.argument = static_cast<uint32_t>(bits >> kIndexBits & ((1u << kArgumentBits) - 1));
    handle.creator = NodeId(static_cast<uint16_t>(bits >> (kIndexBits + kArgumentBits) & ((1u << kCreatorBits) - 1)));
    handle.generation = static_cast<uint8_t>(bits >> (kIndexBits + kArgumentBits + kCreatorBits));
    handle.kind = static_cast<uint8_t>(bits >> (kIndexBits + kArgumentBits + kCreatorBits + kGenerationBits));
    return handle;
  }
  [[nodiscard]] constexpr SyncId encode() const {
    uint64_t bits = kind;
    bits = bits << kGenerationBits | generation;
    bits = bits << kCreatorBits | creator.value;
    bits = bits << kArgumentBits | argument;
    bits = bits << kIndexBits | index;
    return SyncId(bits);
  }
};

// Returns the manager of the object, where objects are spread over the nodes.
[[nodiscard]] constexpr NodeId spread(const SyncHandle& handle, unsigned nodes) {
  return NodeId(static_cast<uint16_t>((handle.creator.value + handle.index) % nodes));
}

// Address space for a table, all zeroes; it uses memory only for the pages that are touched. It does not come from
// malloc, because a node's heap is replaced by node 0's at spawn, and because message handlers may not use malloc. The
// constructor ends the run with a sentence if it cannot reserve the address space.
class ZeroPages {
 public:
  explicit ZeroPages(size_t bytes);
  ~ZeroPages();
  ZeroPages(const ZeroPages&) = delete;
  ZeroPages& operator=(const ZeroPages&) = delete;
  [[nodiscard]] void* data() const { return data_; }

 private:
  void* data_;
  size_t bytes_;
};

template <typename T>
class SparseArray {
 public:
  // Elements come into being as zeroes, without construction, and go without destruction.
  static_assert(std::is_trivially_destructible_v<T>);

  explicit SparseArray(size_t count) : pages_(count * sizeof(T)), size_(count) {}
  T& operator[](size_t i) const { return static_cast<T*>(pages_.data())[i]; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  ZeroPages pages_;
  size_t size_;
};

// Gives out the indices of one kind of object at one node. Any thread may call it; it never waits beyond its spin lock.
class HandleSource {
 public:
  explicit HandleSource(uint32_t limit) : next_free_(limit), generation_(limit) {}

  struct Index {
    uint32_t value = 0;
    uint8_t generation = 0;
  };
  // Returns false if all indices are in use.
  [[nodiscard]] bool take(Index& index);
  // Takes back the index of an object that is gone. Returns false if that index is not in use with that generation. An
  // index whose generations are used up is not given out again.
  [[nodiscard]] bool give_back(Index index);
  [[nodiscard]] uint32_t limit() const { return static_cast<uint32_t>(generation_.size()); }

  // What a checkpoint keeps of it, so that a later process gives out other handles than those that the program has.
  struct Image {
    uint32_t free = 0;  // next_free + 1
    std::vector<uint32_t> next_free;
    std::vector<uint16_t> generation;
  };
  // No object of this kind is made or destroyed meanwhile. Allocates.
  [[nodiscard]] Image image() const;
  // Returns the indices in use.
  [[nodiscard]] static std::vector<Index> in_use(const Image& image);
  // Makes it what it was. Returns false, and changes nothing, if that makes no sense.
  [[nodiscard]] bool restore(const Image& image);

 private:
  static constexpr uint32_t kNone = 0;  // free list entries are indices + 1

  mutable SpinLock guard_;
  // All indices below this one were given out at least once.
  uint32_t fresh_ MG_GUARDED_BY(guard_) = 0;
  uint32_t free_ MG_GUARDED_BY(guard_) = kNone;
  // Entries of this table and the next are used under the guard.
  SparseArray<uint32_t> next_free_;
  // The generation of the present use of an index; it grows by one when the index is given back.
  SparseArray<uint16_t> generation_;
};

}  // namespace multigrain
