// This is the interface to access rights of this node's view of the shared region: the primitives that an operating
// system must supply so that a page protocol sees the accesses that it has to see. userfault/ and mprotect/ implement
// it.
//
// Rights belong to the node: every thread of the process has the same. A page has no right (the initial state), read,
// or read and write. An access without right becomes a signal on the accessing thread, which decode() recognises.
//
// Every primitive is async-signal-safe and may be called from any thread, the fault handler included. The caller
// serialises calls for the same page; calls for different pages run at the same time.
//
// Every caller must cope with these facts:
//
//  * There can be a fault on a page whose rights suffice. Another thread may have faulted first; or, with userfault,
//    the kernel took a page-table entry away by itself (it swapped the page out). The answer is to grant what the page
//    should have once more: returning without a grant would fault forever in the second case. Granting again is always
//    harmless.
//  * The kernel does not raise these signals for its own accesses: a system call that is given a page without the right
//    fails with EFAULT. Validate (touch) such buffers first.
//  * A revocation does not stop an operation that already has the page pinned (direct I/O, RDMA, io_uring's fixed
//    buffers). Shared memory must not be given to those.
//  * A fork()ed child has no shared region at all (region.h).
#pragma once

#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/config.h"
#include "base/error.h"
#include "base/ids.h"
#include "memory/region.h"

namespace multigrain {

// This is an access that the view's rights did not allow.
struct Fault {
  std::byte* address = nullptr;  // the exact address, inside the view
  PageId page;
  bool is_write = false;
};

class AccessRights {
 public:
  virtual ~AccessRights() = default;  // the view has no rights afterwards

  // Allows reads.
  // Pre:  no page of the range is writable. The frames hold what may be seen (rights after data).
  // Post: reads through the view succeed; writes fault.
  virtual void grant_read(PageId first, uint64_t count) = 0;

  // Allows reads and writes, whatever was allowed before.
  // Pre:  the frames hold what may be seen.
  // Post: reads and writes through the view succeed.
  virtual void grant_write(PageId first, uint64_t count) = 0;

  // Does the same where most pages have no frames yet, since nothing was written to them: makes these frames, of zeros.
  // Pre:  the pages have no rights. A frame that exists holds what may be seen.
  // Post: as grant_write.
  virtual void grant_write_first(PageId first, uint64_t count) { grant_write(first, count); }

  // Allows writes to pages that are readable. It does what grant_write() does, for callers that know that the pages are
  // readable, and is a system call cheaper where the mechanism distinguishes.
  // Pre:  every page of the range is readable.
  // Post: as grant_write.
  virtual void upgrade(PageId first, uint64_t count) = 0;

  // Takes the right to write, and leaves the right to read.
  // Pre:  every page of the range is readable (or writable).
  // Post: no thread of this process can write the pages through the view any more: page tables are changed and other
  //       processors' TLBs flushed before it returns, so the frames stay as they are (design: rights before data).
  virtual void revoke_write(PageId first, uint64_t count) = 0;

  // Takes all rights. The frames keep their contents.
  // Post: no thread of this process can read or write the pages through the view any more, as for revoke_write.
  virtual void revoke(PageId first, uint64_t count) = 0;

  // These pages of the view were mapped anew (Region::view_again). A mechanism that is registered for mappings is
  // registered again. The pages have no rights, and the caller gives their mapping the greatest protection that the
  // rights can allow from now on.
  virtual void watch_again(PageId /*first*/, uint64_t /*count*/) {}
  // The view of these pages was moved (Region::move_view). From now on the functions above give and take their rights.
  virtual void open_moved(PageId /*first*/, uint64_t /*count*/) {}
  // From now on other code may map parts of the view, at any time: rights to pages there are neither given nor taken.
  virtual void let_others_map() {}

  // From now on pages of the view may be mapped from another node's frames for a time (Region::view_elsewhere). An access to
  // one that is being given its own frame again, and has no rights yet, is a Fault as well.
  virtual void let_pages_be_elsewhere() {}

  // Returns "userfault" or "mprotect".
  [[nodiscard]] virtual std::string_view name() const = 0;

  // Returns the signal that an access without right raises: SIGBUS or SIGSEGV.
  [[nodiscard]] virtual int fault_signal() const = 0;

  // Returns the access if a signal is one without right. nullopt: the signal has another cause (a wild pointer, another
  // signal), and deserves its ordinary effect. `context` is the third argument of a SA_SIGINFO handler.
  [[nodiscard]] virtual std::optional<Fault> decode(int signal, const siginfo_t* info, const void* context) const = 0;
};

// Makes the mechanism that was asked for, on a region without one. kAutomatic is userfault where it works, and mprotect
// elsewhere. The region must outlive the result. `reason`, if given, receives a sentence for --verbose: which mechanism
// was chosen, and why. Errors: kUserfault where it does not work, with the reason. Start-up only.
Result<std::unique_ptr<AccessRights>> choose(AccessMechanism mechanism, const Region& region,
                                             std::string* reason = nullptr);

}  // namespace multigrain
