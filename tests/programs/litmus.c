/* Litmus tests of memory models: short programs whose outcomes tell one model from another.
 *
 *   mgrun ... litmus [--access FORM] [--forbid MODEL] [--iterations N] [--instances N] [--stretch N] [--placement P]
 *                    [--seed N] [--test NAME,...]
 *
 * Every test has a role for each thread, and runs many instances of its variables, all different, between two
 * meetings. The outcomes that each model allows are data (`allowed`), and one that the model of --forbid does not allow
 * ends the program with status 3. FORM says how variables are accessed:
 *
 *   atomic   what a user writes for shared memory: C11 atomics in their default order. Every node's threads are POSIX
 *            threads, role r is on node r mod nodes, and they meet at a barrier of atomics. Built by mgcc, this is for
 *            line protocols: nothing of Multigrain is used but memory and the start of a function on each node.
 *   locked   for release consistency: each access is in a critical section of its variable's lock. Such programs are
 *            free of data races, and so promised sequential consistency ([MGS], section 3.2).
 *   racing   the same without locks. Under page protocols all outcomes made of values that were stored may be seen.
 *
 * N of --seed (default: MULTIGRAIN_TEST_SEED, or else a random one) is where the random choices of a run begin: which
 * copies there are when an instance begins, and how far the roles are out of step. It is printed.
 *
 * In the last two roles are processors, who meet at a barrier of Multigrain's.
 *
 * Built with LITMUS_PLAIN, the variables of the form `atomic` are not atomics but volatile: what is left are the orders
 * of the hardware, and of compiled checks. That shows that these tests can fail: `store buffering` does on one node.
 * With LITMUS_RACING as well they are plain integers, for mgcc's -fmultigrain-sequential: elsewhere the compiler may do
 * with them what it likes.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <multigrain/multigrain.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Under page protocols, neighbours that are narrower than the word in which diffs see changes. */
#ifndef LITMUS_INTEGER
#define LITMUS_INTEGER int
#endif
#ifdef LITMUS_RACING
typedef LITMUS_INTEGER variable;
#elif defined LITMUS_PLAIN
typedef volatile LITMUS_INTEGER variable;
#else
typedef _Atomic LITMUS_INTEGER variable;
#endif

enum { kMaxRoles = 4, kVariables = 4, kRegisters = 4, kLine = 64, kForbidden = 3 };
enum form { kAtomic, kLocked, kRacing };
enum placement { kPages, kOneLine, kOneWord, kPlacements };
static const char* const placement_names[kPlacements] = {"pages", "line", "word"};
/* Each allows what those before it allow, and more. */
enum model { kSc, kTso, kRc, kModels };
static const char* const model_names[kModels] = {"sc", "tso", "rc"};

struct test {
  const char* name;
  const char* about;
  unsigned roles;
  unsigned variables;
  unsigned registers;
  void (*body)(unsigned role, unsigned instance);
  /* The outcomes that a model adds to those of the one before; a digit for each register. */
  const char* allowed[kModels];
  bool atomic_only;
  bool locked_only;
  bool race_free; /* so what release consistency forbids never is, locks or not */
};

/* Written by main() before roles begin; every node has a copy. */
static enum form form = kLocked;
static unsigned seed;
static unsigned iterations;
static unsigned instances;
static unsigned stretch; /* of instances, before which roles are brought in step again; 0: as suits the machine */
static const struct test* test;
static bool crowded; /* more roles than cores */
static char* variables[kVariables];
static size_t distance; /* from instance to instance, bytes */
static mg_lock_t locks[kVariables];
static mg_flag_t flags[2];
static mg_barrier_t barrier;
static unsigned char* registers[kRegisters]; /* of each, an array over instances, which one role writes */
/* Role 0's, which is on main()'s node. */
static uint64_t seen[10000]; /* by the digits of the outcome */

