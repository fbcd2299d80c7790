/* This header declares what code that mgcc compiled with -fmultigrain-threads uses of the runtime: the pass
 * (src/threads/pass) writes the calls, and src/threads is the runtime's side. It is written in C, so that all compiled
 * code can include it. */
#ifndef MULTIGRAIN_THREADS_ABI_H
#define MULTIGRAIN_THREADS_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MG_THREADS_API __attribute__((visibility("default")))

/* Every module of such a program defines this constant. The library only refers to it, and so finds out whether the
 * program is one: its address is not null then. */
#define MG_THREADS_MARKER "multigrain_program_of_threads"

/* The pointer to the top of the calling thread's part of the shared stack, where the pass puts local variables whose
 * addresses other threads may get. It grows downwards. */
#define MG_THREADS_STACK_POINTER "__safestack_unsafe_stack_ptr"

/* What an update does with the object's value and its operand: the operations of LLVM's instruction atomicrmw. Of the
 * floating-point operations there are those of float (in functions for 4 bytes) and of double (8 bytes). */
enum mg_atomic_operation {
  MG_ATOMIC_EXCHANGE,
  MG_ATOMIC_ADD,
  MG_ATOMIC_SUB,
  MG_ATOMIC_AND,
  MG_ATOMIC_NAND,
  MG_ATOMIC_OR,
  MG_ATOMIC_XOR,
  MG_ATOMIC_MAX,
  MG_ATOMIC_MIN,
  MG_ATOMIC_UMAX,
  MG_ATOMIC_UMIN,
  MG_ATOMIC_FADD,
  MG_ATOMIC_FSUB,
  MG_ATOMIC_FMAX,
  MG_ATOMIC_FMIN,
  MG_ATOMIC_INC_WRAP,
  MG_ATOMIC_DEC_WRAP
};

__extension__ typedef unsigned __int128 mg_uint128;

/* Atomic operations on objects of N bytes, aligned to N, wherever they are. All are sequentially consistent. They may
 * wait for other nodes, and are not for signal handlers if the object is in shared memory (atomics.h). An update
 * returns the value that was there before. A compare-exchange returns the value that was there; it has stored `desired`
 * if that is `expected`. */
#define MG_THREADS_ATOMICS(N, T)                                                                       \
  MG_THREADS_API T __multigrain_threads_load_##N(const void* object);                                  \
  MG_THREADS_API void __multigrain_threads_store_##N(void* object, T value);                           \
  MG_THREADS_API T __multigrain_threads_update_##N(void* object, T operand, enum mg_atomic_operation); \
  MG_THREADS_API T __multigrain_threads_compare_exchange_##N(void* object, T expected, T desired);
MG_THREADS_ATOMICS(1, uint8_t)
MG_THREADS_ATOMICS(2, uint16_t)
MG_THREADS_ATOMICS(4, uint32_t)
MG_THREADS_ATOMICS(8, uint64_t)
MG_THREADS_ATOMICS(16, mg_uint128)
#undef MG_THREADS_ATOMICS

/* The same for objects of any size and alignment, in the place of the functions of the compiler's library (libatomic),
 * which are handed over in `real`. */
MG_THREADS_API void __multigrain_threads_atomic_load(size_t size, const void* object, void* value, int order,
                                                     void (*real)(size_t, const void*, void*, int));
MG_THREADS_API void __multigrain_threads_atomic_store(size_t size, void* object, const void* value, int order,
                                                      void (*real)(size_t, void*, const void*, int));
MG_THREADS_API void __multigrain_threads_atomic_exchange(size_t size, void* object, const void* value, void* old_value,
                                                         int order,
                                                         void (*real)(size_t, void*, const void*, void*, int));
MG_THREADS_API bool __multigrain_threads_atomic_compare_exchange(size_t size, void* object, void* expected,
                                                                 const void* desired, int success, int failure,
                                                                 bool (*real)(size_t, void*, void*, const void*, int,
                                                                              int));

/* Fences: code calls the first before a fence of release order, and the second behind one of acquire order. */
MG_THREADS_API void __multigrain_threads_release_fence(void);
MG_THREADS_API void __multigrain_threads_acquire_fence(void);

/* Static variables of functions (guards.cpp). The first function returns the first byte of a variable's guard: not 0 if
 * the variable is initialised, and the calling thread sees what its initialiser has written. The others are in the place
 * of __cxa_guard_acquire and its like of the C++ library, which are handed over in `real`. */
MG_THREADS_API uint8_t __multigrain_threads_load_guard(const void* guard);
MG_THREADS_API int __multigrain_threads_guard_acquire(void* guard, int (*real)(void*));
MG_THREADS_API void __multigrain_threads_guard_release(void* guard, void (*real)(void*));
MG_THREADS_API void __multigrain_threads_guard_abort(void* guard, void (*real)(void*));

#ifdef __cplusplus
}
#endif
#endif
