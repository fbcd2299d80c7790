// The account of the areas of a guest's address space: which addresses the guest has mapped, and as what. The host
// needs it because it chooses the guest's addresses itself, so that they can be the same on every node. The account is
// pure: it maps nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace multigrain::guest {

inline constexpr uint64_t kPageSize = 4096;
// These return the next multiple of kPageSize that is not above, or not below, `bytes`, which may be an address.
constexpr uint64_t page_down(uint64_t bytes) {
  return bytes & ~(kPageSize - 1);
}
constexpr uint64_t page_up(uint64_t bytes) {
  return page_down(bytes + kPageSize - 1);
}

// The addresses from `begin` to `end`, which does not belong to it; both are multiples of kPageSize.
struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool operator==(const Range&) const = default;
};

// A run of addresses that the guest has mapped in one way. The rights are those of mmap(): PROT_READ and so on.
struct Area {
  Range range;
  int rights = 0;
  bool is_shared = false;
  // The host's number of the file that is mapped, and the place in the file where the area begins. 0 means that there
  // is no file, or that it does not matter which.
  uint32_t file = 0;
  uint64_t offset = 0;
  bool operator==(const Area&) const = default;
};

class Areas {
 public:
  // The guest may have areas in `allowed` alone. The host chooses addresses in `chosen`, a part of it, from
  // the highest down.
  Areas(std::vector<Range> allowed, Range chosen) : allowed_(std::move(allowed)), chosen_(chosen) {}

  [[nodiscard]] bool is_allowed(Range range) const;
  [[nodiscard]] bool is_free(Range range) const;
  // Returns the highest free range of that many bytes (a multiple of kPageSize) in `within`, or where the host chooses.
  [[nodiscard]] std::optional<uint64_t> find_free(uint64_t bytes, std::optional<Range> within = std::nullopt) const;

  // Makes the area take the place of everything that is at its addresses.
  void map(const Area& area);
  void unmap(Range range);
  // Changes only what is mapped.
  void set_rights(Range range, int rights);
  // Keeps a free range for the host for ever: the guest has nothing there and can have nothing there.
  void reserve(Range range);
  [[nodiscard]] bool is_reserved(uint64_t address) const;
  [[nodiscard]] const std::vector<Range>& reserved() const { return reserved_; }
  // Returns the parts of the range that are not reserved.
  [[nodiscard]] std::vector<Range> without_reserved(Range range) const;
  // Returns what is mapped of the range, cut to it, in order.
  [[nodiscard]] std::vector<Area> in(Range range) const;
  // Returns where the area of this address begins and ends, if there is one.
  [[nodiscard]] std::optional<Range> range_around(uint64_t address) const;
  // Returns the whole area that has this address, or nothing.
  [[nodiscard]] std::vector<Area> around(uint64_t address) const;
  [[nodiscard]] std::vector<Area> all() const { return in({0, UINT64_MAX}); }
  [[nodiscard]] Range chosen() const { return chosen_; }
  // allowed_around() returns the range around this address in which the guest may have areas, or nothing if the
  // address is in none. is_in_allowed() returns whether the range lies in such a range. Neither looks at what
  // is reserved there.
  [[nodiscard]] std::optional<Range> allowed_around(uint64_t address) const;
  [[nodiscard]] bool is_in_allowed(Range range) const;

 private:
  // A search for a free range can begin here: no free range of `bytes` or more is above `end`.
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
  // Makes searches look at the range again, which has become free.
  void search_again(Range range);
  // Cuts the area that reaches across the address in two.
  void cut(uint64_t address);

  std::vector<Range> allowed_;
  Range chosen_;
  std::map<uint64_t, Mapped> by_begin_;
  mutable std::map<uint64_t, Searched> searched_;  // few; the key is the end of `within`
  std::vector<Range> reserved_;                    // few ranges, which by_begin_ has, too
};

}  // namespace multigrain::guest
