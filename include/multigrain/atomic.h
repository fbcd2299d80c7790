/** \file
 * Multigrain: atomic operations on shared memory, in C. mg::atomic and mg::atomic_ref (atomic.hpp) are these in C++.
 *
 * An instruction of the processor is atomic between the threads of one node. Between nodes it is so under sc only, and
 * under a line protocol in code that mgcc compiled. These functions are atomic between all processors under every
 * protocol, whatever compiled the program:
 *
 *   private memory, runs of one node   the instruction
 *   pages under sc, lines              the instruction, when no other node has the page or line
 *   pages under hlrc and mgs           under a lock of Multigrain's that the address chooses: as dear as mg_lock and
 *                                      mg_unlock, and the page may have to come from another node
 *
 * What they mean under release consistency: every operation is sequentially consistent, and each is a release and an
 * acquire. All processors see the operations on all objects in one order; what a processor wrote before an operation,
 * in plain memory too, is seen by a processor after its own operation on the same object, if that comes later in the
 * order. There are no cheaper orders.
 *
 * An object has 1, 2, 4, 8 or 16 bytes (N) and is aligned to them. All accesses to it that may race are by these
 * functions, and of one size; a plain access is right where something else orders it (a barrier, a join). Objects may
 * share a page, and a word, with anything.
 *
 * Every function may be called from any processor and any other thread of a node, at any time between start and end of
 * main(), and from no signal handler if the object is in shared memory. None fails. Code that mgcc compiled for threads
 * (-fmultigrain-threads) makes the same of C11's atomics, so that it needs none of this.
 */
#ifndef MULTIGRAIN_ATOMIC_H
#define MULTIGRAIN_ATOMIC_H

#include <multigrain/multigrain.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** 16 bytes. */
__extension__ typedef unsigned __int128 mg_atomic_16;

/** What mg_atomic_update makes of the value that is there and the operand. Integers wrap. */
typedef enum mg_atomic_change {
  MG_ATOMIC_SET = 0,         /**< the operand */
  MG_ATOMIC_PLUS,            /**< their sum */
  MG_ATOMIC_MINUS,           /**< the value minus the operand */
  MG_ATOMIC_BITAND,          /**< the bits that both have */
  MG_ATOMIC_BITOR,           /**< the bits that either has */
  MG_ATOMIC_BITXOR,          /**< the bits that one of them has */
  MG_ATOMIC_SMALLEST,        /**< the smaller one, unsigned */
  MG_ATOMIC_GREATEST,        /**< the greater one, unsigned */
  MG_ATOMIC_SIGNED_SMALLEST, /**< the smaller one, signed */
  MG_ATOMIC_SIGNED_GREATEST, /**< the greater one, signed */
  MG_ATOMIC_FLOAT_PLUS,      /**< their sum as float (4 bytes) or double (8) */
  MG_ATOMIC_FLOAT_MINUS      /**< the value minus the operand as float or double */
} mg_atomic_change;

/** Returns the value. */
MG_API uint8_t mg_atomic_load_1(const void* object);
MG_API uint16_t mg_atomic_load_2(const void* object);      /**< as mg_atomic_load_1() */
MG_API uint32_t mg_atomic_load_4(const void* object);      /**< as mg_atomic_load_1() */
MG_API uint64_t mg_atomic_load_8(const void* object);      /**< as mg_atomic_load_1() */
MG_API mg_atomic_16 mg_atomic_load_16(const void* object); /**< as mg_atomic_load_1() */

/** Stores the value. */
MG_API void mg_atomic_store_1(void* object, uint8_t value);
MG_API void mg_atomic_store_2(void* object, uint16_t value);      /**< as mg_atomic_store_1() */
MG_API void mg_atomic_store_4(void* object, uint32_t value);      /**< as mg_atomic_store_1() */
MG_API void mg_atomic_store_8(void* object, uint64_t value);      /**< as mg_atomic_store_1() */
MG_API void mg_atomic_store_16(void* object, mg_atomic_16 value); /**< as mg_atomic_store_1() */

/** Changes the value, and returns what was there before. Changes that are no mg_atomic_change, or those of floating-point
 * numbers with another size than 4 or 8, end the program with a sentence. */
MG_API uint8_t mg_atomic_update_1(void* object, uint8_t operand, mg_atomic_change change);
MG_API uint16_t mg_atomic_update_2(void* object, uint16_t operand,
                                   mg_atomic_change change); /**< as mg_atomic_update_1() */
MG_API uint32_t mg_atomic_update_4(void* object, uint32_t operand,
                                   mg_atomic_change change); /**< as mg_atomic_update_1() */
MG_API uint64_t mg_atomic_update_8(void* object, uint64_t operand,
                                   mg_atomic_change change); /**< as mg_atomic_update_1() */
/** As mg_atomic_update_1(). */
MG_API mg_atomic_16 mg_atomic_update_16(void* object, mg_atomic_16 operand, mg_atomic_change change);

/** Stores `desired` if the value is `expected`, and returns what was there before: `expected` if it has stored. */
MG_API uint8_t mg_atomic_compare_exchange_1(void* object, uint8_t expected, uint8_t desired);
/** As mg_atomic_compare_exchange_1(). */
MG_API uint16_t mg_atomic_compare_exchange_2(void* object, uint16_t expected, uint16_t desired);
/** As mg_atomic_compare_exchange_1(). */
MG_API uint32_t mg_atomic_compare_exchange_4(void* object, uint32_t expected, uint32_t desired);
/** As mg_atomic_compare_exchange_1(). */
MG_API uint64_t mg_atomic_compare_exchange_8(void* object, uint64_t expected, uint64_t desired);
/** As mg_atomic_compare_exchange_1(). */
MG_API mg_atomic_16 mg_atomic_compare_exchange_16(void* object, mg_atomic_16 expected, mg_atomic_16 desired);

/** Waits until the object of `size` bytes (1, 2, 4, 8 or 16) has another value than the `size` bytes at `old_value`; at
 * once if it has already. It sleeps until a processor calls mg_atomic_notify() for the object, and looks again then: a
 * value that has changed back before it looks is not seen. Another size ends the program with a sentence. */
MG_API void mg_atomic_wait(const void* object, size_t size, const void* old_value);
/** Wakes all threads of all nodes that wait for the object: called after the change for which they wait. It takes a lock
 * that the address chooses. */
MG_API void mg_atomic_notify(const void* object);

#ifdef __cplusplus
}
#endif
#endif
