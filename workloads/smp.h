// What the processors of one SMP (a node) share without software shared memory: its private memory is common to them
// by hardware, and these objects synchronise them without a message to another node.
//
// Every node has its own: globals, which the node's first processor opens before a barrier that all pass.
#pragma once

#include <multigrain/multigrain.h>

namespace workloads::smp {

// The caller's number in its SMP: 0 .. mg_processors_per_node()-1.
inline unsigned rank() {
  return mg_processor() % mg_processors_per_node();
}

// A barrier of the SMP's processors. A semaphore lives on the node that created it, unlike a barrier of any count.
class Barrier {
 public:
  void open() {
    lock_ = mg_lock_create();
    for (mg_sem_t& sem : gone_) sem = mg_sem_create(0);
    arrived_ = 0;
    episode_ = 0;
  }
  void close() {
    mg_lock_destroy(lock_);
    for (const mg_sem_t sem : gone_) mg_sem_destroy(sem);
  }
  void wait() {
    const unsigned processors = mg_processors_per_node();
    if (processors == 1) return;
    mg_lock(lock_);
    // Two semaphores take turns, so that a fast processor's next arrival cannot take what a slow one is to go by.
    const mg_sem_t gone = gone_[episode_ % 2];
    const bool last = ++arrived_ == processors;
    if (last) {
      arrived_ = 0;
      ++episode_;
    }
    mg_unlock(lock_);
    if (!last) return mg_sem_wait(gone);
    for (unsigned i = 1; i < processors; ++i) mg_sem_post(gone);
  }

 private:
  mg_lock_t lock_ = 0;
  mg_sem_t gone_[2] = {};
  unsigned arrived_ = 0;
  unsigned episode_ = 0;
};

}  // namespace workloads::smp
