// This is the table of the coherence protocols that a run can have, and their options. All that is known of a protocol
// by its name comes from here: the values that users may give, the sentences that list them, and which protocol the
// runtime makes (coherence/create.h). How a protocol works is in its folder, coherence/NAME. The table is in base,
// because the launcher and the tools read it, too, which know nothing of coherence.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/node_set.h"
#include "multigrain/multigrain.h"

namespace multigrain {

// An allocation's memory is kept coherent by pages, whose accesses faults find, or by lines, whose accesses compiled
// checks find.
enum class Grain : uint8_t { kPage, kLine };

enum class ProtocolKind : uint8_t { kMgs, kHlrc, kSc, kPlacement, kDszoom, kShasta };

struct ProtocolTraits {
  ProtocolKind kind;
  std::string_view name;
  mg_protocol of_allocation;  // its name in mg_alloc_options
  Grain grain;
  // If true, some of it runs on a node because another node has sent a message. If false, locks do without that, too.
  bool has_handlers = true;
  // If true, a page that a node writes is in one memory, so instructions that are atomic on one machine are atomic here.
  bool is_sequential = false;
  // The greatest number of nodes of which a directory entry has sets; 0: no limit of the protocol's.
  unsigned max_nodes = 0;
  // If true, memory is always at home where it is touched first unless the user wants it elsewhere. If false, it is that
  // where it is worth it (Config::home_under).
  bool prefers_first_touch = false;
  // If true, an allocation chooses how many lines move together.
  bool has_blocks = false;
  // These are powers of two, in bytes, for line protocols.
  size_t min_line_size = 0;
  size_t max_line_size = 0;

  // Returns for instance "64 or 128".
  [[nodiscard]] std::string line_sizes() const;
};

// These are the limits of the checks of a line protocol (memory/checked_memory.h).
inline constexpr unsigned kMaxLineNodes = 56;
inline constexpr size_t kMinLineSize = 32;
inline constexpr size_t kMaxLineSize = 2048;

// The order is that in which messages name them. The first protocol of a grain keeps memory of that grain coherent in a
// run whose own protocol is of the other grain.
inline constexpr ProtocolTraits kProtocols[] = {
    {.kind = ProtocolKind::kMgs, .name = "mgs", .of_allocation = MG_PROTOCOL_MGS, .grain = Grain::kPage},
    {.kind = ProtocolKind::kHlrc,
     .name = "hlrc",
     .of_allocation = MG_PROTOCOL_HLRC,
     .grain = Grain::kPage,
     .has_handlers = false,
     .prefers_first_touch = true},
    {.kind = ProtocolKind::kSc,
     .name = "sc",
     .of_allocation = MG_PROTOCOL_SC,
     .grain = Grain::kPage,
     .is_sequential = true,
     .max_nodes = SmallNodeSet::kCapacity},
    {.kind = ProtocolKind::kPlacement,
     .name = "placement",
     .of_allocation = MG_PROTOCOL_PLACEMENT,
     .grain = Grain::kPage,
     .is_sequential = true,
     .max_nodes = SmallNodeSet::kCapacity},
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

// Returns the first protocol in the table that is of `grain`.
[[nodiscard]] constexpr const ProtocolTraits& default_protocol(Grain grain) {
  return *std::ranges::find(kProtocols, grain, &ProtocolTraits::grain);
}

// Returns the protocol whose `member` is `value`, or nullptr if there is none.
template <typename Member, typename Value>
[[nodiscard]] constexpr const ProtocolTraits* find_protocol(Member ProtocolTraits::* member, const Value& value) {
  const auto* const found = std::ranges::find(kProtocols, value, member);
  return found == std::end(kProtocols) ? nullptr : found;
}

// A run may leave the choice of its protocol to Multigrain (Config::traits()).
inline constexpr std::string_view kAutomaticProtocol = "auto";

// Returns "auto, mgs, hlrc, sc, placement, dszoom or shasta".
std::string protocol_names();

// This is the memory model of shasta: what is promised of a program's accesses to shared memory across nodes.
enum class MemoryModel : uint8_t {
  kSequential,  // "sc": one order of all accesses
  kRelease,     // "rc": only fences and synchronisation order accesses
};
// Reads "sc" or "rc".
Result<MemoryModel> parse_model(std::string_view text);

// These are the papers' optimisations of HLRC. Each can be switched off, to see what it gains.
struct HlrcOptions {
  static constexpr unsigned kMaxFetchAhead = 64;

  // "fetch-ahead=N": this many pages are fetched after one that is fetched; 0: none (GeNIMA, B.2).
  unsigned fetch_ahead = 4;
  // "coalesce=on|off": rights of consecutive pages are changed together (B.1, B.3).
  bool coalesce = true;
  // "lock=ticket|test-and-set": this is how processors of a node wait for a lock (B.4).
  bool tickets = true;
  // "barrier=leader|cooperative": one processor or all do a node's page work at a barrier (B.3).
  bool cooperative = false;
  // "homes=follow|stay": pages move their homes to the nodes that write them.
  bool homes_follow = true;
  // "runs=on|off": pages that were fetched or written together are fetched and opened together again.
  bool runs = true;
  // "chains=on|off": pages that were fetched one after the other before, wherever they lie, are fetched together again.
  bool chains = true;
  // "updates=on|off": copies that are in use keep their rights, and get what has changed.
  bool updates = true;
  // "releases=deferred|at-once": an unlock may leave the end of the interval to when another node wants the lock.
  bool deferred_releases = true;

  // The last item of a list that asks for what mgrun --races must switch off.
  std::string against_races;
};
// Reads a list such as "fetch-ahead=0,coalesce=off,lock=test-and-set,barrier=leader".
Result<HlrcOptions> parse_hlrc(std::string_view text);

// This is how a node reads a page that is at home elsewhere, under mgs.
enum class MgsReads : uint8_t {
  kAutomatic,  // one-sided if the nodes share this machine's memory, else by message
  kOneSided,   // the node reads it by itself, if the home's word for the page allows that
  kByMessage,  // it asks the home, as the paper's MGS does
};
// This is how accesses to pages that need something are found under mgs.
enum class MgsTranslation : uint8_t {
  kHardware,  // by faults of the MMU, whose rights are those of a node
  kCompiled,  // by compiled code, which looks a page up in its processor's own translation table
};
// This is when a lock that another processor of its node waits for is handed on there, under mgs.
enum class MgsHandOn : uint8_t {
  kAutomatic,  // kDirty, if one release covers what all processors of the node have written
  kDirty,      // at once: what its holder has written is released when the lock leaves the node
  kClean,      // after a release, as every lock of the paper's MGS
};
struct MgsOptions {
  // "reads=auto|one-sided|message"
  MgsReads reads = MgsReads::kAutomatic;
  // "translation=hardware|compiled"
  MgsTranslation translation = MgsTranslation::kHardware;
  // "hand-on=auto|dirty|clean"
  MgsHandOn hand_on = MgsHandOn::kAutomatic;

  // Returns whether locks are handed on inside a node without a release.
  [[nodiscard]] bool hands_on_dirty() const {
    return hand_on == MgsHandOn::kAutomatic ? translation == MgsTranslation::kHardware : hand_on == MgsHandOn::kDirty;
  }
};
// Reads a list such as "reads=message,hand-on=clean".
Result<MgsOptions> parse_mgs(std::string_view text);

}  // namespace multigrain