/* Shared, for the form `atomic`. */
static struct meeting {
  alignas(kLine) atomic_uint arrived;
  alignas(kLine) atomic_uint number;
}* meeting;

/* Who waits keeps its core for a while, so that all are running when they go on: on a machine that does other work as
 * well, roles that gave theirs away at once would come one after the other. */
static _Thread_local bool shares_core; /* as far as the last meeting showed */
static void wait_a_little(unsigned tries) {
  const unsigned patience = crowded ? 64 : 4096;
  if (tries % patience == patience - 1) {
    shares_core = true;
    sched_yield();
  } else {
    __builtin_ia32_pause();
  }
}

static _Thread_local uint64_t random_state;
static uint64_t next_random(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return random_state >> 33;
}
static void spin(uint64_t times) {
  for (volatile uint64_t left = times; left != 0; --left) {
  }
}
/* Skews the roles against each other, before an instance: mostly by less than an access takes, now and then by many. */
static void skew(void) {
  const uint64_t how = next_random() % 16;
  spin(next_random() % (how == 1 ? 400 : how < 8 ? 40 : 1));
}
/* Between the accesses of an instance; mostly nothing. Roles that share a core take turns here as well. */
static void pause_between(void) {
  const uint64_t how = next_random() % 64;
  if (shares_core && how < 2) sched_yield();
  if (how < 16) spin(next_random() % 40);
}

/* Returns whether the caller came last, and so goes on before the others have seen that. */
static bool meet(void) {
  if (form != kAtomic) {
    mg_barrier(barrier);
    return false;
  }
  shares_core = crowded;
  const unsigned number = atomic_load(&meeting->number);
  if (atomic_fetch_add(&meeting->arrived, 1) + 1 == test->roles) {
    atomic_store(&meeting->arrived, 0);
    atomic_store(&meeting->number, number + 1);
    return true;
  }
  for (unsigned tries = 0; atomic_load(&meeting->number) == number; ++tries) wait_a_little(tries);
  return false;
}

static variable* at(unsigned which, unsigned instance) {
  return (variable*)(void*)(variables[which] + instance * distance);
}

/* The accesses that the tests are about. Nothing of shared memory is between them: results come last. */
enum { x, y, z, w };
static int load(unsigned which, unsigned instance) {
  variable* const from = at(which, instance);
  if (form == kLocked) mg_lock(locks[which]);
#ifdef LITMUS_PLAIN
  const int value = *from;
#else
  const int value = form == kAtomic ? atomic_load(from) : atomic_load_explicit(from, memory_order_relaxed);
#endif
  if (form == kLocked) mg_unlock(locks[which]);
  return value;
}
static void store(unsigned which, unsigned instance, int value) {
  variable* const to = at(which, instance);
  if (form == kLocked) mg_lock(locks[which]);
#ifdef LITMUS_PLAIN
  *to = (LITMUS_INTEGER)value;
#else
  if (form == kAtomic)
    atomic_store(to, (LITMUS_INTEGER)value);
  else
    atomic_store_explicit(to, (LITMUS_INTEGER)value, memory_order_relaxed);
#endif
  if (form == kLocked) mg_unlock(locks[which]);
}
static void result(unsigned which, unsigned instance, int value) {
  registers[which][instance] = (unsigned char)(value < 0 || value > 9 ? 9 : value);
}

static void store_buffering(unsigned role, unsigned i) {
  store(role == 0 ? x : y, i, 1);
  pause_between();
  result(role, i, load(role == 0 ? y : x, i));
}

/* Store buffering behind a load of something else, with nothing in between: a compiler that gathers loads would make
 * the second one before the store. */
__attribute__((noinline)) static int store_one_between(variable* restrict before, variable* restrict mine,
                                                       variable* restrict others) {
  const int first = *before;
  *mine = 1;
  const int second = *others;
  return first != 0 ? 9 : second;
}
static void store_between_loads(unsigned role, unsigned i) {
  result(role, i, store_one_between(at(role == 0 ? z : w, i), at(role == 0 ? x : y, i), at(role == 0 ? y : x, i)));
}

