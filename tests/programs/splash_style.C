/* A program as SPLASH programmers wrote them, for the PARMACS macros: a red-black stencil with a reduction under a
 * lock, a histogram with an array of locks, a self-scheduled loop, a pipeline of pauses, a queue with condition
 * variables. It checks its own results. Don't "fix" its style: it isn't wrong, it's from 1992 (or looks like it).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define N 66
#define BUCKETS 32
#define SAMPLES 2000
#define TASKS 200
#define QUEUE 8

MAIN_ENV

typedef struct {
  double grid[N][N];
  double residual;
  long histogram[BUCKETS];
  long square[TASKS];
  long queue[QUEUE];
  long head, tail, consumed;
  long token;
  long id;
  LOCKDEC(idlock)
  LOCKDEC(reslock);
  ALOCKDEC(hlock, BUCKETS)
  BARDEC(start)
  BARDEC(sweep)
  GSDEC(tasks)
  LOCKDEC(qlock)
  CONDVARDEC(nonempty);
  CONDVARDEC(nonfull)
  PAUSEDEC(done)
} Global;

struct stage {
  PAUSEDEC(ready)
  char pad[64];
};

Global *gl;
struct stage *stages;
long P;

/* Names that m4 must leave alone. */
static long len(long n) { return n * 1; }
static long shift(long n) { return n - 0; }

static void fail(const char *what)
{
  fprintf(stderr, "splash_style: %s\n", what);
  exit(1);
}

static void stencil(long id)
{
  long i, j, t, first, last;
  double mine;

  first = 1 + (N - 2) * id / P;
  last = 1 + (N - 2) * (id + 1) / P;
  for (t = 0; t < 20; t++) {
    for (i = first; i < last; i++)
      for (j = 1 + (i + t) % 2; j < N - 1; j += 2)
        gl->grid[i][j] = 0.25 * (gl->grid[i - 1][j] + gl->grid[i + 1][j] + gl->grid[i][j - 1] + gl->grid[i][j + 1]);
    BARRIER(gl->sweep, P)
  }
  mine = 0;
  for (i = first; i < last; i++)
    for (j = 1; j < N - 1; j++) mine += gl->grid[i][j];
  LOCK(gl->reslock)
  gl->residual += mine;
  UNLOCK(gl->reslock)
}

static void histogram(long id)
{
  long i, b;
  unsigned long r = 17;

  for (i = 0; i < SAMPLES; i++) {
    r = r * 1103515245UL + 12345UL;
    if (i % P != id) continue;
    b = (long)((r >> 16) % BUCKETS);
    ALOCK(gl->hlock, b);
    gl->histogram[b]++;
    AULOCK(gl->hlock, b);
  }
}

static void self_scheduled(void)
{
  long i, round;

  for (round = 1; round <= 2; round++) {
    GETSUB(gl->tasks, i, TASKS - 1, P)
    while (i >= 0) {
      gl->square[i] += i * i;
      GETSUB(gl->tasks, i, TASKS - 1, P)
    }
  }
}

static void pipeline(long id)
{
  if (id > 0) {
    WAITPAUSE(stages[id - 1].ready);
    CLEARPAUSE(stages[id - 1].ready);
  }
  if (gl->token != id) fail("the token of the pipeline is not whose turn it is");
  gl->token = id + 1;
  SETPAUSE(stages[id].ready);
}

static void queue(long id)
{
  long i;

  if (P < 2) return;
  if (id == 0) {
    for (i = 1; i <= 50 * (P - 1); i++) {
      LOCK(gl->qlock)
      while (gl->tail - gl->head == QUEUE) CONDVARWAIT(gl->nonfull, gl->qlock);
      gl->queue[gl->tail++ % QUEUE] = i;
      CONDVARSIGNAL(gl->nonempty)
      UNLOCK(gl->qlock)
    }
  } else {
    for (i = 0; i < 50; i++) {
      LOCK(gl->qlock)
      while (gl->tail == gl->head) CONDVARWAIT(gl->nonempty, gl->qlock);
      gl->consumed += gl->queue[gl->head++ % QUEUE];
      CONDVARBCAST(gl->nonfull)
      UNLOCK(gl->qlock)
    }
  }
}

