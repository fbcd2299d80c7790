// What dszoom/shell.cpp stops at, built for dszoom_shell_explorer_test: before the processor that runs accesses a word
// that others access as well, everybody else may take steps.
#pragma once

namespace multigrain::dszoom::exploring_shell {

void step(const void* address);
void step_of_lock(const void* lock);

template <typename Lock>
void wait_for(Lock& lock) {
  do step_of_lock(&lock);
  while (!lock.try_lock());
  lock.unlock();
}

}  // namespace multigrain::dszoom::exploring_shell

#define MULTIGRAIN_DSZOOM_STEP(address) ::multigrain::dszoom::exploring_shell::step(address)
#define MULTIGRAIN_DSZOOM_LOCK_STEP(lock) ::multigrain::dszoom::exploring_shell::wait_for(lock)
