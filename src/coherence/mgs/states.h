// This has the states, events, messages and actions of MGS for one page at one node ([MGS], section 3.2 and Appendix A:
// Table 5). The tables that tie them are in transitions.cpp.
#pragma once

#include <cstdint>

#include "base/bit_set.h"
#include "base/ids.h"
#include "base/node_set.h"
#include "coherence/action_list.h"
#include "coherence/context.h"

namespace multigrain::mgs {

enum class Access : uint8_t { kRead, kWrite };

// The messages between nodes, under the names of Table 5. (UPGRADE, UP_ACK, PINV, PINV_ACK, P2INV and P2INV_ACK stay
// inside a node; here they are actions and events.)
enum class MessageKind : uint8_t {
  // Local Client to Server
  kRreq,     // read data request
  kWreq,     // write data request
  kRel,      // release request
  kWnotify,  // the page was upgraded to write privilege
  // Remote Client to Server
  kAck,     // read copy invalidated
  kDiff,    // write copy invalidated; carries the diff
  k1wdata,  // the sole writer's copy invalidated; carries the page
  kAck1w,   // single-writer status accepted
  // Server to Local Client
  kRdat,  // read data
  kWdat,  // write data
  kRack,  // release done
  // Server to Remote Client
  kInv,    // invalidate the page
  k1winv,  // invalidate the sole writer's page
  k1wgr,   // single-writer status granted
  kKindCount
};
[[nodiscard]] const char* name(MessageKind kind);

// This is the privilege of a node's local copy, Figure 22's "pagestate".
enum class PageState : uint8_t { kInv, kRead, kWrite };

// The phase says what the client is waiting for. Faults wait in every phase but kIdle.
enum class Phase : uint8_t {
  kIdle,
  kBusyRead,            // RREQ is out
  kBusyWrite,           // WREQ is out
  kFetching,            // the node reads the page by itself
  kReadInvInProgress,   // INV_IN_PROG of a read copy
  kWriteInvInProgress,  // INV_IN_PROG of a write copy
  k1wInvInProgress,     // INV_IN_PROG of the sole writer's copy
};

// A set of mapping domains of one node; bit i is domain i.
using DomainSet = BitSet<DomainId>;

// A page at a node that uses it.
struct Client {
  PageState state = PageState::kInv;
  Phase phase = Phase::kIdle;
  bool single_writer = false;    // releases ignore the page
  bool release_pending = false;  // a REL is out
  bool fetch_is_void = false;    // INV came while the node read the page by itself
  DomainId requester;            // its fault is why the request is out
  DomainSet mapped;              // tlb_dir: domains with access to the page
  DomainSet queued;              // domains that have the page in their queue
  DomainSet releasing;           // domains whose release waits for the RACK
  bool operator==(const Client&) const = default;
};

enum class ServerState : uint8_t { kRead, kWrite, kSwrite, kRelInProgress };

// A page at its home.
struct Server {
  static constexpr uint8_t kLately = 2;  // so many writes of the home's alone forget a reader
  ServerState state = ServerState::kRead;
  bool awaiting_page = false;  // a 1WINV is unanswered: diffs wait
  bool diffs_waiting = false;  // a diff waits for that page
  bool granting = false;       // 1WGR follows the home's own ACK
  // Set to kLately when another node reads the page, and one less each time that the home writes it alone (o).
  uint8_t read_elsewhere = 0;
  NodeSet read_dir;
  NodeSet write_dir;
  // The ACK, DIFF, 1WDATA or ACK1W of these nodes is outstanding: Figure 22's "count", by name.
  NodeSet answers;
  NodeSet rd;  // their RREQ waits for the round's end
  NodeSet wr;  // their WREQ waits for the round's end
  NodeSet rl;  // nodes that get RACK at the round's end
  bool operator==(const Server&) const = default;
};

// This is everything that a node knows of a page. All zero is the initial state: no node has a copy, and the home copy
// is valid.
struct Page {
  Client client;
  Server server;  // meaningful at the home only
  bool operator==(const Page&) const = default;
};

// A transition asks the driver for these actions. It carries them out, in order, before it lets go of the page.
enum class Verb : uint8_t {
  kSend,          // send `kind` without data to each of `nodes`
  kSendPage,      // the same, with the copy, stable until read
  kSendDiff,      // send DIFF to the home: local copy against twin
  kFetch,         // read the page by itself, and then report on_fetched(), or on_refused() if the home's word is closed
  kTakePage,      // fill the local copy with the bytes of the message being handled
  kTakeHomeCopy,  // the same for the home copy
  kMergeDiff,     // apply the diff of the message being handled to the home copy
  kKeepDiff,      // keep that diff for kMergeKept
  kMergeKept,     // apply the kept diffs to the home copy and forget them
  kMakeTwin,      // copy the local copy, which no processor can write now
  kDropTwin,
  kMapRead,   // give `domain` read access
  kMapWrite,  // give `domain` read and write access
  kUnmap,     // take all access from `domain`, then report on_unmapped(domain): PINV
  kQueue,     // append the page to `domain`'s delayed update queue
  kWake,      // processors that wait for this page look again
  kReleased,  // the page's release is done for all of `domains`
};

// The nodes of a transition, and the option of the run.
struct PageContext : Context {
  bool reads_one_sided = false;  // nodes read pages by themselves
};

struct Action {
  Verb verb;
  MessageKind kind = MessageKind::kKindCount;
  DomainId domain;
  NodeSet nodes;
  DomainSet domains;
};

// The longest list is that of a transition that ends a round at the home.
using Actions = ActionList<Action, 24 + DomainSet::kCapacity>;

enum class FaultOutcome : uint8_t {
  kResolved,  // after the actions the access succeeds, or faults again
  kWait,      // wait until a kWake for this page, then try the access again
};

}  // namespace multigrain::mgs
