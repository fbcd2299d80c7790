/** \file
 * Multigrain: shared memory for programs that outgrow one machine. The C interface.
 *
 * A machine is P processors on nodes of C; a node is one process, a processor one of its threads. main() runs on
 * processor 0. Memory from mg_alloc() is shared by all nodes and kept coherent; everything else is private to a node,
 * and is copied from node 0 when processors are started on a node where none runs (as fork() would).
 *
 * The memory model is release consistency: what a processor wrote before a release (mg_unlock, mg_barrier, mg_cond_*,
 * mg_sem_post, mg_flag_set, mg_spawn, mg_join's end, mg_release) is seen by a processor after the matching acquire.
 * Programs without data races that synchronise through this interface behave as on one machine. Mutexes, conditions,
 * barriers and semaphores of POSIX and of C++ work inside one node: one that lies in shared memory ends the run with a
 * sentence when it is locked or waited for in a run of several nodes.
 *
 * Functions that can fail return 0 or a negative errno value, or NULL with errno set; mg_error() gives the sentence.
 * Unless a function says otherwise it may be called from any processor at any time between start and end of main(),
 * and from no signal handler. Asynchronous signal handlers must not touch shared memory either: they may have
 * interrupted the protocol itself.
 */
#ifndef MULTIGRAIN_MULTIGRAIN_H
#define MULTIGRAIN_MULTIGRAIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What the library exports. */
#if defined(__GNUC__)
#define MG_API __attribute__((visibility("default")))
#else
#define MG_API
#endif

/** The version of this interface. Before 1.0 another minor version is another interface (and another library:
 * libmultigrain.so.MAJOR.MINOR). The build reads these three lines; nothing else says which version this is. */
#define MG_VERSION_MAJOR 0
/** See MG_VERSION_MAJOR. */
#define MG_VERSION_MINOR 1
/** See MG_VERSION_MAJOR. */
#define MG_VERSION_PATCH 0

/* --- The machine ------------------------------------------------------------------------------------------------ */

/** Starts the runtime. Programs started by mgrun, and programs linked in the ordinary way, find it started before
 * main(); calling it again is allowed and does nothing. argc and argv may be NULL; nothing is removed from them.
 * Returns 0, or a negative errno value when the environment asks for something impossible. */
MG_API int mg_init(int* argc, char*** argv);

/** The processor that calls: 0 .. mg_processors()-1. Threads that the program created by other means count as the
 * processor that created their node's first one. Async-signal-safe, as are the four below. */
MG_API unsigned mg_processor(void);
MG_API unsigned mg_processors(void);          /**< P */
MG_API unsigned mg_processors_per_node(void); /**< C */
MG_API unsigned mg_node(void);                /**< the caller's node: 0 .. mg_nodes()-1 */
MG_API unsigned mg_nodes(void);               /**< P / C */
MG_API size_t mg_page_size(void);             /**< the unit of page-grain coherence, bytes */

/** The sentence for the calling thread's last failed call, or "" if none. Valid until its next failing call. */
MG_API const char* mg_error(void);

/* --- Processors -------------------------------------------------------------------------------------------------- */

/** What a processor runs; its argument is what mg_spawn() was given. */
typedef void (*mg_function)(void* argument);

/** Starts `function(argument)` on a processor that is idle. A release. If no processor runs on its node, node 0's
 * globals and malloc heap are copied there first. `argument` may point to shared memory, to globals or to the heap,
 * not to the caller's stack unless the processor is on the caller's node. What a global or a block of the heap holds
 * must be there before the first processor of a node starts: to a node that runs already, nothing is copied. Called on
 * node 0 (any of its processors). Returns 0, -EINVAL (no such processor; the argument is a local variable, or private
 * memory that the processor's node has not as it is here), -EBUSY (it runs already, or is 0), -EPERM (called on another
 * node). */
MG_API int mg_spawn(unsigned processor, mg_function function, void* argument);

/** Runs `function(argument)` on every processor, the caller included, and returns when all have ended. Called on
 * processor 0 while no other processor runs. Errors as mg_spawn. */
MG_API int mg_spawn_all(mg_function function, void* argument);

/** Waits until the processor's function has returned; at once if it is idle. An acquire. Called on node 0.
 * Returns 0, -EINVAL, -EPERM. */
MG_API int mg_join(unsigned processor);
/** Waits for every processor but the caller's. */
MG_API int mg_join_all(void);

