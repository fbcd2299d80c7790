// A system call of a guest with copies of all memory that it is about. So the call can be made where the guest's memory
// is not: by another process, or by this one when the kernel must not touch the guest's memory.
//
//     header | links | bytes that the call reads | reads and writes | writes
//
// The first four parts are the request, and the last two the reply. A package has no addresses; the links say which
// words become addresses when the call is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "guest/calls.h"
#include "guest/plan.h"

namespace multigrain::guest {

class Package {
 public:
  // Makes an empty package, for pack().
  Package() = default;
  Package(const Package&) = delete;
  Package& operator=(const Package&) = delete;

  // Packs a call, or the rest of a call of which so many bytes (units) are done. Returns 0 or -errno. The addresses
  // among the call's arguments may also be the host's own.
  long pack(const Call& call, uint64_t done = 0);
  // request() is what another process is sent. take_request() makes a package of it there, and returns false if it
  // is no request.
  [[nodiscard]] std::span<const std::byte> request() const;
  [[nodiscard]] bool take_request(std::span<const std::byte> request);

  // Makes the call, and returns pass_call()'s result.
  long carry_out(ThreadBlock& thread);
  // reply() is what goes back after a call with that result. take_reply() takes it, and returns false if it is no reply
  // to this package.
  [[nodiscard]] std::span<const std::byte> reply(long result) const;
  [[nodiscard]] bool take_reply(std::span<const std::byte> reply);

  // Stores in the guest's memory what the call has changed. Returns the result, or -EFAULT.
  long unpack(long result);

  [[nodiscard]] long number() const { return header().number; }
  [[nodiscard]] const uint64_t (&arguments() const)[6] { return header().arguments; }
  // Returns the package's own copy of what an argument points to, before the call or after it; null if there is none.
  [[nodiscard]] std::byte* contents(size_t argument);
  [[nodiscard]] const std::byte* contents(size_t argument) const {
    return const_cast<Package*>(this)->contents(argument);
  }
  // Puts another value in the place of an argument that is no address.
  void set_value(size_t argument, uint64_t value) { header().arguments[argument] = value; }
  // Returns how many units of data the package is for, if the call has more than the package has room for; else 0.
  [[nodiscard]] uint64_t cut_to() const { return plan_.cut_to(); }
  // Returns whether pack() has refused the call because nothing is known of its arguments.
  [[nodiscard]] bool is_refused() const { return plan_.is_refused(); }

 private:
  struct Header {
    int64_t number;
    uint64_t arguments[6];
    uint32_t links;
    // These are the offsets of the parts, and of the end.
    uint32_t data;
    uint32_t both;
    uint32_t written;
    uint32_t end;
    // Says where the bytes that the result counts begin, and how many of them are valid: `before`, and `unit` for each.
    uint32_t counted;
    uint32_t before;
    uint32_t unit;
  };
  // Says that the word at offset `place`, or an argument, becomes the address of what is at offset `target`, which
  // may be kNowhere.
  struct WireLink {
    uint32_t place;
    uint32_t target;
  };
  static constexpr uint32_t kNowhere = ~uint32_t{0};
  // Buffers for direct input and output have to be aligned like this.
  static constexpr size_t kAlignment = 512;

  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };

  [[nodiscard]] const Header& header() const { return *reinterpret_cast<const Header*>(bytes_); }
  [[nodiscard]] Header& header() { return *reinterpret_cast<Header*>(bytes_); }
  [[nodiscard]] std::span<WireLink> links() {
    return {reinterpret_cast<WireLink*>(bytes_ + sizeof(Header)), header().links};
  }
  [[nodiscard]] bool reserve(size_t bytes);
  [[nodiscard]] bool lay_out();
  void fill(Block& block);
  void connect();
  [[nodiscard]] bool is_sound(size_t bytes);
  [[nodiscard]] size_t valid_bytes(const Block& block, long result) const;
  [[nodiscard]] bool store(const Block& block, long result) const;
  [[nodiscard]] bool store_changes(const Block& block) const;
  [[nodiscard]] bool scatter(const Block& block, size_t bytes) const;

  Plan plan_;
  // This is the part that is read and written, as it was before the call.
  std::pmr::vector<std::byte> before_{&plan_.memory()};
  alignas(kAlignment) std::byte small_[2048];
  std::unique_ptr<std::byte, Free> large_;
  std::byte* bytes_ = small_;
};

}  // namespace multigrain::guest
