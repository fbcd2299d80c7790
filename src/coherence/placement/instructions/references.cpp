#include "coherence/placement/instructions/references.h"

#include <algorithm>
#include <cstring>

namespace multigrain::placement {

Result<InstructionReferences> InstructionReferences::create(const Region& region, RemoteMemory& memory,
                                                            DecodeInstruction decode) {
  auto executor = Executor::create(decode);
  if (!executor) return tl::unexpected(executor.error());
  return InstructionReferences(region, memory, std::move(*executor));
}

bool InstructionReferences::serve(PageId page, ucontext_t& context, bool& was_remote) {
  was_remote = memory_->is_remote(page);
  if (!was_remote) return true;
  const auto at = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RIP]);
  switch (executor_.execute(context, *this)) {
    case Executed::kDone:
      return true;
    case Executed::kNothingThere:
      return false;
    case Executed::kNotUnderstood:
      break;
  }
  uint64_t code = 0;
  std::memcpy(&code, reinterpret_cast<const void*>(at), sizeof code);
  die(1,
      "an instruction refers to a page in another node's memory, and cannot be executed there, because it has a mask of "
      "AVX-512, gathers or scatters by one, or is an atomic one of more than an aligned word of 8 bytes. Run the program on one machine without --net, where "
      "such pages are mapped, or with --policy always-migrate, which brings pages to whoever uses them. Its address, and its first "
      "8 bytes as a number:",
      at, code);
}

namespace {

// Calls `part(address, offset, bytes)` for each part of a range of memory that lies in one page.
template <typename Part>
bool for_each_part(uint64_t address, size_t size, size_t page_size, Part&& part) {
  for (size_t done = 0; done < size;) {
    const size_t bytes = std::min(size - done, page_size - static_cast<size_t>((address + done) % page_size));
    if (!part(address + done, done, bytes)) return false;
    done += bytes;
  }
  return true;
}

}  // namespace

// An operand that is in no page of the shared region is the program's own memory, as the other operand of a move is.
bool InstructionReferences::load(uint64_t address, std::span<std::byte> out) {
  return for_each_part(address, out.size(), region_->page_size(), [&](uint64_t at, size_t done, size_t bytes) {
    const auto* const from = reinterpret_cast<const std::byte*>(at);
    const std::span<std::byte> to = out.subspan(done, bytes);
    if (region_->contains(from)) return memory_->load(region_->page_of(from), at % region_->page_size(), to);
    std::memcpy(to.data(), from, bytes);
    return true;
  });
}

bool InstructionReferences::store(uint64_t address, std::span<const std::byte> bytes) {
  return for_each_part(address, bytes.size(), region_->page_size(), [&](uint64_t at, size_t done, size_t size) {
    auto* const to = reinterpret_cast<std::byte*>(at);
    const std::span<const std::byte> from = bytes.subspan(done, size);
    if (region_->contains(to)) return memory_->store(region_->page_of(to), at % region_->page_size(), from);
    std::memcpy(to, from.data(), size);
    return true;
  });
}

bool InstructionReferences::compare_and_swap(uint64_t address, uint64_t& expected, uint64_t desired) {
  auto* const at = reinterpret_cast<std::byte*>(address);
  return memory_->compare_and_swap(region_->page_of(at), address % region_->page_size(), expected, desired);
}

}  // namespace multigrain::placement