/* Message passing in which each role also loads before it stores. */
static void message_behind_loads(unsigned role, unsigned i) {
  variable* const message = at(x, i);
  variable* const flag = at(y, i);
  variable* const mine = at(role == 0 ? z : w, i);
  const int first = *mine;
  if (role == 0) {
    *message = 1;
    *mine = 1;
    const int second = *mine;
    *flag = first == 0 && second == 1 ? 1 : 9;
  } else {
    *mine = 1;
    const int seen_flag = *flag;
    *mine = 2;
    const int seen_message = *message;
    result(0, i, first != 0 ? 9 : seen_flag);
    result(1, i, seen_message);
  }
}

static void message_passing(unsigned role, unsigned i) {
  if (role == 0) {
    store(x, i, 1);
    pause_between();
    store(y, i, 1);
  } else {
    const int first = load(y, i);
    pause_between();
    const int second = load(x, i);
    result(0, i, first);
    result(1, i, second);
  }
}

/* The same with a flag for y and another for the answer, so that the reader always comes second, and no lock. */
static void message_passing_by_flag(unsigned role, unsigned i) {
  variable* const mine = at(x, i);
  if (role == 0) {
    *mine = 1;
    mg_flag_set(flags[0], i + 1);
    mg_flag_wait(flags[1], i + 1);
  } else {
    mg_flag_wait(flags[0], i + 1);
    result(0, i, *mine);
    mg_flag_set(flags[1], i + 1);
  }
}

static void load_buffering(unsigned role, unsigned i) {
  const int value = load(role == 0 ? x : y, i);
  pause_between();
  store(role == 0 ? y : x, i, 1);
  result(role, i, value);
}

static void independent_reads(unsigned role, unsigned i) {
  if (role < 2) {
    store(role == 0 ? x : y, i, 1);
  } else {
    const int first = load(role == 2 ? x : y, i);
    pause_between();
    const int second = load(role == 2 ? y : x, i);
    result(2 * role - 4, i, first);
    result(2 * role - 3, i, second);
  }
}

static void write_to_read(unsigned role, unsigned i) {
  if (role == 0) {
    store(x, i, 1);
  } else if (role == 1) {
    const int value = load(x, i);
    pause_between();
    if (value == 1) store(y, i, 1);
    result(0, i, value);
  } else {
    const int first = load(y, i);
    pause_between();
    const int second = load(x, i);
    result(1, i, first);
    result(2, i, second);
  }
}

static void coherence_read_read(unsigned role, unsigned i) {
  if (role == 0) {
    store(x, i, 1);
    pause_between();
    store(x, i, 2);
  } else {
    const int first = load(x, i);
    pause_between();
    const int second = load(x, i);
    result(0, i, first);
    result(1, i, second);
  }
}

/* Both store to x, and then look at it: what one saw of the other's stays, if its own is not there. */
static void coherence_write_write(unsigned role, unsigned i) {
  store(x, i, (int)role + 1);
  pause_between();
  const int first = load(x, i);
  const int second = load(x, i);
  result(2 * role, i, first);
  result(2 * role + 1, i, second);
}

/* The last of a role's own stores stays, whatever is written beside it. */
static void neighbours(unsigned role, unsigned i) {
  store(role, i, 1);
  store(role, i, 2);
}

#ifndef LITMUS_PLAIN
/* Mutual exclusion of two by loads and stores alone (Dijkstra, "Cooperating sequential processes", 1965). Both count:
 * if they exclude each other, one sees 0 and the other 1. */
