/* This ELF note, written as assembly, says that an object file has access checks, and of which version of their
 * contract (docs/internals/fine-grain.md). The compiler's pass puts it into each module that it checks. Programs with
 * checks written out by hand, as in tests and mgbench, include it themselves. */
#ifndef MULTIGRAIN_INSTRUMENT_NOTE_H
#define MULTIGRAIN_INSTRUMENT_NOTE_H

#include "instrument/abi.h"

#define MG_FINE_TEXT_OF(number) #number
#define MG_FINE_TEXT(number) MG_FINE_TEXT_OF(number)
/* namesz, descsz, type, name, padding, desc */
#define MG_FINE_NOTE_OF(type)                                                          \
  ".pushsection .note.multigrain,\"a\",@note\n.p2align 2\n.long 11, 4, " MG_FINE_TEXT( \
      type) "\n.asciz \"Multigrain\"\n.byte 0\n.long " MG_FINE_TEXT(MG_FINE_VERSION) "\n.popsection\n"
#define MG_FINE_NOTE MG_FINE_NOTE_OF(1)
/* This one says in addition that some code of the object file may access shared memory without a check: inline assembly,
 * or a function of a library that is handed a pointer. */
#define MG_FINE_NOTE_OF_GAPS MG_FINE_NOTE_OF(2)

/* This one says that the object file has compiled translation, and of which version of its contract. (Type 3 is that of
 * counted code, count/note.h.) */
#define MG_TRANSLATE_VERSION 1
#define MG_TRANSLATE_NOTE_TYPE 4
#define MG_TRANSLATE_NOTE                                                              \
  ".pushsection .note.multigrain,\"a\",@note\n.p2align 2\n.long 11, 4, " MG_FINE_TEXT( \
      MG_TRANSLATE_NOTE_TYPE) "\n.asciz \"Multigrain\"\n.byte 0\n.long " MG_FINE_TEXT(MG_TRANSLATE_VERSION) "\n.popsection\n"

/* mgcc defines this symbol in a program all of whose object files have the first note. */
#define MG_FINE_ONLY_CHECKED_CODE "__multigrain_only_checked_code"

#endif
