// What functions begin and end with that are written in assembly: a file puts MG_FUNCTION_MACROS in front of its assembly,
// and MG_END_OF_FUNCTION_MACROS behind it, because the assembler knows macros to the end of all that it assembles.
//
//   MULTIGRAIN_BEGIN name, MULTIGRAIN_END name   around a global function, which may be called indirectly
//   MULTIGRAIN_PUSH register, MULTIGRAIN_POP register   in a function that has no frame pointer
#pragma once

#define MG_FUNCTION_MACROS            \
  ".macro MULTIGRAIN_BEGIN name\n"    \
  "  .text\n"                         \
  "  .globl \\name\n"                 \
  "  .type \\name, @function\n"       \
  "  .p2align 4\n"                    \
  "\\name:\n"                         \
  "  .cfi_startproc\n"                \
  "  endbr64\n"                       \
  ".endm\n"                           \
  ".macro MULTIGRAIN_END name\n"      \
  "  .cfi_endproc\n"                  \
  "  .size \\name, . - \\name\n"      \
  ".endm\n"                           \
  ".macro MULTIGRAIN_PUSH register\n" \
  "  pushq %\\register\n"             \
  "  .cfi_adjust_cfa_offset 8\n"      \
  ".endm\n"                           \
  ".macro MULTIGRAIN_POP register\n"  \
  "  popq %\\register\n"              \
  "  .cfi_adjust_cfa_offset -8\n"     \
  ".endm\n"

#define MG_END_OF_FUNCTION_MACROS \
  ".purgem MULTIGRAIN_BEGIN\n"    \
  ".purgem MULTIGRAIN_END\n"      \
  ".purgem MULTIGRAIN_PUSH\n"     \
  ".purgem MULTIGRAIN_POP\n"