void slave(void)
{
  long id;

  LOCK(gl->idlock)
  id = gl->id++;
  UNLOCK(gl->idlock)
  BARINCLUDE(gl->start);
  BARRIER(gl->start, P);
  stencil(id);
  histogram(id);
  self_scheduled();
  pipeline(id);
  BARRIER(gl->start, P);
  queue(id);
  RELEASE_FENCE()
  BARRIER(gl->start, P);
}

static void check(void)
{
  static double grid[N][N];
  long i, j, t, sum;
  double residual;

  for (i = 0; i < N; i++)
    for (j = 0; j < N; j++) grid[i][j] = (i == 0 || j == 0 || i == N - 1 || j == N - 1) ? (double)(i + j) : 0.0;
  for (t = 0; t < 20; t++)
    for (i = 1; i < N - 1; i++)
      for (j = 1 + (i + t) % 2; j < N - 1; j += 2)
        grid[i][j] = 0.25 * (grid[i - 1][j] + grid[i + 1][j] + grid[i][j - 1] + grid[i][j + 1]);
  residual = 0;
  for (i = 1; i < N - 1; i++)
    for (j = 1; j < N - 1; j++) {
      if (grid[i][j] != gl->grid[i][j]) fail("the grid differs from the sequential one");
      residual += grid[i][j];
    }
  if (fabs(residual - gl->residual) > 1e-6 * fabs(residual)) fail("the sum under the lock is wrong");
  sum = 0;
  for (i = 0; i < BUCKETS; i++) sum += gl->histogram[i];
  if (sum != SAMPLES) fail("the histogram has lost or won samples");
  for (i = 0; i < TASKS; i++)
    if (gl->square[i] != 2 * i * i) fail("a task was not done once in each round");
  if (gl->token != P) fail("the pipeline did not reach its end");
  sum = 50 * (P - 1);
  if (P > 1 && gl->consumed != sum * (sum + 1) / 2) fail("items of the queue were lost or taken twice");
}

int main(int argc, char **argv)
{
  long i, j;
  unsigned long start, finish;

  P = argc > 1 ? atol(argv[1]) : 1;
  if (len(P) < 1 || shift(P) > 64) fail("the number of processes must be 1 to 64");
  MAIN_INITENV(,80000000)
  gl = (Global *) G_MALLOC(sizeof(Global));
  if (gl == NULL) fail("no shared memory");
  stages = (struct stage *) G_MALLOC(P * sizeof(struct stage))
  LOCKINIT(gl->idlock);
  LOCKINIT(gl->reslock)
  ALOCKINIT(gl->hlock, BUCKETS);
  BARINIT(gl->start);
  BARINIT(gl->sweep, P);
  GSINIT(gl->tasks);
  LOCKINIT(gl->qlock);
  CONDVARINIT(gl->nonempty);
  CONDVARINIT(gl->nonfull)
  PAUSEINIT(gl->done);
  for (i = 0; i < P; i++) PAUSEINIT(stages[i].ready);
  for (i = 0; i < N; i++)
    for (j = 0; j < N; j++) gl->grid[i][j] = (i == 0 || j == 0 || i == N - 1 || j == N - 1) ? (double)(i + j) : 0.0;

  CLOCK(start);
#ifdef CREATE_WITH_COUNT
  CREATE(slave, P)
#else
  for (i = 1; i < P; i++) CREATE(slave)
  slave();
#endif
  WAIT_FOR_END(P - 1)
  CLOCK(finish);
  if (finish < start) fail("the clock runs backwards");
  check();
  G_FREE(stages);
  MAIN_END
}
