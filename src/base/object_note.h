/* An ELF note by which an object file says how mgcc has compiled it, written as assembly: the compiler's passes put it into each
 * module, and runtime/private/object_notes.h reads it. Types are 1 and 2 for access checks and 4 for compiled translation
 * (instrument/note.h), 3 for counted code (count/note.h), and 5 for the race detector's calls (races/compiled/abi.h). */
#ifndef MULTIGRAIN_BASE_OBJECT_NOTE_H
#define MULTIGRAIN_BASE_OBJECT_NOTE_H

#define MG_TEXT_OF(number) #number
#define MG_TEXT(number) MG_TEXT_OF(number)
/* namesz, descsz, type, name, padding, desc */
#define MG_OBJECT_NOTE(type, version)                                             \
  ".pushsection .note.multigrain,\"a\",@note\n.p2align 2\n.long 11, 4, " MG_TEXT( \
      type) "\n.asciz \"Multigrain\"\n.byte 0\n.long " MG_TEXT(version) "\n.popsection\n"

#endif
