/* Regions and what synchronises their threads: teams of every size, arguments, barriers, critical sections, locks, single,
 * copyprivate, copyin, sections, reductions, nested regions, leagues of teams. */
#include "program.h"

static int threads;
static int private_to_thread = 5;
#pragma omp threadprivate(private_to_thread)

static void teams_of_every_size(void) {
  int present[64] = {0};
  for (int wanted = 1; wanted <= threads + 1; ++wanted) {
    int size = 0;
    memset(present, 0, sizeof present);
#pragma omp parallel num_threads(wanted)
    {
      present[omp_get_thread_num()] += 1;
      REQUIRE(omp_in_parallel() == (omp_get_num_threads() > 1));
      REQUIRE(omp_get_level() == 1 && omp_get_active_level() == omp_in_parallel());
#pragma omp barrier
      REQUIRE(present[(omp_get_thread_num() + 1) % omp_get_num_threads()] == 1);
#pragma omp master
      size = omp_get_num_threads();
    }
    REQUIRE(size == (wanted < threads ? wanted : threads));
    for (int i = 0; i < size; ++i) REQUIRE(present[i] == 1);
    REQUIRE(omp_get_level() == 0 && !omp_in_parallel() && omp_get_num_threads() == 1);
  }
}

static void all_processors_take_part(void) {
  int node[64];
#pragma omp parallel
  node[omp_get_thread_num()] = (int)mg_node();
  for (int i = 0; i < threads; ++i) REQUIRE(node[i] == i / (int)mg_processors_per_node());
  REQUIRE(omp_get_num_places() == (int)mg_nodes());
}

static void arguments_of_many_kinds(void) {
  int a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8, i = 9, j = 10, k = 11, l = 12, m = 13, n = 14, o = 15,
      p = 16, q = 17, r = 18, s = 19;
  double real = 1.5;
  int sum = 0;
#pragma omp parallel firstprivate(a, b, c, d, real) reduction(+ : sum)
  {
    sum += a + b + c + d + e + f + g + h + i + j + k + l + m + n + o + p + q + r + s;
    REQUIRE(real == 1.5);
    a = b = c = d = -1;
  }
  REQUIRE(sum == 190 * threads && a == 1 && d == 4);
}

static void locks_and_sections(void) {
  long in_critical = 0, in_other = 0, with_lock = 0, with_nested = 0, tried = 0;
  omp_lock_t lock;
  omp_nest_lock_t nested;
  omp_init_lock(&lock);
  omp_init_nest_lock_with_hint(&nested, omp_sync_hint_contended);
#pragma omp parallel
  for (int i = 0; i < 50; ++i) {
#pragma omp critical
    {
      ++in_critical;
#pragma omp critical(other)
      ++in_other;
    }
    omp_set_lock(&lock);
    ++with_lock;
    omp_unset_lock(&lock);
    omp_set_nest_lock(&nested);
    omp_set_nest_lock(&nested);
    ++with_nested;
    REQUIRE(omp_test_nest_lock(&nested) == 3);
    omp_unset_nest_lock(&nested);
    omp_unset_nest_lock(&nested);
    omp_unset_nest_lock(&nested);
    while (!omp_test_lock(&lock)) {
    }
    ++tried;
    omp_unset_lock(&lock);
  }
  const long all = 50L * threads;
  REQUIRE(in_critical == all && in_other == all && with_lock == all && with_nested == all && tried == all);
  omp_destroy_lock(&lock);
  omp_destroy_nest_lock(&nested);
}

static void one_for_all(void) {
  int executed = 0, value = 0, in_sections[5] = {0};
#pragma omp parallel private(value)
  {
    for (int round = 0; round < 20; ++round) {
#pragma omp single copyprivate(value)
      {
        ++executed;
        value = 1000 + round;
      }
      REQUIRE(value == 1000 + round);
#pragma omp single nowait
      ++executed;
#pragma omp barrier
    }
#pragma omp sections
    {
#pragma omp section
      ++in_sections[0];
#pragma omp section
      ++in_sections[1];
#pragma omp section
      ++in_sections[2];
    }
#pragma omp masked filter(omp_get_num_threads() - 1)
    in_sections[4] = omp_get_thread_num() + 1;
  }
  REQUIRE(executed == 40 && in_sections[4] == threads);
  for (int i = 0; i < 3; ++i) REQUIRE(in_sections[i] == 1);
}

static void threadprivate_variables(void) {
  private_to_thread = 7;
#pragma omp parallel
  {
    REQUIRE(private_to_thread == (omp_get_thread_num() == 0 ? 7 : 5));
    private_to_thread = 100 + omp_get_thread_num();
  }
#pragma omp parallel
  REQUIRE(private_to_thread == 100 + omp_get_thread_num());
  private_to_thread = 9;
#pragma omp parallel copyin(private_to_thread)
  REQUIRE(private_to_thread == 9);
#pragma omp parallel
  {
#pragma omp single copyprivate(private_to_thread)
    private_to_thread = 11;
    REQUIRE(private_to_thread == 11);
  }
}

