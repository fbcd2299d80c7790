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

  [[nodiscard]] bool is_allowed(Range range) const {
    return range.begin < range.end &&
           std::ranges::any_of(
               allowed_, [range](Range one) { return range.begin >= one.begin && range.end <= one.end; });
  }
  [[nodiscard]] bool is_free(Range range) const;
  // The highest free range of that many bytes (a multiple of kPageSize) in `within`, or where the host chooses.
  [[nodiscard]] std::optional<uint64_t> find_free(uint64_t bytes, std::optional<Range> within = std::nullopt) const;

  // The area takes the place of whatever is there.
  void map(const Area& area);
  void unmap(Range range);
  // Only of what is mapped.
  void set_rights(Range range, int rights);
  // What is mapped of the range, cut to it, in order.
  [[nodiscard]] std::vector<Area> in(Range range) const;
  // Where the area of this address begins and ends, if there is one.
  [[nodiscard]] std::optional<Range> range_around(uint64_t address) const;
  // The area that has this address, whole, or nothing.
  [[nodiscard]] std::vector<Area> around(uint64_t address) const;
  [[nodiscard]] std::vector<Area> all() const { return in({0, UINT64_MAX}); }
  [[nodiscard]] Range chosen() const { return chosen_; }

 private:
  struct Mapped {
    uint64_t end;
    int rights;
    bool is_shared;
    uint32_t file;
    uint64_t offset;
  };
  // Afterwards no area reaches across the address.
  void cut(uint64_t address);

  std::vector<Range> allowed_;
  Range chosen_;
  std::map<uint64_t, Mapped> by_begin_;
};

}  // namespace multigrain::guest
