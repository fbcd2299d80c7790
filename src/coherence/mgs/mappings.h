// The translation tables of a node's mapping domains, as the driver uses them where compiled code translates addresses: a
// table for each processor, so that each maps a page, and faults on it, by itself ([MGS], sections 3.2.1 and 4.2.1). Without
// them the node's rights in the view are the table of all its processors, who are one domain.
#pragma once

#include "base/ids.h"
#include "coherence/mgs/states.h"

namespace multigrain::mgs {

// All functions but domain() are called with the page's lock held.
class Mappings {
 public:
  virtual ~Mappings() = default;

  // Returns the domain of the calling thread.
  [[nodiscard]] virtual DomainId domain() = 0;
  // Lets the domain read the page, or read and write it. Never takes a right away. The frame holds what may be seen.
  virtual void map(DomainId domain, PageId page, bool writable) = 0;
  // Takes all rights to the page from these domains. When it returns, no processor of theirs is in the middle of an access
  // that it looked up before (PINV, PINV_ACK).
  virtual void unmap(DomainSet domains, PageId page) = 0;
};

}  // namespace multigrain::mgs