static void dekker(unsigned role, unsigned i) {
  const unsigned mine = role == 0 ? x : y;
  const unsigned other = role == 0 ? y : x;
  store(mine, i, 1);
  for (unsigned tries = 0; load(other, i) != 0; ++tries) {
    wait_a_little(tries);
    if (load(z, i) == (int)role) continue;
    store(mine, i, 0);
    while (load(z, i) != (int)role) wait_a_little(tries++);
    store(mine, i, 1);
  }
  const int count = load(w, i);
  pause_between();
  store(w, i, count + 1);
  result(role, i, count);
  store(z, i, 1 - (int)role);
  store(mine, i, 0);
}

static void ticket_lock(unsigned role, unsigned i) {
  const int ticket = atomic_fetch_add(at(x, i), 1);
  for (unsigned tries = 0; load(y, i) != ticket; ++tries) wait_a_little(tries);
  const int count = load(z, i);
  pause_between();
  store(z, i, count + 1);
  result(role, i, count);
  store(y, i, ticket + 1);
}
#endif

static const struct test tests[] = {
    {.name = "sb",
     .about = "store buffering: x=1, read y; y=1, read x",
     .roles = 2,
     .variables = 2,
     .registers = 2,
     .body = store_buffering,
     .allowed = {"01 10 11", "00", ""}},
    {.name = "sbl",
     .about = "store buffering behind loads: read z, x=1, read y; read w, y=1, read x",
     .roles = 2,
     .variables = 4,
     .registers = 2,
     .body = store_between_loads,
     .allowed = {"01 10 11", "00", ""},
     .atomic_only = true},
    {.name = "mpl",
     .about = "message passing among loads and stores of other variables",
     .roles = 2,
     .variables = 4,
     .registers = 2,
     .body = message_behind_loads,
     .allowed = {"00 01 11", "", "10"},
     .atomic_only = true},
    {.name = "mp",
     .about = "message passing: x=1, y=1; read y, x",
     .roles = 2,
     .variables = 2,
     .registers = 2,
     .body = message_passing,
     .allowed = {"00 01 11", "", "10"}},
    {.name = "lb",
     .about = "load buffering: read x, y=1; read y, x=1",
     .roles = 2,
     .variables = 2,
     .registers = 2,
     .body = load_buffering,
     .allowed = {"00 01 10", "", "11"}},
    {.name = "iriw",
     .about = "independent reads: x=1; y=1; read x, y; read y, x",
     .roles = 4,
     .variables = 2,
     .registers = 4,
     .body = independent_reads,
     .allowed = {"0000 0001 0010 0011 0100 0101 0110 0111 1000 1001 1011 1100 1101 1110 1111", "", "1010"}},
    {.name = "wrc",
     .about = "write to read: x=1; read x, if 1 y=1; read y, x",
     .roles = 3,
     .variables = 2,
     .registers = 3,
     .body = write_to_read,
     .allowed = {"000 001 100 101 111", "", "110"}},
    {.name = "corr",
     .about = "coherence: x=1, x=2; read x, x",
     .roles = 2,
     .variables = 1,
     .registers = 2,
     .body = coherence_read_read,
     .allowed = {"00 01 02 11 12 22", "", ""}},
    {.name = "coww",
     .about = "coherence: x=1, read x, x; x=2, read x, x",
     .roles = 2,
     .variables = 1,
     .registers = 4,
     .body = coherence_write_write,
     .allowed = {"1111 1121 1122 1222 2222", "", ""}},
    {.name = "neighbours",
     .about = "x=1, x=2; y=1, y=2; both at the end",
     .roles = 2,
     .variables = 2,
     .registers = 2,
     .body = neighbours,
     .allowed = {"22", "", ""},
     .race_free = true},
    {.name = "mp-flag",
     .about = "message passing: x=1, flag; flag, read x",
     .roles = 2,
     .variables = 1,
     .registers = 1,
     .body = message_passing_by_flag,
     .allowed = {"1", "", ""},
     .locked_only = true},
#ifndef LITMUS_PLAIN
    {.name = "dekker",
     .about = "Dekker's mutual exclusion of two",
     .roles = 2,
     .variables = 4,
     .registers = 2,
     .body = dekker,
     .allowed = {"01 10", "00", ""},
     .atomic_only = true},
    {.name = "ticket",
     .about = "a ticket lock of three",
     .roles = 3,
     .variables = 3,
     .registers = 3,
     .body = ticket_lock,
     .allowed = {"012 021 102 120 201 210", "", ""},
     .atomic_only = true},
#endif
};
enum { kTests = sizeof tests / sizeof tests[0] };

