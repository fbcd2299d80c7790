// The coherence protocols that a run can have, as a table, and their options. All that is known of a protocol by its name
// comes from here: what a run may be asked for, the sentences that say so, and which protocol the runtime makes
// (coherence/create.h). What a protocol does is in its folder, coherence/NAME.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "multigrain/multigrain.h"

namespace multigrain {

// What an allocation's memory is kept coherent by: pages, whose accesses faults find, or lines, whose accesses compiled
// checks find.
enum class Grain : uint8_t { kPage, kLine };

enum class ProtocolKind : uint8_t { kMgs, kHlrc, kSc, kDszoom, kShasta };

struct ProtocolTraits {
  ProtocolKind kind;
  std::string_view name;
  mg_protocol of_allocation;  // what mg_alloc_options calls it
  Grain grain;
  // Whether some of it runs on a node because another node has sent a message. Without that, locks do without it, too.
  bool has_handlers = true;
  // Whether an allocation chooses how many lines move together.
  bool has_blocks = false;
  // Powers of two, bytes. Of line protocols.
  size_t min_line_size = 0;
  size_t max_line_size = 0;

  // "64 or 128".
  [[nodiscard]] std::string line_sizes() const;
};

// What the checks of a line protocol can do (memory/checked_memory.h).
inline constexpr unsigned kMaxLineNodes = 56;
inline constexpr size_t kMinLineSize = 32;
inline constexpr size_t kMaxLineSize = 2048;

// In the order in which messages name them. The first of a grain keeps what memory of that grain there is in a run whose
// own protocol is of the other grain.
inline constexpr ProtocolTraits kProtocols[] = {
    {.kind = ProtocolKind::kMgs, .name = "mgs", .of_allocation = MG_PROTOCOL_MGS, .grain = Grain::kPage},
    {.kind = ProtocolKind::kHlrc,
     .name = "hlrc",
     .of_allocation = MG_PROTOCOL_HLRC,
     .grain = Grain::kPage,
     .has_handlers = false},
    {.kind = ProtocolKind::kSc, .name = "sc", .of_allocation = MG_PROTOCOL_SC, .grain = Grain::kPage},
    {.kind = ProtocolKind::kDszoom,
     .name = "dszoom",
     .of_allocation = MG_PROTOCOL_DSZOOM,
     .grain = Grain::kLine,
     .has_handlers = false,
     .min_line_size = kMinLineSize,
     .max_line_size = kMaxLineSize},
    {.kind = ProtocolKind::kShasta,
     .name = "shasta",
     .of_allocation = MG_PROTOCOL_SHASTA,
     .grain = Grain::kLine,
     .has_blocks = true,
     .min_line_size = 64,
     .max_line_size = 128},
};

// The first in the table that is of `grain`.
[[nodiscard]] constexpr const ProtocolTraits& default_protocol(Grain grain) {
  return *std::ranges::find(kProtocols, grain, &ProtocolTraits::grain);
}

// The protocol of which `member` is `value`; nullptr: there is none.
template <typename Member, typename Value>
[[nodiscard]] constexpr const ProtocolTraits* find_protocol(Member ProtocolTraits::* member, const Value& value) {
  const auto* const found = std::ranges::find(kProtocols, value, member);
  return found == std::end(kProtocols) ? nullptr : found;
}

// "mgs, hlrc, sc, dszoom or shasta".
std::string protocol_names();

// The memory model of shasta: what is promised of a program's accesses to shared memory across nodes.
enum class MemoryModel : uint8_t {
  kSequential,       // "sc": one order of all accesses
  kTotalStoreOrder,  // "tso", that of x86: the stores of a processor are seen in their order
  kRelease,          // "rc": fences and synchronisation order accesses, nothing else does
};
// Reads "sc", "tso" or "rc".
Result<MemoryModel> parse_model(std::string_view text);

// What the papers' optimisations of HLRC are for: each can be switched off, to see what it brings.
struct HlrcOptions {
  static constexpr unsigned kMaxFetchAhead = 64;

  unsigned fetch_ahead = 4;  // "fetch-ahead=N": pages fetched after one that is fetched; 0: none (GeNIMA, B.2)
  bool coalesce = true;      // "coalesce=on|off": one change of rights for consecutive pages (B.1, B.3)
  bool tickets = true;       // "lock=ticket|test-and-set": processors of a node that want a lock (B.4)
  bool cooperative = false;  // "barrier=leader|cooperative": who does a node's page work at a barrier (B.3)
  bool homes_follow = true;  // "homes=follow|stay": pages move their homes to the nodes that write them
};
// Reads a list such as "fetch-ahead=0,coalesce=off,lock=test-and-set,barrier=leader".
Result<HlrcOptions> parse_hlrc(std::string_view text);

}  // namespace multigrain