/** Makes the program's globals and static variables, and those of its own shared libraries, shared memory under the
 * run's page protocol, with the values that they have on node 0: for programs that were written for threads, which share
 * them. From then on what one processor writes there others see, as in memory of mg_alloc(); without this call each node
 * has globals of its own. Not shared are thread-local variables, malloc's memory, and the state of system libraries.
 * Mutexes and atomics in globals work between nodes no better than in other shared memory. Called on node 0 before any
 * other processor is started, while the program has no other thread that uses globals; nothing is done if there is one
 * node, or the second time. Returns 0, -EBUSY (another processor runs), -EPERM (called on another node), -ENOTSUP (pages
 * of more than 4096 bytes; no room; the program has more libraries, or other variables of the C library, than this can
 * deal with: mg_error() says what). Not for signal handlers. */
MG_API int mg_share_globals(void);

/* --- Shared memory ------------------------------------------------------------------------------------------------ */

/** Where the home copies of an allocation's pages are at first. Under hlrc a page's home moves to the node that alone
 * writes the page; under the other protocols it stays. */
typedef enum mg_home {
  MG_HOME_DEFAULT = 0, /**< what MULTIGRAIN_HOME says; else by first touch under hlrc, interleaved otherwise */
  MG_HOME_INTERLEAVED, /**< page i on node i mod nodes */
  MG_HOME_BLOCKED,     /**< the first 1/nodes of the pages on node 0, and so on */
  MG_HOME_NODE,        /**< all on options.node */
  MG_HOME_FIRST_TOUCH  /**< on the node that first accesses the page */
} mg_home;

/** What keeps an allocation coherent. A run has one page protocol, whose accesses faults find: what --protocol says;
 * hlrc or mgs if it says nothing, by whether the nodes share a machine; mgs beside a line protocol. If the program was
 * compiled with mgcc or mg++, it has one line protocol beside it, whose accesses compiled checks find: dszoom, unless
 * --protocol says shasta. Memory of both may be used in one program. Under sc, placement, dszoom, and under shasta unless
 * --model says otherwise, atomics of C11 and C++ are sequentially consistent across nodes, too. */
typedef enum mg_protocol {
  MG_PROTOCOL_DEFAULT = 0, /**< what --protocol says */
  MG_PROTOCOL_MGS,
  MG_PROTOCOL_HLRC,
  MG_PROTOCOL_DSZOOM,
  MG_PROTOCOL_SHASTA,
  MG_PROTOCOL_SC,
  MG_PROTOCOL_PLACEMENT
} mg_protocol;

/** Where pages of an allocation are under the protocol placement. Other protocols take no notice. */
typedef enum mg_place {
  MG_PLACE_BY_POLICY = 0, /**< where the policy of the run (--policy) says */
  MG_PLACE_LOCAL,         /**< in the memories of the nodes that use them, copied and moved */
  MG_PLACE_GLOBAL         /**< in the memory of their home, which all nodes use from afar */
} mg_place;

/** How to allocate. Begin with MG_ALLOC_OPTIONS_INIT, which sets `size` and leaves everything else at its default (0):
 *
 *   mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
 *   options.home = MG_HOME_BLOCKED;
 *
 * `size` is how later versions can add options: members that a program's structure is too short for have their
 * defaults, and a structure that is longer than the library's is accepted as long as the rest is 0. */
typedef struct mg_alloc_options {
  size_t size;          /**< sizeof(mg_alloc_options), bytes, of the header that the caller was compiled with */
  size_t alignment;     /**< a power of two; 0: 16, or the page size for blocks of a page and more */
  mg_home home;         /**< where its home copies are */
  unsigned node;        /**< for MG_HOME_NODE */
  mg_protocol protocol; /**< what keeps it coherent */
  /** Of memory under shasta, and without a meaning under other protocols: how many bytes move between nodes together, a
   * multiple of the line size up to the page size. 0: what --block-size says, or else a block of up to 1,024 bytes as a
   * whole, in lines rounded up to a power of two, and a larger one by lines. */
  size_t block_size;
  uint64_t place; /**< where pages are under placement: an mg_place */
} mg_alloc_options;

/** Options that are the defaults. */
#define MG_ALLOC_OPTIONS_INIT \
  {sizeof(mg_alloc_options), 0, MG_HOME_DEFAULT, 0, MG_PROTOCOL_DEFAULT, 0, MG_PLACE_BY_POLICY}

/** Allocates `size` bytes of zeroed shared memory (options may be NULL). Blocks of a page and more are page-aligned and
 * share no page with another block. Address space is reserved; memory is used when touched. Returns NULL with errno
 * ENOMEM (region used up) or EINVAL (the options' size, or an option that this library does not know; alignment, node,
 * block size, place, a protocol that this run does not have). size 0 gives a unique pointer. */
