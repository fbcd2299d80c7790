/* In the style of water (section 2.2.10): molecules in a box, forces only between those that are near each other. A
 * thread has a band of molecules, which are in the order of their places, gathers the forces of its pairs by itself and
 * adds them up under a lock a molecule. Here a molecule is a point with a Lennard-Jones potential (reduced units). */
#include <math.h>

#include "traced.h"

struct molecule {
  double position[3];
  double velocity[3];
  double force[3];
  pthread_mutex_t lock;
};

static struct molecule* molecules;
static int count;
static double side;
static const double kCutoff = 2.5;
static const double kTimeStep = 0.002;

static double energy_sum[2];
static pthread_mutex_t energy_lock = PTHREAD_MUTEX_INITIALIZER;

/* Forces between m and those that follow it. */
static void interact(int m, double (*forces)[3], double* potential) {
  for (int n = m + 1; n < count; ++n) {
    double difference[3];
    double squared = 0;
    for (int i = 0; i < 3; ++i) {
      double d = molecules[m].position[i] - molecules[n].position[i];
      d -= side * nearbyint(d / side);
      difference[i] = d;
      squared += d * d;
    }
    if (squared >= kCutoff * kCutoff) continue;
    const double inverse = 1 / squared;
    const double sixth = inverse * inverse * inverse;
    *potential += 4 * sixth * (sixth - 1);
    const double strength = 48 * sixth * (sixth - 0.5) * inverse;
    for (int i = 0; i < 3; ++i) {
      forces[m][i] += strength * difference[i];
      forces[n][i] -= strength * difference[i];
    }
  }
}

static void simulate(int id) {
  const int first = band_begin(id, count);
  const int end = band_begin(id + 1, count);
  double(*forces)[3] = malloc((size_t)count * sizeof *forces);
  if (forces == NULL) exit(1);
  for (int step = 0; step < options.steps; ++step) {
    memset(forces, 0, (size_t)count * sizeof *forces);
    double potential = 0;
    /* Every other molecule: later ones have fewer to follow them. */
    for (int m = id; m < count; m += options.threads) interact(m, forces, &potential);
    for (int m = 0; m < count; ++m) {
      if (forces[m][0] == 0 && forces[m][1] == 0 && forces[m][2] == 0) continue;
      pthread_mutex_lock(&molecules[m].lock);
      for (int i = 0; i < 3; ++i) molecules[m].force[i] += forces[m][i];
      pthread_mutex_unlock(&molecules[m].lock);
    }
    wait_for_all();
    double kinetic = 0;
    for (int m = first; m < end; ++m) {
      for (int i = 0; i < 3; ++i) {
        const double halfway = molecules[m].velocity[i] + molecules[m].force[i] * kTimeStep / 2;
        kinetic += halfway * halfway / 2;
        molecules[m].velocity[i] += molecules[m].force[i] * kTimeStep;
        molecules[m].position[i] += molecules[m].velocity[i] * kTimeStep;
        molecules[m].force[i] = 0;
      }
    }
    if (step == 0 || step == options.steps - 1) {
      pthread_mutex_lock(&energy_lock);
      energy_sum[step != 0] += potential + kinetic;
      pthread_mutex_unlock(&energy_lock);
    }
    wait_for_all();
  }
  free(forces);
}

int main(int argc, char** argv) {
  parse_options(argc, argv, 125, 4, "");
  if (options.size > 8192) options.size = 8192;
  count = options.size;
  const int edge = (int)ceil(cbrt(count));
  const double spacing = 1.2;
  side = spacing * edge > 2 * kCutoff ? spacing * edge : 2 * kCutoff;
  molecules = allocate((size_t)count * sizeof *molecules);
  for (int m = 0; m < count; ++m) {
    const int place[3] = {m % edge, m / edge % edge, m / edge / edge};
    for (int i = 0; i < 3; ++i) {
      molecules[m].position[i] = spacing * place[i];
      molecules[m].velocity[i] = 2 * random_unit((uint64_t)m * 3 + (uint64_t)i) - 1;
      molecules[m].force[i] = 0;
    }
    pthread_mutex_init(&molecules[m].lock, NULL);
  }
  run_threads(simulate);
  const double drift = options.steps > 1 ? fabs(energy_sum[1] - energy_sum[0]) : 0;
  const int good = isfinite(energy_sum[0]) && drift < 0.02 * fabs(energy_sum[0]) + 0.02 * count;
  free(molecules);
  /* Sums of floating-point numbers depend on their order in the last places. */
  return report("water", good, nearbyint(energy_sum[0] * 1e3) / 1e3);
}
