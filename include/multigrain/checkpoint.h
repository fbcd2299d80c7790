/** \file
 * Checkpoints of a run: its shared memory is written to a folder, and another run goes on from there. They are for a program that
 * says what is to be kept, and where. One that calls none of these functions is kept as it is, at its barriers, with private memory,
 * stacks and registers (docs/user/checkpoints.md).
 *
 *   mgrun --nodes 4 --checkpoint DIR --every 60s ./program      writes checkpoints where the program calls mg_checkpoint()
 *   mgrun --nodes 4 --restart DIR ./program                     goes on from the last one
 *
 * A checkpoint has all shared memory that the program has allocated, at the same addresses. It has nothing else: globals,
 * malloc's memory, stacks, and locks, barriers and other objects of multigrain.h are as at the start of any run. So a program
 * keeps in shared memory how far it has come, and begins like this:
 *
 *   struct state* s = mg_restored();
 *   if (s == NULL) s = begin();          // allocates with mg_alloc(), and fills in
 *   s->lock = mg_lock_create();          // in both cases: handles of an earlier run are of no use
 */
#ifndef MULTIGRAIN_CHECKPOINT_H
#define MULTIGRAIN_CHECKPOINT_H

#include <multigrain/multigrain.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Writes a checkpoint, if the run has --checkpoint and the time that --every says has passed since the last one. Called by
 * every processor of the machine, as mg_barrier() of a barrier of all of them: it is a release and an acquire, and returns
 * when all have called it and the checkpoint is on the disk. (Without --checkpoint it returns 0 at once, and is no barrier.) No
 * processor may hold a lock, and no other thread of the program may use shared memory meanwhile. `root` is what mg_restored()
 * will return: an address in shared memory, from which the program finds all that it needs. That of processor 0 counts.
 * Returns, on every processor alike, 1 if a checkpoint was written, 0 if it was not time for one, or a negative errno value if
 * it could not be written: then the run has said why, the last good checkpoint is still there, and the program may go on.
 * -EINVAL: `root` is not in shared memory; -ENOTSUP: the program shares its globals (mg_share_globals); -EIO: the disk is
 * full, or the folder cannot be written. Not for signal handlers. */
MG_API int mg_checkpoint(void* root);

/** The root of the checkpoint from which the run was restarted (mgrun --restart), or NULL if it was not. All shared memory of
 * the checkpoint is there before main(), on every node, and may be used and freed. */
MG_API void* mg_restored(void);

#ifdef __cplusplus
}
#endif
#endif
