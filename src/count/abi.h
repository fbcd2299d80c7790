/* This header declares what counted code (mgcc -fmultigrain-count) and the runtime agree on. Counted code adds up how long
 * the emulated processor would have taken for what the program has executed. What an instruction costs is not compiled in:
 * each module carries a table of how many instructions of which class its pieces of code execute, and the runtime computes the
 * costs of these pieces from the prices of the machine that is emulated. The header is written in C, because the compiler's
 * pass and compiled code share it with the runtime. */
#ifndef MULTIGRAIN_COUNT_ABI_H
#define MULTIGRAIN_COUNT_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this contract. The number has no suffix, because it is also written into assembly. */
#define MG_COUNT_VERSION 2

/* The classes of instructions. An operation on a vector is as many instructions as the vector has elements. */
enum mg_count_class {
  MG_COUNT_INTEGER, /* addition, logic, shift, comparison, and other simple instructions */
  MG_COUNT_MULTIPLY,
  MG_COUNT_DIVIDE,
  MG_COUNT_LOAD,
  MG_COUNT_STORE,
  MG_COUNT_BRANCH,         /* with the comparison that it depends on */
  MG_COUNT_CALL,           /* with the return; calls of library functions have prices of their own */
  MG_COUNT_ATOMIC,         /* read-modify-write operations and fences */
  MG_COUNT_FLOAT_ADD,      /* also subtraction and comparison */
  MG_COUNT_FLOAT_MULTIPLY, /* also a multiplication and an addition in one */
  MG_COUNT_FLOAT_DIVIDE,
  MG_COUNT_FLOAT_SQRT,
  MG_COUNT_CONVERT, /* between integers and floating-point numbers, or between floating-point numbers */
  /* What -fmultigrain-checks adds to a load or a store that may be of shared memory, and to an iteration of a loop. These are
   * prices of the machine, and not of its instructions (base/machine_costs.h). */
  MG_COUNT_LOAD_CHECK,
  MG_COUNT_STORE_CHECK,
  MG_COUNT_POLL,
  MG_COUNT_CLASSES,
  /* Behind the classes of instructions: accesses that compiled code translates (mgcc -fmultigrain-translate), through a pointer,
   * and of an element of an array. */
  MG_COUNT_TRANSLATE_POINTER = MG_COUNT_CLASSES,
  MG_COUNT_TRANSLATE_ARRAY,
  MG_COUNT_COLUMNS
};

/* So many of the classes are instructions. */
#define MG_COUNT_INSTRUCTIONS MG_COUNT_LOAD_CHECK

/* Calls of one library function that belong to the cost of an entry. */
typedef struct mg_counted_call {
  const char* name;
  uint32_t entry; /* index into `costs` */
  uint32_t calls; /* how often the fixed price counts; 0 in an entry that is the price of bytes alone */
  uint64_t bytes; /* how often the price of a byte counts */
} mg_counted_call;

/* A module (a source file, or several with -flto). The first two members are the same in all versions. */
typedef struct mg_counted_module {
  uint32_t version; /* MG_COUNT_VERSION of the compiler */
  const char* source;
  uint32_t entries;
  uint32_t number_of_calls;
  const uint32_t (*instructions)[MG_COUNT_COLUMNS]; /* of each entry */
  uint64_t*
      costs; /* of each entry, in picoseconds; 0 until the runtime writes them, which it does if prices are installed */
  const mg_counted_call* calls;
  struct mg_counted_module* next; /* the runtime's */
} mg_counted_module;

/* A module's constructor and destructor call these. */
void __multigrain_count_register(mg_counted_module* module) __attribute__((visibility("default")));
void __multigrain_count_unregister(mg_counted_module* module) __attribute__((visibility("default")));

/* How far the calling thread has come. Counted code adds to `now` by a load, an addition and a store without a call between
 * them, and keeps what it has not yet added, at most one iteration of a loop that polls, in a register. So a signal handler
 * may read `now`; only what runs in a call, such as a poll, may change it. */
typedef struct mg_count {
  uint64_t now;   /* picoseconds that this thread has counted */
  uint64_t limit; /* a poll calls the runtime if `now` is not less; UINT64_MAX if nobody wants polls, as at first */
} mg_count;
extern __thread mg_count __multigrain_count __attribute__((visibility("default"), tls_model("initial-exec")));

/* Counted code calls this, by the convention preserve_all, where a poll finds that now >= limit. */
void __multigrain_count_poll(void) __attribute__((visibility("default")));

#ifdef __cplusplus
}
#endif
#endif
