/* This ELF note, written as assembly, says that an object file has access checks, and of which version of their
 * contract (docs/internals/fine-grain.md). The compiler's pass puts it into each module that it checks. Programs with
 * checks written out by hand, as in tests and mgbench, include it themselves. */
#ifndef MULTIGRAIN_INSTRUMENT_NOTE_H
#define MULTIGRAIN_INSTRUMENT_NOTE_H

#include "base/object_note.h"
#include "instrument/abi.h"

#define MG_FINE_NOTE_OF(type) MG_OBJECT_NOTE(type, MG_FINE_VERSION)
#define MG_FINE_NOTE MG_FINE_NOTE_OF(1)
/* This one says in addition that some code of the object file may access shared memory without a check: inline assembly,
 * or a function of a library that is handed a pointer. */
#define MG_FINE_NOTE_OF_GAPS MG_FINE_NOTE_OF(2)

/* This one says that the object file has compiled translation, and of which version of its contract. */
#define MG_TRANSLATE_VERSION 1
#define MG_TRANSLATE_NOTE_TYPE 4
#define MG_TRANSLATE_NOTE MG_OBJECT_NOTE(MG_TRANSLATE_NOTE_TYPE, MG_TRANSLATE_VERSION)

/* mgcc defines this symbol in a program all of whose object files have the first note. */
#define MG_FINE_ONLY_CHECKED_CODE "__multigrain_only_checked_code"

#endif
