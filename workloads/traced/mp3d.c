/* In the style of mp3d (section 2.2.8): molecules of a rarefied gas fly through a space of cells and collide with
 * another that is in the same cell in the same step. Molecules are dealt to threads by number, so their array has some
 * locality and the array of cells has none. Those that leave at the back come in again in front. */
#include <math.h>

#include "traced.h"

enum { kDepth = 14, kHeight = 12, kWidth = 10 };

struct molecule {
  double position[3];
  double velocity[3];
};
struct cell {
  pthread_mutex_t lock;
  int step;      /* of what follows */
  int molecules; /* that came by */
  int partner;   /* waits for a collision, or -1 */
};

static struct molecule* molecules;
static struct cell* space;
static const double kExtent[3] = {kDepth, kHeight, kWidth};

/* Two molecules of equal mass turn their relative velocity: momentum and energy stay. */
static void collide(struct molecule* a, struct molecule* b) {
  double middle[3];
  double half[3];
  for (int i = 0; i < 3; ++i) {
    middle[i] = (a->velocity[i] + b->velocity[i]) / 2;
    half[i] = (a->velocity[i] - b->velocity[i]) / 2;
  }
  for (int i = 0; i < 3; ++i) {
    a->velocity[i] = middle[i] + half[(i + 1) % 3];
    b->velocity[i] = middle[i] - half[(i + 1) % 3];
  }
}

static void fly(int id) {
  const int first = band_begin(id, options.size);
  const int end = band_begin(id + 1, options.size);
  for (int step = 1; step <= options.steps; ++step) {
    for (int m = first; m < end; ++m) {
      struct molecule* molecule = &molecules[m];
      int at[3];
      for (int i = 0; i < 3; ++i) {
        double x = molecule->position[i] + 0.1 * molecule->velocity[i];
        x -= kExtent[i] * floor(x / kExtent[i]);
        if (x >= kExtent[i]) x = 0;
        molecule->position[i] = x;
        at[i] = (int)x;
      }
      struct cell* cell = &space[(at[0] * kHeight + at[1]) * kWidth + at[2]];
      pthread_mutex_lock(&cell->lock);
      if (cell->step != step) {
        cell->step = step;
        cell->partner = -1;
      }
      ++cell->molecules;
      /* A partner of another thread might be flying by now: only one's own are collided with. */
      if (cell->partner >= first && cell->partner < end) {
        collide(molecule, &molecules[cell->partner]);
        cell->partner = -1;
      } else {
        cell->partner = m;
      }
      pthread_mutex_unlock(&cell->lock);
    }
    wait_for_all();
  }
}

static double energy(void) {
  double sum = 0;
  for (int m = 0; m < options.size; ++m) {
    for (int i = 0; i < 3; ++i) sum += molecules[m].velocity[i] * molecules[m].velocity[i];
  }
  return sum;
}

int main(int argc, char** argv) {
  parse_options(argc, argv, 2000, 5, "");
  molecules = allocate((size_t)options.size * sizeof *molecules);
  space = allocate(sizeof *space * kDepth * kHeight * kWidth);
  for (int m = 0; m < options.size; ++m) {
    for (int i = 0; i < 3; ++i) {
      const uint64_t index = (uint64_t)m * 6 + (uint64_t)i;
      molecules[m].position[i] = random_unit(index) * kExtent[i];
      molecules[m].velocity[i] = 2 * random_unit(index + 3) - 1 + (i == 0 ? 3 : 0);
    }
  }
  for (int i = 0; i < kDepth * kHeight * kWidth; ++i) {
    space[i] = (struct cell){.step = 0, .molecules = 0, .partner = -1};
    pthread_mutex_init(&space[i].lock, NULL);
  }
  const double before = energy();
  run_threads(fly);
  const double after = energy();
  int64_t visits = 0;
  for (int i = 0; i < kDepth * kHeight * kWidth; ++i) visits += space[i].molecules;
  const int good = fabs(after - before) < 1e-6 * before && visits == (int64_t)options.size * options.steps;
  free(molecules);
  free(space);
  return report("mp3d", good, (double)visits);
}
