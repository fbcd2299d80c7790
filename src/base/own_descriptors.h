// This keeps the runtime's descriptors in a process whose program has descriptors of its own, may close any number that
// it could have, and may have another file at any number (src/guest on several nodes). The limit on numbers keeps the
// two apart: the system gives the program no number from its hard limit on, and the runtime's numbers are there.
//
// In other processes the numbers are not divided, and these functions do nothing.
#pragma once

#include <sys/resource.h>

namespace multigrain::own_descriptors {

// Divides the numbers, before the runtime has opened anything. The hard limit of the process is raised by the runtime's
// share if that is permitted; otherwise the program's limit is lowered by it.
void divide();

// Returns the lowest of the runtime's own numbers; 0 if the numbers are not divided.
int lowest();

// Returns a copy of the descriptor under a number of the runtime's own, or under any if the numbers are not divided; it is
// closed when a program is executed. No descriptor is closed for it: that would take away locks that the process has on the
// file (fcntl(2), F_SETLK). Returns -1 with errno on failure.
int keep_copy(int fd);

// Returns the same file under a number of the runtime's own, which is closed when a program is executed, and closes
// `fd`. If the numbers are not divided, returns `fd` itself. Returns -1 with errno on failure, or if `fd` is -1.
int keep(int fd);

// These are the program's limit on numbers (RLIMIT_NOFILE), as the program has to see it. Setting returns 0 or an error
// code.
rlimit limit_of_program();
int set_limit_of_program(const rlimit& limit);

// The process belongs to the program alone from now on, like the child after a fork(): the runtime's descriptors are
// closed, and the numbers are not divided any more. The calling thread must be the only one.
void give_up();

// Does the same in a child after a fork(), but this descriptor of any number stays open, under a number of the runtime's own,
// and the numbers stay divided until give_up(). Returns the number, or -1 with errno.
int give_up_but(int fd);

// While this exists, a program that is executed finds the limit that the process would have without the runtime.
class LimitForExec {
 public:
  LimitForExec();
  ~LimitForExec();
  LimitForExec(const LimitForExec&) = delete;
  LimitForExec& operator=(const LimitForExec&) = delete;

 private:
  rlimit before_{};
};

}  // namespace multigrain::own_descriptors
