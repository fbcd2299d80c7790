// The descriptors that the runtime keeps in a process whose program has descriptors of its own, may close any number that it
// could have, and may have another file at any (src/guest on several nodes). Theirs are kept apart by the limit on numbers:
// the system gives the program none from its hard limit on, and there the runtime's are.
//
// In other processes nothing is divided, and nothing here does anything.
#pragma once

#include <sys/resource.h>

namespace multigrain::own_descriptors {

// Divides the numbers, before the runtime has opened anything. The hard limit of the process is raised for the runtime's share if that
// is permitted; else the program's is lowered by it.
void divide();

// The lowest number of the runtime's own; 0: nothing is divided.
int lowest();

// The same file by a number of the runtime's own that is closed when a program is executed; `fd` is closed. If nothing is divided, `fd`
// itself. -1 with errno, also if `fd` is that.
int keep(int fd);

// The program's limit on numbers (RLIMIT_NOFILE), as it has to see it. Setting: 0 or the code of an error.
rlimit limit_of_program();
int set_limit_of_program(const rlimit& limit);

// The process is the program's alone from now on, as after a fork() the child: the runtime's descriptors are closed, and nothing is
// divided any more. The calling thread is its only one.
void give_up();

// While it exists, a program that is executed finds the limit that the process would have without the runtime.
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
