divert(-1)
Multigrain as an ANL/PARMACS environment: SPLASH, SPLASH-2 and Splash-3 sources, unmodified, become C for it by

    m4 parmacs.m4 program.C > program.c        and so for each header: m4 parmacs.m4 code.H > code.h

and are compiled and linked with multigrain (pkg-config --cflags --libs multigrain).

The processes of a program are processors of the run: main() is processor 0, the i-th CREATE starts processor i, on the
node where it is. It sees the malloc heap as it was when its node was started, and shares G_MALLOC memory. Whether it
shares the globals depends on the dialect of CREATE:
  CREATE(f)             is for processes, as fork() makes them: globals are copied when a node is started
  CREATE(f, n)          is for threads, as Splash-3 has them: globals are shared (mg_share_globals())
m4 -D PARMACS_GLOBALS=private or =shared says otherwise, for all the sources of a program alike.

After this file m4 quotes are no longer ` and `'' but <<<: and :>>>, so that apostrophes and backquotes in C comments
and literals are only text. m4 built-ins whose names are good C identifiers are undefined (len, index, format, ...).
A number sign starts an m4 comment, as ever: the first line of a C #define is not expanded.

Differences between the dialects:
  CREATE(f)             starts f on the next processor; main calls f itself, as SPLASH-2 as published does
  CREATE(f, n)          starts n-1 processes and calls f itself, as Splash-3 and later SPLASH-2 do
  WAIT_FOR_END(n)       waits for all that CREATE started, whichever way the source counts
  BARINIT(b) BARINIT(b, n) BARRIER(b) BARRIER(b, n)
                        the count may come with either; without any it is the number of processors of the run
  G_MALLOC(n) G_MALLOC(n, p) NU_MALLOC(n, p) NU_MALLOC(n, m, p)
                        end in a semicolon of their own, which some sources leave out; G_MALLOC_F and NU_MALLOC_F are
                        the same as expressions. p is the process at whose node the block is at home
  CLOCK(t)              microseconds

changequote(<<<:,:>>>)
Whether CREATE(f) and CREATE(f, n) share the globals.
ifdef(<<<:PARMACS_GLOBALS:>>>, <<<:ifelse(PARMACS_GLOBALS, shared,, PARMACS_GLOBALS, private,,
  <<<:errprint(<<<:parmacs.m4: PARMACS_GLOBALS is "private" or "shared"
:>>>)m4exit(1):>>>):>>>)
define(<<<:PARMACS_ONE_SHARES:>>>, ifdef(<<<:PARMACS_GLOBALS:>>>, ifelse(PARMACS_GLOBALS, shared, 1, 0), 0))
define(<<<:PARMACS_COUNT_SHARES:>>>, ifdef(<<<:PARMACS_GLOBALS:>>>, ifelse(PARMACS_GLOBALS, shared, 1, 0), 1))