static void reductions(void) {
  long sum = 3, all_and = -1, best = -1;
  double product = 1;
  long array[3] = {0, 0, 0};
#pragma omp parallel reduction(+ : sum, array) reduction(& : all_and) reduction(max : best) reduction(* : product)
  {
    const int me = omp_get_thread_num();
    sum += me;
    all_and &= ~(1L << me);
    if (me > best) best = me;
    product *= 2;
    array[me % 3] += me + 1;
  }
  REQUIRE(sum == 3 + (long)threads * (threads - 1) / 2 && best == threads - 1);
  REQUIRE(all_and == ~((1L << threads) - 1) && product == (double)(1L << threads));
  REQUIRE(array[0] + array[1] + array[2] == (long)threads * (threads + 1) / 2);
  long of_loop = 0;
#pragma omp parallel
  {
#pragma omp for reduction(+ : of_loop)
    for (int i = 0; i < 100; ++i) of_loop += i;
    REQUIRE(of_loop == 4950);
  }
}

/* Clang does not call these. */
extern void __kmpc_atomic_fixed4_add(void* place, int thread, int* variable, int value);
extern void __kmpc_atomic_float8_max(void* place, int thread, double* variable, double value);
static void atomic_updates(void) {
  int sum = 0;
  double greatest = -1;
#pragma omp parallel
  for (int i = 0; i < 20; ++i) {
    __kmpc_atomic_fixed4_add(NULL, 0, &sum, omp_get_thread_num() + 1);
    __kmpc_atomic_float8_max(NULL, 0, &greatest, omp_get_thread_num());
  }
  REQUIRE(sum == 20 * threads * (threads + 1) / 2 && greatest == threads - 1);
}

static void nested_regions(void) {
  int inner = 0;
#pragma omp parallel reduction(+ : inner)
  {
    const int me = omp_get_thread_num();
#pragma omp parallel num_threads(4) reduction(+ : inner)
    {
      REQUIRE(omp_get_num_threads() == 1 && omp_get_thread_num() == 0 && omp_get_level() == 2);
      REQUIRE(omp_get_active_level() == (threads > 1) && omp_get_ancestor_thread_num(1) == me);
      REQUIRE(omp_get_team_size(1) == threads && omp_get_team_size(3) == -1);
      ++inner;
    }
    REQUIRE(omp_get_thread_num() == me && omp_get_num_threads() == threads);
  }
  REQUIRE(inner == threads);
#pragma omp parallel if (threads < 0)
  REQUIRE(omp_get_num_threads() == 1 && !omp_in_parallel());
}

static void controls(void) {
  omp_sched_t kind;
  int chunk = 0;
  omp_set_schedule(omp_sched_dynamic, 7);
  omp_set_num_threads(1);
  omp_set_dynamic(1);
#pragma omp parallel num_threads(threads)
  {
    REQUIRE(omp_get_max_threads() == 1 && omp_get_dynamic() == 1);
    omp_set_num_threads(omp_get_thread_num() + 2);
#pragma omp barrier
    REQUIRE(omp_get_max_threads() == omp_get_thread_num() + 2);
  }
  REQUIRE(omp_get_max_threads() == 1);
#pragma omp parallel
  REQUIRE(omp_get_num_threads() == 1);
  omp_get_schedule(&kind, &chunk);
  REQUIRE(kind == omp_sched_dynamic && chunk == 7);
  omp_set_num_threads(threads);
  omp_set_dynamic(0);
  omp_set_max_active_levels(0);
#pragma omp parallel
  REQUIRE(omp_get_num_threads() == 1);
  omp_set_max_active_levels(10);
  REQUIRE(omp_get_max_active_levels() == 1 && omp_get_supported_active_levels() == 1);
  REQUIRE(omp_get_wtime() <= omp_get_wtime() && omp_get_num_procs() == threads);
  REQUIRE(omp_get_num_devices() == 0 && omp_is_initial_device() && !omp_get_cancellation());
}

static void leagues(void) {
  int count[8] = {0}, iterations[100] = {0};
#pragma omp teams num_teams(3)
  {
#pragma omp parallel
    {
#pragma omp critical
      count[omp_get_team_num()] += omp_get_num_teams();
    }
    REQUIRE(omp_get_level() == 0);
#pragma omp distribute parallel for
    for (int i = 0; i < 100; ++i) iterations[i] += 1;
  }
  for (int team = 0; team < 3; ++team) REQUIRE(count[team] == 3 * threads);
  for (int i = 0; i < 100; ++i) REQUIRE(iterations[i] == 1);
}

static void memory(void) {
  long* const block = (long*)omp_alloc(1000 * sizeof(long), omp_default_mem_alloc);
  REQUIRE(block != NULL);
#pragma omp parallel for
  for (int i = 0; i < 1000; ++i) block[i] = i;
  for (int i = 0; i < 1000; ++i) REQUIRE(block[i] == i);
  long* const longer = (long*)omp_realloc(block, 2000 * sizeof(long), omp_null_allocator, omp_null_allocator);
  REQUIRE(longer != NULL && longer[999] == 999);
  omp_free(longer, omp_null_allocator);
  char* const aligned = (char*)omp_aligned_alloc(4096, 10, omp_null_allocator);
  REQUIRE((size_t)aligned % 4096 == 0);
  omp_free(aligned, omp_default_mem_alloc);
}

static void run(int argc, char** argv) {
  (void)argc, (void)argv;
  threads = (int)mg_processors();
  REQUIRE(omp_get_max_threads() == threads);
  all_processors_take_part();
  teams_of_every_size();
  arguments_of_many_kinds();
  locks_and_sections();
  one_for_all();
  threadprivate_variables();
  reductions();
  atomic_updates();
  nested_regions();
  leagues();
  memory();
  controls();
}
