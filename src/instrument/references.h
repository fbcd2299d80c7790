/* The words and the entry of the runtime by which compiled code refers to pages in other nodes' memory (mgcc -fmultigrain-references;
 * docs/internals/placement.md, "References by checks"), beside the entries of abi.h for loads and stores whose names end in _miss, which it calls
 * for pages that are said to be remote, too. They make the access wherever the page is. */
#ifndef MULTIGRAIN_INSTRUMENT_REFERENCES_H
#define MULTIGRAIN_INSTRUMENT_REFERENCES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* remote[(address - MG_FINE_VIEW_BASE) >> shift] is not 0 while the page of a shared address is in another node's memory, and used from
 * there. It is a hint: nothing keeps it true. In a run without such pages `shift` is MG_REFERENCES_NO_TABLE, and the one entry is 0. */
typedef struct mg_references {
  const uint8_t* remote;
  uint64_t shift;
} mg_references;
#define MG_REFERENCES_NO_TABLE 63
extern mg_references __multigrain_references __attribute__((visibility("default")));

/* If the object of 1, 2, 4 or 8 bytes at `address`, which is naturally aligned, equals `expected`, `desired` replaces it; the result is
 * what it was, with zeros above. It keeps registers, as the entries of abi.h whose names end so. */
uint64_t __multigrain_compare_and_swap_miss(void* address, uint64_t size, uint64_t expected, uint64_t desired);

#ifdef __cplusplus
}
#endif
#endif
