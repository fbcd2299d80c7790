/* The entries of the runtime by which compiled code gets the right to store to several lines at once, beside those of
 * abi.h, and by which it gives up such rights. Like those they keep registers. The memory must be shared, and `size`, in
 * bytes, at most 64. They may wait for other nodes and run message handlers meanwhile, unless their comments say that they do
 * not; then every hazard that the caller has published is cleared first. Where nodes take the lines from each other again and
 * again, each waits before it asks again, each time longer, and not as long as others. */
#ifndef MULTIGRAIN_INSTRUMENT_HOLDS_H
#define MULTIGRAIN_INSTRUMENT_HOLDS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Compiled code calls these, and the entries of stores in abi.h, by entries that take the address in r11, return in r11, and change
 * no other register. Those of stores take the value from the register that they are named after, of which there is one for each general
 * register but rsp and r11, and for the first 16 vector registers:
 *
 *   __multigrain_store_SIZE_REGISTER, __multigrain_store_SIZE_REGISTER_in_loop
 *
 * and those of runs have the size, 1 to 64, in their names. They do what the functions of the same names without it do:
 *
 *   __multigrain_hold_SIZE_in_loop, __multigrain_hold_again_SIZE_in_loop, __multigrain_check_SIZE_in_loop
 *   __multigrain_begin_stores_SIZE, __multigrain_try_stores_SIZE */

/* Makes all lines of [address, address + size) exclusive, and returns with hazard 0 published for stores to them: the caller
 * stores there, and then clears the hazard. */
void __multigrain_begin_stores(void* address, uint64_t size);
/* Publishes hazard 0 for stores to the lines of [address, address + size), and returns 1 if this node may store to all of
 * them: the caller stores there, and then clears the hazard. Otherwise returns 0, with no hazard published. Does not wait. */
uint64_t __multigrain_try_stores(void* address, uint64_t size);
/* Publishes the loop hazard, unless it is published, and makes all lines of [address, address + size) exclusive. While the
 * hazard is published this node may store to them. Returns the node's rights epoch, in which entries of the rights cache are
 * valid while the hazard is published, or MG_FINE_CACHE_UNUSABLE. */
uint64_t __multigrain_hold_in_loop(const void* address, uint64_t size);
/* Does the same if the memory is shared. Returns MG_FINE_NO_LOOP_HAZARD, with no hazard published, if it is private. No hazard
 * may be published when this is called. */
uint64_t __multigrain_hold_again_in_loop(const void* address, uint64_t size);
/* Clears the loop hazard, and then handles messages if any wait and no other hazard is published. */
void __multigrain_clear_and_poll(void);

#ifdef __cplusplus
}
#endif
#endif