static void evaluate(unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    if (test->body == neighbours) {
      result(0, i, load(x, i));
      result(1, i, load(y, i));
    }
    unsigned outcome = 0;
    for (unsigned r = 0; r < test->registers; ++r) outcome = 10 * outcome + registers[r][i];
    ++seen[outcome];
  }
}

/* A core of its own, as far as they go: on a busy machine the system lets two threads share one for long. */
static void bind_to_core(unsigned role) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0 || CPU_COUNT(&cores) < 2) return;
  unsigned skip = role % (unsigned)CPU_COUNT(&cores);
  for (unsigned core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &cores) || skip-- != 0) continue;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
    return;
  }
}

static void* play(void* argument) {
  const unsigned role = (unsigned)(uintptr_t)argument;
  if (form == kAtomic) bind_to_core(role);
  random_state = ((uint64_t)seed << 32) + role * 7919 + 1;
  /* Roles that share cores have to be scheduled for each meeting, and come out of step between the accesses. */
  const unsigned step = stretch != 0 ? stretch : crowded ? 32 : 8;
  for (unsigned done = 0; done < iterations; done += instances) {
    const unsigned count = iterations - done < instances ? iterations - done : instances;
    for (unsigned i = role; i < count; i += test->roles)
      for (unsigned v = 0; v < test->variables; ++v) store(v, i, 0);
    for (unsigned r = role; r < test->registers; r += test->roles) memset(registers[r], 0, instances);
    if (role == 0 && test->locked_only)
      for (unsigned f = 0; f < 2; ++f) mg_flag_set(flags[f], 0);
    meet();
    /* So that copies of the variables are here and there when the instance begins, or nowhere. */
    for (unsigned i = 0; i < count; ++i) {
      const uint64_t wanted = next_random();
      if ((wanted & 1) != 0) load(x, i);
      if ((wanted & 2) != 0 && test->variables > 1) load(y, i);
    }
    meet();
    for (unsigned i = 0; i < count; ++i) {
      /* In step again, as cheaply as can be; barriers of Multigrain's are not cheap. */
      if (form == kAtomic && i % step == 0 && meet()) spin(next_random() % 2000);
      skew();
      test->body(role, i);
    }
    meet();
    if (role == 0) evaluate(count);
    meet();
  }
  return NULL;
}

/* On every processor: plays the roles that are here. */
static void begin(void* unused) {
  (void)unused;
  if (form != kAtomic) {
    for (unsigned role = 0; role < test->roles; ++role)
      if (role * mg_processors() / test->roles == mg_processor()) play((void*)(uintptr_t)role);
    return;
  }
  if (mg_processor() % mg_processors_per_node() != 0) return;
  pthread_t threads[kMaxRoles];
  for (unsigned role = mg_node(); role < test->roles; role += mg_nodes()) {
    if (pthread_create(&threads[role], NULL, play, (void*)(uintptr_t)role) != 0) {
      fprintf(stderr, "litmus: cannot create a thread\n");
      _Exit(1);
    }
  }
  for (unsigned role = mg_node(); role < test->roles; role += mg_nodes()) pthread_join(threads[role], NULL);
}

/* The first model that allows it; kModels: none does; more: it has a value that nobody stores. */
static unsigned allowed_from(const char* outcome) {
  char greatest = '0';
  for (unsigned model = kSc; model < kModels; ++model) {
    if (strstr(test->allowed[model], outcome) != NULL) return model;
    for (const char* digit = test->allowed[model]; *digit != '\0'; ++digit)
      if (*digit > greatest) greatest = *digit;
  }
  for (; *outcome != '\0'; ++outcome)
    if (*outcome > greatest) return kModels + 1;
  return kModels;
}

