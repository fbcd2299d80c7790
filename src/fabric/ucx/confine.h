// What UCX takes from the system, confined to the run: no other user can reach it, no program that a node executes
// inherits it, no core file holds it, and nothing of it is left when a node is killed at any moment.
//
// UCX's transports between the nodes of one host share memory and wake each other. Left to itself UCX makes files in
// /dev/shm (and unlinks them a little later: a node that is killed in between leaves them), System V segments that
// everybody of the user's group may attach, and datagram sockets that take messages from any user. It has no settings
// for that. So these calls of its libraries go elsewhere, as those of the gate do (gate.h, which puts them in):
//
//  shm_open, shm_unlink  the file is anonymous (memfd_create): it has no name, and mode 0600. UCX's peers open it as
//                        /proc/PID/fd/N, which the kernel allows to the same user only.
//  statvfs               of /dev/shm: there is room, however full it is; nothing is put there.
//  shmget                is refused. UCX does without: its System V transport is not used (transports.h), and its huge
//                        pages are an attempt.
//  socket, bind,         the datagram socket is a pipe instead, whose address names the process and the descriptor.
//  getsockname, sendto,  The peer opens that as /proc/PID/fd/N, keeps it open, and writes a byte.
//  recvfrom
//  mmap, malloc, calloc, buffers hold messages, and those the keys of the pairs: not for core files.
//  realloc,
//  posix_memalign
//  pipe, epoll_create,   are closed when the process executes another program.
//  timerfd_create, open
#pragma once

#include <span>

#include "base/error.h"
#include "fabric/ucx/interposed_calls.h"

namespace multigrain::confine {

// The calls above, which are to be interposed in UCX's libraries.
[[nodiscard]] std::span<const Interposition> interpositions();

// Checks that `interposed` has all the calls that the transports of this UCX need. Error: UCX makes other calls than
// those that are known.
[[nodiscard]] Status check(const InterposedCalls& interposed);

// Closes what is kept open of peers: after UCX's workers are gone.
void close_doorbells();

}  // namespace multigrain::confine
