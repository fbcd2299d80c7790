/* These are the wrappers of library functions that access memory through pointers. The compiler's pass calls a wrapper
 * where a pointer may be shared. Each wrapper does what the function without the prefix does, with the accesses to
 * shared memory checked. instrument/wrapped_functions.def lists them; those of C++ functions are not declared. The
 * header is written in C, as instrument/abi.h is. */
#ifndef MULTIGRAIN_INSTRUMENT_RUNTIME_MEMORY_FUNCTIONS_H
#define MULTIGRAIN_INSTRUMENT_RUNTIME_MEMORY_FUNCTIONS_H

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MG_WRAPPED(result, name, parameters) \
  __attribute__((visibility("default"))) result __multigrain_##name parameters;
#define MG_WRAPPED_CXX(name)
#include "instrument/wrapped_functions.def"
#undef MG_WRAPPED
#undef MG_WRAPPED_CXX

/* These wrap the compiler's library of atomic operations (libatomic) on objects of any size. `real` is the library's
 * function, which a wrapper calls for a private object: code without checks may use such an object, too. */
void __multigrain_atomic_load(size_t size, const void* object, void* value, int order,
                              void (*real)(size_t, const void*, void*, int));
void __multigrain_atomic_store(size_t size, void* object, const void* value, int order,
                               void (*real)(size_t, void*, const void*, int));
void __multigrain_atomic_exchange(size_t size, void* object, const void* value, void* old_value, int order,
                                  void (*real)(size_t, void*, const void*, void*, int));
bool __multigrain_atomic_compare_exchange(size_t size, void* object, void* expected, const void* desired, int success,
                                          int failure, bool (*real)(size_t, void*, void*, const void*, int, int));

/* Compiled code calls this before it calls a function without checks with `pointer`, which is in the view. It ends the
 * run if the memory there is kept coherent by lines. `function` is the function's address and `name` its name. `file`
 * (NULL: not known) and `line` say where the call is. */
void __multigrain_hand_out(const void* pointer, const void* function, const char* name, const char* file,
                           unsigned line);

#ifdef __cplusplus
}
#endif
#endif
