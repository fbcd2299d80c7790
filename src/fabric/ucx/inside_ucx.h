// The fact that the calling thread is inside UCX and has the lock of worker.h, as a capability without state for
// Clang's analysis (base/thread_annotations.h). A UcxLock (parts.h) acquires it. The lock itself cannot be the
// capability, because it is a member of Parts, which the parts' headers do not know.
#pragma once

#include "base/thread_annotations.h"

namespace multigrain::ucx {

struct MG_CAPABILITY("lock of UCX") InsideUcx {
  // Functions that UCX calls back call this, because UCX calls back only inside a call; so does code that makes a
  // fabric, which no other thread knows yet; and so do lambdas, since the analysis does not see from where they are
  // called.
  void assume_held() const MG_ASSUMES_HELD() {}
};
inline constexpr InsideUcx inside_ucx;  // NOLINT(readability-identifier-naming): in annotations it stands for a lock

}  // namespace multigrain::ucx