/* Prints what was seen, and returns how often it was what `forbid` forbids. */
static uint64_t report(const char* placement, unsigned forbid) {
  uint64_t forbidden = 0;
  printf("%-10s %-6s", test->name, placement);
  unsigned outcomes = 1;
  for (unsigned r = 0; r < test->registers; ++r) outcomes *= 10;
  for (unsigned outcome = 0; outcome < outcomes; ++outcome) {
    if (seen[outcome] == 0) continue;
    char digits[kRegisters + 1];
    snprintf(digits, sizeof digits, "%0*u", (int)test->registers, outcome);
    const unsigned from = allowed_from(digits);
    printf(" %s:%llu", digits, (unsigned long long)seen[outcome]);
    if (from != kSc) printf("(%s)", from >= kModels ? "never" : model_names[from]);
    if (from > (test->race_free && forbid > kRc ? kRc : forbid)) forbidden += seen[outcome];
  }
  printf("\n");
  fflush(stdout);
  return forbidden;
}

static void* shared(size_t bytes) {
  void* const block = mg_alloc(bytes, NULL);
  if (block == NULL) {
    fprintf(stderr, "litmus: %s\n", mg_error());
    exit(1);
  }
  return block;
}

/* Where the variables are: in arrays of which corresponding pages have different homes, with a line each; all of an
 * instance in one line; or all in one word, as far as they go. */
static void place(unsigned placement, char* memory) {
  const size_t page = mg_page_size();
  const size_t array = (instances * (size_t)kLine + page - 1) / page * page + page;
  for (unsigned v = 0; v < kVariables; ++v)
    variables[v] = memory + v * (placement == kPages ? array : sizeof(variable));
  distance = placement == kOneWord ? kVariables * sizeof(variable) : kLine;
}

static bool is_among(const char* names, const char* name) {
  const size_t length = strlen(name);
  for (const char* from = names; from != NULL; from = strchr(from, ',')) {
    if (*from == ',') ++from;
    if (strncmp(from, name, length) == 0 && (from[length] == ',' || from[length] == '\0')) return true;
  }
  return false;
}

static unsigned number_of(const char* name, const char* const* names, unsigned count) {
  for (unsigned i = 0; i < count; ++i)
    if (strcmp(name, names[i]) == 0) return i;
  return count;
}

static void usage(const char* wrong) {
  fprintf(stderr, "litmus: %s\n", wrong);
  fprintf(stderr,
          "usage: litmus [--access atomic|locked|racing] [--forbid sc|tso|rc|none] [--iterations N]\n"
          "              [--instances N] [--stretch N] [--placement pages|line|word|all] [--seed N]\n"
          "              [--test NAME,...]\n"
          "tests:\n");
  for (unsigned t = 0; t < kTests; ++t) fprintf(stderr, "  %-10s %s\n", tests[t].name, tests[t].about);
  exit(2);
}

static unsigned count_of(const char* text, const char* wrong) {
  char* end;
  const unsigned long value = strtoul(text, &end, 10);
  if (*text == '\0' || *end != '\0' || value < 1 || value > 100000000) usage(wrong);
  return (unsigned)value;
}

