// First-in first-out queues of waiting processors, which the engines of src/sync use.
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

// Names a waiter by its slot: a slot of one node. 0 names no waiter.
using WaiterId = StrongId<struct WaiterTag, uint32_t>;
inline constexpr WaiterId kNobody{0};

struct WaiterLink {
  WaiterId next;  // the waiter that came after this one
  // The value of a flag that the waiter wants; for a waiter of a lock, whether it wants only an answer (a try).
  uint32_t wanted = 0;
  // When the waiter came, in virtual time. Elsewhere it is 0, and the order of the calls of push() decides.
  Nanoseconds since = 0;
};

// Indexed by WaiterId. An entry belongs to the queue that its waiter is in, and the lock that guards that queue guards
// the entry too. No annotation says so, because which lock that is changes from wait to wait.
using WaiterLinks = std::span<WaiterLink>;

struct WaiterQueue {
  WaiterId head;
  WaiterId tail;

  [[nodiscard]] bool empty() const { return head == kNobody; }

  // Puts the waiter behind all that have not come later than it.
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
