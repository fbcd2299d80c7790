// Home-based lazy release consistency (GeNIMA) as a value and its transitions: one page at one node.
//
// Requesters run this protocol: a node fetches pages from their homes and deposits diffs there with one-sided
// operations, and nobody's processor is asked. So there is no server here and there are no messages; what other nodes
// do shows in three events only: a write notice that this node takes in at an acquire, the end of an interval, and the
// mark that the first fetch of a page leaves at its home. The driver (driver.h) and the explorer (tests/coherence) carry
// out the actions, in order, before the page's next event.
//
// The invariants, which docs/internals/hlrc.md argues and the explorer checks:
//
//  H1  Whatever a node has written before it ends an interval is in the home copies before the interval's notices can
//      be read, and these are before anybody is told of the release. So when an acquire has taken in the notices of all
//      that happens before it, every fetch that follows finds it at the home: the paper's wait for a version is over
//      before it begins.
//  H2  A page that is writable where its writes must be noticed is queued: it joined the queue of this interval before
//      it became writable. Exempt is the home of a page of which no other node can have a copy that outlives its next
//      acquire: nobody has fetched it since the home's last notice of it (`shared` is false).
//  H3  A twin exists exactly while a page that is at home elsewhere is writable.
//  H4  A copy elsewhere than at home leaves the node's rights before its frame is filled, and its diff is made, and is
//      complete at the home, after no processor can write it and before the page's next event.
//  H5  A node that fetches a page for the first time, or for the first time since it took in a notice of it, leaves its
//      mark at the home before the fetch begins. The home looks at the marks when it ends an interval: either it finds
//      the mark, and counts the page as written in that interval, or the fetch began later and sees all that the
//      interval wrote.
//
// A notice about a page that is dirty here ends its copy early: the changes go home at once, and their own notice is
// owed until this node's interval ends. So a fetch never has to be merged with what was written here before.
#pragma once

#include <array>
#include <cstdint>

#include "base/error.h"

namespace multigrain::hlrc {

// What the node's view allows.
enum class Access : uint8_t { kNone, kRead, kWrite };

// All zero is the initial state.
struct Page {
  Access access = Access::kNone;
  bool queued = false;  // on the list of pages written in this interval
  bool notice_pending = false;  // the home copy was changed by this node in this interval: a notice is due at its end
  bool shared = false;  // at the home: another node has fetched the page since its last notice, so writes are noticed
  bool prefetched = false;  // elsewhere: the frame was fetched ahead of a processor, and nobody has rights to it yet

  bool operator==(const Page&) const = default;
};

enum class Verb : uint8_t {
  kFetch,        // fill the frame from the home copy, having marked the page there (H5)
  kMakeTwin,     // copy the frame
  kQueue,        // append the page to the list of this interval
  kGrantRead,    // the page was without rights
  kGrantWrite,   // the page was without rights, or has them already
  kUpgrade,      // the page was readable
  kRevokeWrite,  // and wait until it has taken effect on all processors of the node
  kRevoke,       // likewise
  kDeposit,      // put the difference from the twin into the home copy; on_deposited() says what came of it
  kDropTwin,
  kNotice,  // this interval's notices include the page
  kWasted,  // the page was fetched ahead, and nobody came
};

class Actions {
 public:
  void add(Verb verb) {
    MG_CHECK(size_ < verbs_.size());
    verbs_[size_++] = verb;
  }
  [[nodiscard]] const Verb* begin() const { return verbs_.data(); }
  [[nodiscard]] const Verb* end() const { return verbs_.data() + size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] bool contains(Verb verb) const {
    for (Verb each : *this)
      if (each == verb) return true;
    return false;
  }

 private:
  std::array<Verb, 5> verbs_{};
  uint8_t size_ = 0;
};

// A processor's access failed. `is_home`: this node is the page's home.
void on_fault(Page& page, bool is_home, bool is_write, Actions& actions);

// Somebody has faulted on a page some way before this one. `with_rights`: it becomes readable at once; otherwise its
// frame is filled, and its first fault shows that fetching ahead was right ([GeNIMA], B.2).
void on_prefetch(Page& page, bool is_home, bool with_rights, Actions& actions);

// A write notice of another node names the page, and an acquire takes it in.
void on_notice(Page& page, bool is_home, Actions& actions);

// The diff that kDeposit asked for is in the home copy. `changed`: it was not empty.
void on_deposited(Page& page, bool changed);

// The interval ends, in two steps. The first makes the page clean, the second says what the notices say about it. At
// the home, a page that they name is as good as never fetched: every copy of it is gone before its node sees the next
// interval.
void on_interval_end(Page& page, bool is_home, Actions& actions);
void on_clean(Page& page, Actions& actions);

// At the home, when an interval ends and before on_interval_end() of its pages: a node has marked the page.
void on_fetched_elsewhere(Page& page, Actions& actions);

}  // namespace multigrain::hlrc
