// Confines to the run what UCX takes from the system: no other user can reach it, no program that a node executes
// inherits it, no core file holds it, and nothing of it is left when a node is killed at any moment.
//
// UCX's transports between the nodes of one host share memory and wake each other. By itself UCX makes files in
// /dev/shm (and unlinks them a little later, so that a node that is killed in between leaves them), System V segments
// that every process of the user's group may attach, and datagram sockets that take messages from any user. It has no
// settings for that. So these calls of its libraries are interposed, as the calls of the gate are (gate.h, which
// installs them):
//
//  shm_open, shm_unlink  make an anonymous file (memfd_create), which has no name, and mode 0600. UCX's peers open it
//                        as /proc/PID/fd/N, which the kernel allows to the same user only.
//  statvfs               says of /dev/shm that there is room, however full it is, because nothing is put there.
//  shmget                is refused. UCX does without it: its System V transport is not used (transports.h), and it
//                        only tries huge pages.
//  socket, bind,         make a pipe in the place of the datagram socket. Its address names the process and the
//  getsockname, sendto,  descriptor; the peer opens it as /proc/PID/fd/N, keeps it open, and writes a byte.
//  recvfrom
//  mmap, malloc, calloc, keep their memory out of core files: it has UCX's buffers, which hold messages and so the keys
//  realloc,              of the pairs.
//  posix_memalign
//  pipe, epoll_create,   make descriptors that are closed when the process executes another program.
//  timerfd_create, open,
//  eventfd
//
// All descriptors, also those that the gate accepts, get numbers of the runtime's own where the program has numbers for
// itself (base/own_descriptors.h).
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

// Closes the doorbells of peers that are kept open. UCX's workers must be gone by then.
void close_doorbells();

}  // namespace multigrain::confine
