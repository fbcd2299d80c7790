// The plan of a package (package.h): what a system call needs of the guest's memory, and what it changes there. It has
// the blocks of bytes that are copied into the package, and says which words of the package become their addresses when
// the call is made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "guest/calls.h"
#include "guest/form.h"

namespace multigrain::guest {

// The bytes of a block lie together in the package.
struct Block {
  // Says how many of the bytes that the call has written are valid.
  enum class Valid : uint8_t {
    kAll,     // all of them, if the call has succeeded
    kResult,  // `before`, and `unit` times the call's result
    // Valid are as many bytes as msg_len says of message `message` in the mmsghdr array that is block `header`.
    kMessage,
  };

  Way way = Way::kIn;
  Valid valid = Valid::kAll;
  bool is_string = false;
  bool is_what_is_there = false;  // a part will do if the rest is unreadable
  bool may_stay = false;          // it is no error if it cannot be written back
  bool is_lost = false;           // unreadable: the kernel gets an address that faults
  uint16_t before = 0;
  uint16_t unit = 0;
  uint32_t size = 0;
  uint32_t offset = 0;  // the place in the package
  // Says how many bytes could be read, of a block of which a part will do.
  uint32_t present = 0;
  uint32_t header = 0;
  uint32_t message = 0;
  // The block has these pieces of Plan::pieces, if it is scattered in the guest's memory.
  uint32_t first_piece = 0;
  uint32_t pieces = 0;
  uint64_t source = 0;  // the address of its bytes
  uint64_t target = 0;  // the address for its changes; 0: none
};

struct Piece {
  uint64_t address;
  uint64_t size;
};

// Says that argument `at`, or the word at that offset in block `in`, becomes the address of block `to`.
struct Link {
  static constexpr int kArgument = -1;  // a value of `in`
  static constexpr int kNowhere = -1;   // a value of `to`: an address that faults
  int in;
  uint32_t at;
  int to;
};

class Plan {
 public:
  // One package has room for so much data that may be cut, and for so many bytes in all.
  static constexpr uint64_t kMostData = uint64_t{1} << 20;
  static constexpr uint64_t kMostBytes = uint64_t{2} << 20;

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Plans the rest of a call of which so many bytes are done. Returns 0 or -errno. The addresses among the call's
  // arguments may also be the host's own.
  long make(const Call& call, uint64_t done);

  [[nodiscard]] long number() const { return number_; }
  // Returns the arguments, in which lengths are smaller if the call is cut.
  [[nodiscard]] const std::array<uint64_t, 6>& arguments() const { return arguments_; }
  [[nodiscard]] std::pmr::vector<Block>& blocks() { return blocks_; }
  [[nodiscard]] const std::pmr::vector<Block>& blocks() const { return blocks_; }
  [[nodiscard]] const std::pmr::vector<Piece>& pieces() const { return pieces_; }
  [[nodiscard]] const std::pmr::vector<Link>& links() const { return links_; }
  // Returns how many units this part of the call is for; 0 if it is for all that were left.
  [[nodiscard]] uint64_t cut_to() const { return cut_to_; }
  // Returns whether the call was refused because there is no form for it.
  [[nodiscard]] bool is_refused() const { return is_refused_; }
  [[nodiscard]] std::pmr::memory_resource& memory() { return memory_; }

 private:
  long plan_argument(size_t index, const Shape& shape, uint64_t done);
  long plan_string(size_t index, uint64_t address);
  long plan_bytes(size_t index, const Shape& shape, uint64_t done);
  long plan_nested(size_t index, const Shape& shape);
  // message_plan.cpp has these.
  long plan_vector(size_t index, const Shape& shape, uint64_t done);
  long plan_message(size_t index, const Shape& shape, uint64_t done);
  long plan_messages(size_t index, const Shape& shape);
  struct Vector;
  long plan_header(int in, size_t offset, Way way, std::byte* header, uint64_t done, uint64_t room);
  long plan_iovecs(Link place, Vector& vector);

  [[nodiscard]] std::optional<uint64_t> count_of(const Shape& shape, uint64_t address) const;
  // Adds a block to which the link leads. Returns 0 or -errno.
  long add(Link link, Block block);
  void lose(Link link);
  // Returns bytes of the host's, which last as long as this object.
  std::byte* keep(size_t bytes);

  long number_ = 0;
  std::array<uint64_t, 6> arguments_{};
  uint64_t bytes_ = 0;
  uint64_t cut_to_ = 0;
  bool is_refused_ = false;
  std::array<std::byte, 2048> first_memory_;
  std::pmr::monotonic_buffer_resource memory_{first_memory_.data(), first_memory_.size()};
  std::pmr::vector<Block> blocks_{&memory_};
  std::pmr::vector<Piece> pieces_{&memory_};
  std::pmr::vector<Link> links_{&memory_};
};

}  // namespace multigrain::guest
