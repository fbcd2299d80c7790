// That the calling thread is inside UCX, with the lock of worker.h: as a capability without state, which a UcxLock
// (parts.h) acquires, for Clang's analysis (base/thread_annotations.h). The lock itself is of Parts, which the parts'
// headers do not know.
#pragma once

#include "base/thread_annotations.h"

namespace multigrain::ucx {

struct MG_CAPABILITY("lock of UCX") InsideUcx {
  // In what UCX calls back, which it does only inside a call; while a fabric is made, which no other thread knows yet; and in
  // a lambda, of which the analysis does not see from where it is called.
  void assume_held() const MG_ASSUMES_HELD() {}
};
inline constexpr InsideUcx inside_ucx;  // NOLINT(readability-identifier-naming): in annotations it stands for a lock

}  // namespace multigrain::ucx
