/* This ELF note, written as assembly, says that an object file is counted (mgcc -fmultigrain-count). It stands beside those of
 * the access checks (instrument/note.h), and has a type of its own. */
#ifndef MULTIGRAIN_COUNT_NOTE_H
#define MULTIGRAIN_COUNT_NOTE_H

#include "base/object_note.h"
#include "count/abi.h"

#define MG_COUNT_NOTE_TYPE 3
#define MG_COUNT_NOTE MG_OBJECT_NOTE(MG_COUNT_NOTE_TYPE, MG_COUNT_VERSION)

/* The name of a module's description. mgcc looks for it in files of -flto, in which there is no note yet. */
#define MG_COUNTED_MODULE "multigrain.counted.module." MG_TEXT(MG_COUNT_VERSION)

/* mgcc defines this symbol in a program all of whose object files are counted. */
#define MG_ONLY_COUNTED_CODE "__multigrain_only_counted_code"

#endif
