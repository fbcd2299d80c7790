// The areas of a guest's address space: which addresses it has mapped, and as what. Pure: it maps nothing. Addresses are
// the host's to choose, so that they can be the same on every node.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace multigrain::guest {

inline constexpr uint64_t kPageSize = 4096;

// [begin, end), multiples of kPageSize.
struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool operator==(const Range&) const = default;
};

// What the guest may do in an area, as of mmap(): PROT_READ and so on.
struct Area {
  Range range;
  int rights = 0;
  bool is_shared = false;
  // Which file is mapped, a number of the host's, and from which place on. 0: none, or it does not matter which.
  uint32_t file = 0;
  uint64_t offset = 0;
  bool operator==(const Area&) const = default;
};

class Areas {
 public:
  // Where the guest may have anything at all, and the part of it where the host chooses addresses, from the highest down.
  Areas(std::vector<Range> allowed, Range chosen) : allowed_(std::move(allowed)), chosen_(chosen) {}

  [[nodiscard]] bool is_allowed(Range range) const;
  [[nodiscard]] bool is_free(Range range) const;
  // The highest free range of that many bytes (a multiple of kPageSize) in `within`, or where the host chooses.
  [[nodiscard]] std::optional<uint64_t> find_free(uint64_t bytes, std::optional<Range> within = std::nullopt) const;

  // The area takes the place of whatever is there.
  void map(const Area& area);
  void unmap(Range range);
  // Only of what is mapped.
  void set_rights(Range range, int rights);
  // Keeps a free range for the host, for good: the guest has nothing there and can have nothing there.
  void reserve(Range range);
  [[nodiscard]] bool is_reserved(uint64_t address) const;
  // What is not reserved of a range.
  [[nodiscard]] std::vector<Range> without_reserved(Range range) const;
  // What is mapped of the range, cut to it, in order.
  [[nodiscard]] std::vector<Area> in(Range range) const;
  // Where the area of this address begins and ends, if there is one.
  [[nodiscard]] std::optional<Range> range_around(uint64_t address) const;
  // The area that has this address, whole, or nothing.
  [[nodiscard]] std::vector<Area> around(uint64_t address) const;
  [[nodiscard]] std::vector<Area> all() const { return in({0, UINT64_MAX}); }
  [[nodiscard]] Range chosen() const { return chosen_; }
  // Where the guest may have something around this address, and whether it may at all have something in a range: whatever is
  // reserved there. Nothing: not at this address.
  [[nodiscard]] std::optional<Range> allowed_around(uint64_t address) const;
  [[nodiscard]] bool is_in_allowed(Range range) const;

 private:
  // Where a search for a free range can begin: no free range of `bytes` or more is above `end`.
  struct Searched {
    uint64_t bytes = UINT64_MAX;
    uint64_t end = 0;
  };
  struct Mapped {
    uint64_t end;
    int rights;
    bool is_shared;
    uint32_t file;
    uint64_t offset;
    bool is_reserved = false;
  };
  // The range has become free.
  void search_again(Range range);
  // Afterwards no area reaches across the address.
  void cut(uint64_t address);

  std::vector<Range> allowed_;
  Range chosen_;
  std::map<uint64_t, Mapped> by_begin_;
  mutable std::map<uint64_t, Searched> searched_;  // by the end of `within`, of which there are few
  std::vector<Range> reserved_;                    // few; they are in by_begin_, too
};

}  // namespace multigrain::guest