define(<<<:PARMACS_INCLUDES:>>>, <<<:
#include <multigrain/multigrain.h>
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L && !defined(__STDC_NO_ATOMICS__)
#include <stdatomic.h>
#endif
#ifndef PAGE_SIZE
#define PAGE_SIZE 4096
#endif
#ifndef MULTIGRAIN_PARMACS_ENV
#define MULTIGRAIN_PARMACS_ENV
/* C89 and C++ can both read this: SPLASH sources are compiled as either. */
typedef struct {
  mg_barrier_t barrier;
  mg_lock_t creation; /* held while the first arrival creates the barrier with its count */
  unsigned long count;
} parmacs_bar_t;
typedef struct {
  mg_lock_t guard;
  long next;
  long done;
  parmacs_bar_t end;
} parmacs_gs_t;

extern unsigned parmacs_created;
extern int parmacs_asked_to_share;

/* PARMACS macros have no way to fail. */
static __inline__ __attribute__((unused)) void parmacs_fail(const char *what) {
  fprintf(stderr, "parmacs: %s: %s\n", what, mg_error());
  exit(1);
}
static __attribute__((unused)) void parmacs_run(void *function) {
  ((void (*)(void))(uintptr_t)function)();
}
static __inline__ __attribute__((unused)) void parmacs_share(int shares) {
  if (!shares || parmacs_asked_to_share) return;
  parmacs_asked_to_share = 1;
  if (mg_share_globals() != 0)
    fprintf(stderr, "parmacs: each node has globals of its own: %s\n", mg_error());
}
static __inline__ __attribute__((unused)) void parmacs_create(void (*function)(void), int shares) {
  parmacs_share(shares);
  if (mg_spawn(++parmacs_created, parmacs_run, (void *)(uintptr_t)function) != 0)
    parmacs_fail("a process cannot be created (are there enough processors?)");
}
static __inline__ __attribute__((unused)) void parmacs_create_n(void (*function)(void), long processes, int shares) {
  long i;
  for (i = 1; i < processes; i++) parmacs_create(function, shares);
  function();
}
static __inline__ __attribute__((unused)) void parmacs_wait_for_end(void) {
  if (mg_join_all() != 0) parmacs_fail("processes cannot be waited for");
  parmacs_created = 0;
}
static __inline__ __attribute__((unused)) void *parmacs_malloc_at(size_t size, long process) {
  mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
  options.home = MG_HOME_NODE;
  options.node = (unsigned)process % mg_processors() / mg_processors_per_node();
  return mg_alloc(size, &options);
}
static __inline__ __attribute__((unused)) void parmacs_barinit(parmacs_bar_t *bar, unsigned long count) {
  bar->creation = mg_lock_create();
  bar->count = count;
  bar->barrier = count != 0 ? mg_barrier_create((unsigned)count) : 0;
}
/* Whoever sees no barrier yet, or a stale page without it, takes the lock and so sees the truth. */
static __inline__ __attribute__((unused)) void parmacs_barrier(parmacs_bar_t *bar, unsigned long count) {
  mg_barrier_t barrier = __atomic_load_n(&bar->barrier, __ATOMIC_ACQUIRE);
  if (barrier == 0) {
    mg_lock(bar->creation);
    if (bar->barrier == 0) {
      bar->count = count != 0 ? count : mg_processors();
      __atomic_store_n(&bar->barrier, mg_barrier_create((unsigned)bar->count), __ATOMIC_RELEASE);
    }
    barrier = bar->barrier;
    mg_unlock(bar->creation);
  }
  mg_barrier(barrier);
}
/* The next subscript up to and including `last`, then -1 for each of the processes once all of them have come. */
static __inline__ __attribute__((unused)) long parmacs_getsub(parmacs_gs_t *gs, long last, long processes) {
  long subscript = -1;
  mg_lock(gs->guard);
  if (gs->next <= last) {
    subscript = gs->next++;
  } else if (++gs->done == processes) {
    gs->next = 0;
    gs->done = 0;
  }
  mg_unlock(gs->guard);
  if (subscript < 0) parmacs_barrier(&gs->end, (unsigned long)processes);
  return subscript;
}
#endif
:>>>)
define(<<<:MAIN_ENV:>>>, <<<:PARMACS_INCLUDES
unsigned parmacs_created = 0;
int parmacs_asked_to_share = 0;
:>>>)
define(<<<:EXTERN_ENV:>>>, <<<:PARMACS_INCLUDES:>>>)
define(<<<:ENV:>>>, <<<: :>>>)
define(<<<:MAIN_INITENV:>>>, <<<:{if (mg_init(NULL, NULL) != 0) parmacs_fail("Multigrain cannot start");}:>>>)
define(<<<:MAIN_END:>>>, <<<:{exit(0);}:>>>)
define(<<<:NEWPROC:>>>, <<<::>>>)

