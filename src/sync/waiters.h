// First-in first-out queues of waiting processors, for the engines of src/sync.
//
// A processor waits for at most one thing at a time, so the links of all queues of a node are one array with an entry
// for each possible waiter of the machine. A queue is two indices into it: nothing is allocated, a zeroed queue is
// empty, and the engines remain values (a test that explores states copies the array with them).
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "base/ids.h"

namespace multigrain {

// One place to wait: a slot of one node. 0 is nobody.
using WaiterId = StrongId<struct WaiterTag, uint32_t>;
inline constexpr WaiterId kNobody{0};

struct WaiterLink {
  WaiterId next;          // the one that came after
  uint32_t wanted = 0;    // what it waits for: the value of a flag; of a lock, whether only for an answer
  Nanoseconds since = 0;  // when it came, in virtual time; where time is the wall's, 0: the order of push() decides
};

// Indexed by WaiterId. An entry belongs to the queue that its waiter is in and is guarded by that queue's guard.
using WaiterLinks = std::span<WaiterLink>;

struct WaiterQueue {
  WaiterId head;
  WaiterId tail;

  [[nodiscard]] bool empty() const { return head == kNobody; }

  // Behind all that have not come later.
  void push(WaiterLinks links, WaiterId waiter, uint32_t wanted = 0, Nanoseconds since = 0) {
    WaiterId before = tail;
    if (!empty() && links[tail.value].since > since) {
      before = kNobody;
      for (WaiterId at = head; links[at.value].since <= since; at = links[at.value].next) before = at;
    }
    WaiterId& place = before == kNobody ? head : links[before.value].next;
    links[waiter.value] = {place, wanted, since};
    if (before == tail) {
      links[waiter.value].next = kNobody;
      tail = waiter;
    }
    place = waiter;
  }

  // The queue must not be empty.
  WaiterId pop(WaiterLinks links) {
    const WaiterId first = head;
    head = links[first.value].next;
    if (head == kNobody) tail = kNobody;
    return first;
  }

  // Removes the waiters that want `value`, oldest first, and calls visit(WaiterId) for each.
  template <typename Visit>
  void take_wanting(WaiterLinks links, uint32_t value, Visit&& visit) {
    WaiterQueue rest;
    while (!empty()) {
      const WaiterId first = pop(links);
      const uint32_t wanted = links[first.value].wanted;
      if (wanted == value) {
        visit(first);
      } else {
        rest.push(links, first, wanted, links[first.value].since);
      }
    }
    *this = rest;
  }
};

}  // namespace multigrain
