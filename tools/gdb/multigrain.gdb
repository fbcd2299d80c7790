# For programs of Multigrain: gdb -x multigrain.gdb ./program (docs/user/debugging.md)
#
# A page that is not here is found by SIGBUS, which the library handles: no reason to stop. A wild pointer ends in
# SIGSEGV, and gdb stops there. With --access mprotect, and in virtual time, SIGSEGV serves the library, too; then say
#   handle SIGSEGV nostop noprint pass
handle SIGBUS nostop noprint pass
