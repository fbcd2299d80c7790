/* forbid WHAT PROGRAM [ARGUMENTS...]: executes a program in a place where the system call is forbidden with EPERM by a
   seccomp filter, as in a container. WHAT is dispatch (prctl(PR_SET_SYSCALL_USER_DISPATCH)), userfaultfd, membarrier or
   shmat. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, action)
#define UNLESS(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)

int main(int argc, char** argv) {
  const struct {
    const char* name;
    int number;
    int first_argument;
  } all[] = {{"dispatch", SYS_prctl, 59},
             {"userfaultfd", SYS_userfaultfd, -1},
             {"membarrier", SYS_membarrier, -1},
             {"shmat", SYS_shmat, -1}};
  for (size_t i = 0; argc > 2 && i < sizeof all / sizeof *all; ++i) {
    if (strcmp(argv[1], all[i].name) != 0) continue;
    struct sock_filter any[] = {LOAD(nr), UNLESS(all[i].number, 1), RETURN(SECCOMP_RET_ERRNO | EPERM),
                                RETURN(SECCOMP_RET_ALLOW)};
    struct sock_filter one[] = {LOAD(nr),
                                UNLESS(all[i].number, 3),
                                LOAD(args[0]),
                                UNLESS(all[i].first_argument, 1),
                                RETURN(SECCOMP_RET_ERRNO | EPERM),
                                RETURN(SECCOMP_RET_ALLOW)};
    const int has_argument = all[i].first_argument >= 0;
    const struct sock_fprog program = {has_argument ? sizeof one / sizeof *one : sizeof any / sizeof *any,
                                       has_argument ? one : any};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
      perror("seccomp");
      return 99;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 98;
  }
  return 97;
}