MG_API void* mg_alloc(size_t size, const mg_alloc_options* options);
/** Frees a block from mg_alloc; from any node. NULL is allowed. Another pointer ends the program with a message. */
MG_API void mg_free(void* block);
/** Whether the address lies in the shared region. Async-signal-safe. */
MG_API int mg_is_shared(const void* address);
/** Whether the address is in that part of the calling thread's stack that is in use: that of a local variable of its own
 * or of its callers, which no other node has. */
MG_API int mg_is_on_stack(const void* address);
/** The node that is home of a shared address, or -1 if it is not allocated, or first-touch and not yet touched. */
MG_API int mg_home_of(const void* address);

/* --- Synchronisation ----------------------------------------------------------------------------------------------
 * Handles are small values that may be stored in shared or private memory and copied. They are created on any
 * processor and used on all. Creating thousands is cheap. */

typedef uint64_t mg_lock_t;    /**< a lock */
typedef uint64_t mg_barrier_t; /**< a barrier */
typedef uint64_t mg_cond_t;    /**< a condition */
typedef uint64_t mg_sem_t;     /**< a counting semaphore */
typedef uint64_t mg_flag_t;    /**< a flag */

/** A new lock, free. Fair between nodes; inside a node handed on a bounded number of times before it leaves. Never 0:
 * 0 is an uninitialised handle, and its use is reported. */
MG_API mg_lock_t mg_lock_create(void);
MG_API void mg_lock_destroy(mg_lock_t lock); /**< the lock must be free and unused from here on; so for all below */
MG_API void mg_lock(mg_lock_t lock);         /**< acquire; not recursive */
MG_API int mg_trylock(mg_lock_t lock);       /**< 1: taken; 0: another holds or wants it. Never waits for a holder */
MG_API void mg_unlock(mg_lock_t lock);       /**< release; by the processor that holds it */

/** A barrier of `count` processors; 0 means all P. */
MG_API mg_barrier_t mg_barrier_create(unsigned count);
MG_API void mg_barrier_destroy(mg_barrier_t barrier); /**< as mg_lock_destroy() */
MG_API void mg_barrier(mg_barrier_t barrier);         /**< release, then acquire */

MG_API mg_cond_t mg_cond_create(void);       /**< a new condition, for which nobody waits */
MG_API void mg_cond_destroy(mg_cond_t cond); /**< as mg_lock_destroy() */
/** Unlocks, waits for a signal, locks again, as pthread_cond_wait does; no spurious wake-ups. */
MG_API void mg_cond_wait(mg_cond_t cond, mg_lock_t lock);
MG_API void mg_cond_signal(mg_cond_t cond);    /**< wakes one processor that waits, if there is one */
MG_API void mg_cond_broadcast(mg_cond_t cond); /**< wakes all that wait */

MG_API mg_sem_t mg_sem_create(unsigned value); /**< a new semaphore with this value */
MG_API void mg_sem_destroy(mg_sem_t sem);      /**< as mg_lock_destroy() */
MG_API void mg_sem_wait(mg_sem_t sem);         /**< acquire: takes one, and waits for it */
MG_API int mg_sem_trywait(mg_sem_t sem);       /**< 1: taken, 0: the value was 0 */
MG_API void mg_sem_post(mg_sem_t sem);         /**< release: adds one */

/** A flag holds a value that only events change: the PAUSE family of PARMACS. Created at 0. */
MG_API mg_flag_t mg_flag_create(void);
MG_API void mg_flag_destroy(mg_flag_t flag);              /**< as mg_lock_destroy() */
MG_API void mg_flag_set(mg_flag_t flag, uint32_t value);  /**< release */
MG_API uint32_t mg_flag_get(mg_flag_t flag);              /**< acquire; does not wait */
MG_API void mg_flag_wait(mg_flag_t flag, uint32_t value); /**< acquire: until the flag equals value */

/** Makes all earlier writes of the caller visible to later acquires of any processor. */
MG_API void mg_release(void);
/** Makes what every processor has released until now visible to the caller. For programs that synchronise by means of
 * their own (sockets, files) between an mg_release() and this; every acquire above does as much. */
MG_API void mg_acquire(void);

/* --- Time -------------------------------------------------------------------------------------------------------- */

/** Nanoseconds since the run began. Async-signal-safe. */
MG_API uint64_t mg_time_ns(void);
/** Forgets the profile so far on every node: call after initialisation, while only the caller runs or at a barrier. */
MG_API void mg_profile_reset(void);
/** Ends the measured phase on every node: the statistics (mgrun --stats) are of what was between the last reset, or the
 * start of main(), and this call. For results that are checked and printed afterwards; call it as mg_profile_reset(),
 * which begins another phase. A second call without a reset in between changes nothing. */
MG_API void mg_profile_stop(void);

#ifdef __cplusplus
}
#endif
#endif