static unsigned seed_of(const char* text, const char* wrong) {
  char* end;
  const unsigned long value = strtoul(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0' || value > UINT32_MAX) usage(wrong);
  return (unsigned)value;
}

/* Another one in every run. */
static unsigned random_seed(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (unsigned)now.tv_nsec ^ (unsigned)now.tv_sec << 10;
}

int main(int argc, char** argv) {
  static const struct option options[] = {{"access", required_argument, NULL, 'a'},
                                          {"forbid", required_argument, NULL, 'f'},
                                          {"iterations", required_argument, NULL, 'n'},
                                          {"instances", required_argument, NULL, 'i'},
                                          {"stretch", required_argument, NULL, 's'},
                                          {"placement", required_argument, NULL, 'p'},
                                          {"test", required_argument, NULL, 't'},
                                          {"seed", required_argument, NULL, 'r'},
                                          {NULL, 0, NULL, 0}};
  static const char* const forms[] = {"atomic", "locked", "racing"};
  unsigned forbid = kSc;
  unsigned placement = kPages;
  const char* wanted = NULL;
  const char* const given = getenv("MULTIGRAIN_TEST_SEED");
  seed = given != NULL ? seed_of(given, "MULTIGRAIN_TEST_SEED is a number from 0 to 4294967295") : random_seed();
  for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    switch (option) {
      case 'a': {
        const unsigned number = number_of(optarg, forms, 3);
        if (number == 3) usage("--access is atomic, locked or racing");
        form = (enum form)number;
        break;
      }
      case 'f':
        forbid = number_of(optarg, model_names, kModels);
        if (forbid == kModels && strcmp(optarg, "none") != 0) usage("--forbid is sc, tso, rc or none");
        break;
      case 'n':
        iterations = count_of(optarg, "--iterations is a number from 1 to 100000000");
        break;
      case 'i':
        instances = count_of(optarg, "--instances is a number from 1 to 100000000");
        break;
      case 's':
        stretch = count_of(optarg, "--stretch is a number from 1 to 100000000");
        break;
      case 'p':
        placement = number_of(optarg, placement_names, kPlacements);
        if (placement == kPlacements && strcmp(optarg, "all") != 0) usage("--placement is pages, line, word or all");
        break;
      case 't':
        wanted = optarg;
        break;
      case 'r':
        seed = seed_of(optarg, "--seed is a number from 0 to 4294967295");
        break;
      default:
        usage("unknown option");
    }
  }
  if (optind != argc) usage("there are no arguments but options");
  if (instances == 0) instances = form == kAtomic ? 4096 : 32;
  if (iterations == 0) iterations = form == kAtomic ? 1000000 : 256;

  printf("seed %u\n", seed);

  const size_t page = mg_page_size();
  char* const memory = shared(kVariables * (instances * (size_t)kLine + 2 * page));
  for (unsigned r = 0; r < kRegisters; ++r) registers[r] = shared(instances + page);
  meeting = shared(sizeof *meeting);
  for (unsigned v = 0; v < kVariables; ++v) locks[v] = mg_lock_create();
  for (unsigned f = 0; f < 2; ++f) flags[f] = mg_flag_create();

  uint64_t forbidden = 0;
  unsigned played = 0;
  for (unsigned t = 0; t < kTests; ++t) {
    test = &tests[t];
    if (wanted != NULL && !is_among(wanted, test->name)) continue;
    if ((test->atomic_only && form != kAtomic) || (test->locked_only && form != kLocked)) continue;
    if (form != kAtomic && test->roles > mg_processors()) {
      printf("%-10s left out: needs %u processors\n", test->name, test->roles);
      continue;
    }
    crowded = test->roles > (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    barrier = mg_barrier_create(test->roles);
    for (unsigned p = 0; p < kPlacements; ++p) {
      if (placement != kPlacements && placement != p) continue;
      place(p, memory);
      memset(seen, 0, sizeof seen);
      if (mg_spawn_all(begin, NULL) != 0) {
        fprintf(stderr, "litmus: %s\n", mg_error());
        return 1;
      }
      forbidden += report(placement_names[p], forbid);
      ++played;
    }
    mg_barrier_destroy(barrier);
  }
  if (played == 0) usage("no test was played");
  if (forbidden != 0) {
    fprintf(stderr, "litmus: %llu outcomes were seen that %s forbids\n", (unsigned long long)forbidden,
            forbid == kModels ? "every model" : model_names[forbid]);
    return kForbidden;
  }
  return 0;
}
