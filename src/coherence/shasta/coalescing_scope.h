// A scope in which messages of Shasta about blocks next to each other travel as one.
#pragma once

#include "coherence/shasta/driver.h"

namespace multigrain::shasta {

// The thread that creates the object holds the driver's lock as long as it exists, and so waits for nothing meanwhile. What is kept back
// goes out when the object ends, or before the next message to the same node that cannot join it. So the messages that this
// node sends to another one arrive in the order in which the transitions sent them. To the transitions, messages that were kept back
// were longer on their way, and messages that came together arrived one right after the other.
class Driver::CoalescingScope {
 public:
  explicit CoalescingScope(Driver& driver);
  ~CoalescingScope();
  CoalescingScope(const CoalescingScope&) = delete;
  CoalescingScope& operator=(const CoalescingScope&) = delete;

 private:
  Driver& driver_;
  const MessageBatch batch_;
};

}  // namespace multigrain::shasta