Processes. A process may be declared in any way a C function without arguments can be: f() or f(void), returning
anything; the cast to void (*)(void) is the one that compilers accept from all of them.
define(<<<:CREATE:>>>, <<<:ifelse(eval($# < 2), 1,
  <<<:{parmacs_create((void (*)(void))($1), PARMACS_ONE_SHARES);}:>>>,
  <<<:{parmacs_create_n((void (*)(void))($1), (long)($2), PARMACS_COUNT_SHARES);}:>>>):>>>)
define(<<<:WAIT_FOR_END:>>>, <<<:{parmacs_wait_for_end();}:>>>)
define(<<<:GET_PID:>>>, <<<:{($1) = mg_processor();}:>>>)
define(<<<:GET_HOME:>>>, <<<:{($1) = mg_node();}:>>>)
define(<<<:SET_HOME:>>>, <<<:{;}:>>>)

Shared memory. Splash-2 frees with one argument or two (the size).
define(<<<:G_MALLOC_F:>>>, <<<:ifelse(eval($# < 2), 1,
  <<<:mg_alloc((size_t)($1), NULL):>>>,
  <<<:parmacs_malloc_at((size_t)($1), (long)($2)):>>>):>>>)
define(<<<:NU_MALLOC_F:>>>, <<<:ifelse($#, 3,
  <<<:parmacs_malloc_at((size_t)($1) * (size_t)($2), (long)($3)):>>>,
  <<<:G_MALLOC_F($@):>>>):>>>)
define(<<<:G_MALLOC:>>>, <<<:G_MALLOC_F($@);:>>>)
define(<<<:NU_MALLOC:>>>, <<<:NU_MALLOC_F($@);:>>>)
define(<<<:G_FREE:>>>, <<<:mg_free($1):>>>)
define(<<<:NU_FREE:>>>, <<<:mg_free($1):>>>)

The type of handles. Sources declare locks and conditions in headers that they include before EXTERN_ENV, where
mg_lock_t is not known yet; uint64_t is this type wherever Multigrain runs.
define(<<<:PARMACS_HANDLE:>>>, <<<:unsigned long:>>>)

Locks. The declarations carry their semicolon: sources write LOCKDEC(a) with and without one.
define(<<<:LOCKDEC:>>>, <<<:PARMACS_HANDLE ($1);:>>>)
define(<<<:LOCKINIT:>>>, <<<:{($1) = mg_lock_create();}:>>>)
define(<<<:LOCK:>>>, <<<:{mg_lock($1);}:>>>)
define(<<<:UNLOCK:>>>, <<<:{mg_unlock($1);}:>>>)
define(<<<:NLOCKDEC:>>>, <<<:LOCKDEC($@):>>>)
define(<<<:NLOCKINIT:>>>, <<<:LOCKINIT($@):>>>)
define(<<<:NLOCK:>>>, <<<:LOCK($@):>>>)
define(<<<:NUNLOCK:>>>, <<<:UNLOCK($@):>>>)
define(<<<:ALOCKDEC:>>>, <<<:PARMACS_HANDLE ($1)[$2];:>>>)
define(<<<:ALOCKINIT:>>>, <<<:{
  size_t parmacs_i;
  for (parmacs_i = 0; parmacs_i < (size_t)($2); parmacs_i++) ($1)[parmacs_i] = mg_lock_create();
}:>>>)
define(<<<:ALOCK:>>>, <<<:{mg_lock(($1)[$2]);}:>>>)
define(<<<:AULOCK:>>>, <<<:{mg_unlock(($1)[$2]);}:>>>)
define(<<<:AUNLOCK:>>>, <<<:AULOCK($@):>>>)
define(<<<:AGETL:>>>, <<<:(($1)[$2]):>>>)

Barriers.
define(<<<:BARDEC:>>>, <<<:parmacs_bar_t ($1);:>>>)
define(<<<:BARINIT:>>>, <<<:{parmacs_barinit(&($1), ifelse(eval($# < 2), 1, 0, <<<:(unsigned long)($2):>>>));}:>>>)
define(<<<:BARRIER:>>>, <<<:{parmacs_barrier(&($1), ifelse(eval($# < 2), 1, 0, <<<:(unsigned long)($2):>>>));}:>>>)
define(<<<:BARINCLUDE:>>>, <<<:{;}:>>>)
define(<<<:BAREXCLUDE:>>>, <<<:{;}:>>>)

Pauses: flags, single or in arrays (the second argument is the number of them, or which). SETPAUSE sets, CLEARPAUSE
clears, WAITPAUSE waits until set. EVENT waits until clear and sets; PAUSE waits until set and clears.
define(<<<:PARMACS_ITEM:>>>, <<<:ifelse(eval($# < 2), 1, <<<:($1):>>>, <<<:($1)[$2]:>>>):>>>)
define(<<<:PAUSEDEC:>>>, <<<:PARMACS_HANDLE PARMACS_ITEM($@);:>>>)
define(<<<:PAUSEINIT:>>>, <<<:ifelse(eval($# < 2), 1, <<<:{($1) = mg_flag_create();}:>>>, <<<:{
  size_t parmacs_i;
  for (parmacs_i = 0; parmacs_i < (size_t)($2); parmacs_i++) ($1)[parmacs_i] = mg_flag_create();
}:>>>):>>>)
define(<<<:SETPAUSE:>>>, <<<:{mg_flag_set(PARMACS_ITEM($@), 1);}:>>>)
define(<<<:CLEARPAUSE:>>>, <<<:{mg_flag_set(PARMACS_ITEM($@), 0);}:>>>)
define(<<<:WAITPAUSE:>>>, <<<:{mg_flag_wait(PARMACS_ITEM($@), 1);}:>>>)
define(<<<:EVENT:>>>, <<<:{mg_flag_wait(PARMACS_ITEM($@), 0); mg_flag_set(PARMACS_ITEM($@), 1);}:>>>)
define(<<<:PAUSE:>>>, <<<:{mg_flag_wait(PARMACS_ITEM($@), 1); mg_flag_set(PARMACS_ITEM($@), 0);}:>>>)

Condition variables (Splash-3).
define(<<<:CONDVARDEC:>>>, <<<:PARMACS_HANDLE ($1);:>>>)
define(<<<:CONDVARINIT:>>>, <<<:{($1) = mg_cond_create();}:>>>)
define(<<<:CONDVARWAIT:>>>, <<<:{mg_cond_wait(($1), ($2));}:>>>)
define(<<<:CONDVARSIGNAL:>>>, <<<:{mg_cond_signal($1);}:>>>)
define(<<<:CONDVARBCAST:>>>, <<<:{mg_cond_broadcast($1);}:>>>)

Self-scheduled loops. GETSUB(gs, i, last, processes) gives 0..last, then -1 to each process, and starts over.
define(<<<:GSDEC:>>>, <<<:parmacs_gs_t ($1);:>>>)
define(<<<:GSINIT:>>>, <<<:{
  ($1).guard = mg_lock_create();
  ($1).next = 0;
  ($1).done = 0;
  parmacs_barinit(&($1).end, 0);
}:>>>)
define(<<<:GETSUB:>>>, <<<:{($2) = parmacs_getsub(&($1), (long)($3), (long)($4));}:>>>)
define(<<<:NU_GSDEC:>>>, <<<:GSDEC($@):>>>)
define(<<<:NU_GSINIT:>>>, <<<:GSINIT($@):>>>)
define(<<<:NU_GETSUB:>>>, <<<:GETSUB($@):>>>)

Fences. A release fence publishes what was written; what an acquire fence orders is the processor's own view, so a
program that spins on plain shared variables between fences is a data race here as elsewhere.
define(<<<:RELEASE_FENCE:>>>, <<<:{mg_release();}:>>>)
define(<<<:ACQUIRE_FENCE:>>>, <<<:{__atomic_thread_fence(__ATOMIC_ACQUIRE);}:>>>)
define(<<<:FULL_FENCE:>>>, <<<:{mg_release(); __atomic_thread_fence(__ATOMIC_SEQ_CST);}:>>>)

Time. The region of interest opens before CREATE, while main is alone, and closes after WAIT_FOR_END: the profile is of
what lies between.
define(<<<:CLOCK:>>>, <<<:{($1) = (unsigned long)(mg_time_ns() / 1000);}:>>>)
define(<<<:SPLASH3_ROI_BEGIN:>>>, <<<:mg_profile_reset():>>>)
define(<<<:SPLASH3_ROI_END:>>>, <<<:mg_profile_stop():>>>)

Simulators' and tracers' marks, and ANL's monitors, which the SPLASH sources mention and never use.
define(<<<:AUG_ON:>>>, <<<: :>>>)
define(<<<:AUG_OFF:>>>, <<<: :>>>)
define(<<<:AUG_SET_LOLIMIT:>>>, <<<:;:>>>)
define(<<<:AUG_SET_HILIMIT:>>>, <<<:;:>>>)
define(<<<:AUG_DELAY:>>>, <<<:{sleep((unsigned)($1));}:>>>)
define(<<<:TRACE_ON:>>>, <<<: :>>>)
define(<<<:TRACE_OFF:>>>, <<<: :>>>)
define(<<<:REF_TRACE_ON:>>>, <<<: :>>>)
define(<<<:REF_TRACE_OFF:>>>, <<<: :>>>)
define(<<<:DYN_TRACE_ON:>>>, <<<:;:>>>)
define(<<<:DYN_TRACE_OFF:>>>, <<<:;:>>>)
define(<<<:DYN_REF_TRACE_ON:>>>, <<<:;:>>>)
define(<<<:DYN_REF_TRACE_OFF:>>>, <<<:;:>>>)
define(<<<:DYN_SIM_ON:>>>, <<<:;:>>>)
define(<<<:DYN_SIM_OFF:>>>, <<<:;:>>>)
define(<<<:DYN_SCHED_ON:>>>, <<<:;:>>>)
define(<<<:DYN_SCHED_OFF:>>>, <<<:;:>>>)
define(<<<:ST_LOG:>>>, <<<:{;}:>>>)

C identifiers that m4 would take for its own when a parenthesis follows. eval, ifelse and define stay: the macros above
use them, and no SPLASH source does. include and sinclude stay as well: Splash-3's radiosity reads its headers with them.
undefine(<<<:len:>>>, <<<:index:>>>, <<<:substr:>>>, <<<:format:>>>, <<<:shift:>>>, <<<:incr:>>>, <<<:decr:>>>,
  <<<:regexp:>>>, <<<:patsubst:>>>, <<<:unix:>>>, <<<:__unix__:>>>,
  <<<:syscmd:>>>, <<<:esyscmd:>>>, <<<:sysval:>>>, <<<:translit:>>>, <<<:builtin:>>>, <<<:indir:>>>,
  <<<:dumpdef:>>>, <<<:errprint:>>>, <<<:maketemp:>>>, <<<:mkstemp:>>>, <<<:m4exit:>>>, <<<:m4wrap:>>>,
  <<<:traceon:>>>, <<<:traceoff:>>>, <<<:debugmode:>>>, <<<:debugfile:>>>, <<<:pushdef:>>>, <<<:popdef:>>>,
  <<<:defn:>>>, <<<:dnl:>>>, <<<:divnum:>>>, <<<:undivert:>>>, <<<:changecom:>>>, <<<:changeword:>>>, <<<:ifdef:>>>)
divert(0)
