// Makes what nodes share, part by part.
#include "openmp/named_locks.h"
#include "openmp/shared_loops.h"
#include "openmp/tasks.h"
#include "openmp/team.h"
#include "openmp/threadprivate.h"

namespace multigrain::openmp {

void make_parts(Shared& all) {
  all.named_locks = make_named_locks();
  all.loops = make_shared_loops();
  all.tasks = make_task_board();
  all.threadprivate = make_threadprivate_table();
  all.shape.threads = 1;
  all.shape.nodes = 1;
  all.shape.first[1] = 1;
}

}  // namespace multigrain::openmp
