/* Says that it has access checks, of a version that there was before (docs/internals/fine-grain.md). */
#include <multigrain/multigrain.h>

__asm__(
    ".pushsection .note.multigrain,\"a\",@note\n.p2align 2\n.long 11, 4, 1\n.asciz \"Multigrain\"\n.byte 0\n"
    ".long 1\n.popsection\n");

int main(void) {
  return mg_processors() == 0;
}
