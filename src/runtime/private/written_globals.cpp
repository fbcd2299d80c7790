#include "runtime/private/written_globals.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/private/globals.h"
#include "runtime/private/touched_pages.h"
#include "runtime/private/variables.h"

namespace multigrain {
namespace {

constexpr size_t kPage = TouchedPages::kPage;
// More names would hide those that come first.
constexpr size_t kMaxNamed = 20;

// Returns whether the name is the program's: compilers, linkers and the part of the runtime that is linked with the
// program put names of their own among its variables.
bool is_the_programs(std::string_view name) {
  return !name.starts_with("__") && !name.starts_with("multigrain::") && !name.starts_with("guard variable for ") &&
         name != "completed";
}

}  // namespace

Result<WrittenGlobals> WrittenGlobals::create(NodeId node) {
  size_t size = 0;
  for (const Range& range : program_globals()) size += range.length;
  size = std::max(kPage, (size + kPage - 1) / kPage * kPage);
  void* const copy = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (copy == MAP_FAILED) return fail_errno(errno, "no memory to remember the program's globals (--check)");
  return WrittenGlobals(node, static_cast<std::byte*>(copy), size);
}

WrittenGlobals::WrittenGlobals(WrittenGlobals&& other) noexcept
    : node_(other.node_),
      copy_(std::exchange(other.copy_, nullptr)),
      size_(other.size_),
      remembers_(other.remembers_),
      named_(std::move(other.named_)) {}

WrittenGlobals::~WrittenGlobals() {
  if (copy_ != nullptr) ::munmap(copy_, size_);
}

void WrittenGlobals::remember() {
  ::madvise(copy_, size_, MADV_DONTNEED);  // zeros from now on
  std::byte* to = copy_;
  for (const Range& range : program_globals()) {
    for (size_t at = 0; at < range.length; at += kPage) {
      const size_t length = std::min(kPage, range.length - at);
      // Pages of .bss that the program has never written stay untouched in the copy.
      if (!all_zero(range.begin + at, length)) std::memcpy(to + at, range.begin + at, length);
    }
    to += range.length;
  }
  remembers_ = true;
}

std::vector<std::string> WrittenGlobals::news() {
  std::vector<std::string> sentences;
  if (!remembers_) return sentences;
  const std::byte* was = copy_;
  for (const Range& range : program_globals()) {
    for (size_t at = 0; at < range.length;) {
      const size_t length = std::min(kPage - at % kPage, range.length - at);
      if (std::memcmp(range.begin + at, was + at, length) == 0) {
        at += length;
        continue;
      }
      const auto changed =
          static_cast<size_t>(std::mismatch(range.begin + at, range.begin + at + length, was + at).first - range.begin);
      const auto address = reinterpret_cast<uintptr_t>(range.begin + changed);
      const auto variable = variable_at(address);
      // Where there is no symbol, one sentence speaks for the rest of the page.
      at = variable
               ? std::min(range.length, variable->begin + variable->size - reinterpret_cast<uintptr_t>(range.begin))
               : at + length;
      if (variable && !is_the_programs(variable->name)) continue;
      const std::string what = variable ? variable->described() : fmt::format("a global at {:#x}", address);
      if (named_.size() >= kMaxNamed || !named_.insert(what).second) continue;
      sentences.push_back(fmt::format("node {} wrote {}, which stays on node {}: only memory of mg_alloc is shared",
                                      node_.value, what, node_.value));
    }
    was += range.length;
  }
  return sentences;
}

}  // namespace multigrain
