// These are wrappers of the C library's mathematical functions that store a result through a pointer, and of generators
// of random numbers whose state is behind a pointer.
#include <cmath>
#include <cstdlib>

#include "instrument/runtime/entry.h"
#include "instrument/runtime/memory_functions.h"
#include "instrument/runtime/private_copies.h"

using namespace multigrain::checks;

// This defines the wrappers for one of three types. `suffix` is that of the type's functions.
#define MG_MATHEMATICAL(suffix, T)                                     \
  MG_ENTRY T __multigrain_frexp##suffix(T x, int* exponent) {          \
    return frexp##suffix(x, in_out(exponent));                         \
  }                                                                    \
  MG_ENTRY T __multigrain_modf##suffix(T x, T* whole) {                \
    return modf##suffix(x, in_out(whole));                             \
  }                                                                    \
  MG_ENTRY void __multigrain_sincos##suffix(T x, T* sine, T* cosine) { \
    sincos##suffix(x, in_out(sine), in_out(cosine));                   \
  }                                                                    \
  MG_ENTRY T __multigrain_remquo##suffix(T x, T y, int* quotient) {    \
    return remquo##suffix(x, y, in_out(quotient));                     \
  }                                                                    \
  MG_ENTRY T __multigrain_lgamma##suffix##_r(T x, int* sign) {         \
    return lgamma##suffix##_r(x, in_out(sign));                        \
  }                                                                    \
  MG_ENTRY T __multigrain_nan##suffix(const char* tag) {               \
    return nan##suffix(Text(tag));                                     \
  }
MG_MATHEMATICAL(, double)
MG_MATHEMATICAL(f, float)
MG_MATHEMATICAL(l, long double)

MG_ENTRY int __multigrain_rand_r(unsigned* seed) {
  return rand_r(in_out(seed));
}

// The state is three words of 16 bits.
static InOutBytes state_of_48(unsigned short* state) {
  return {state, 3 * sizeof *state};
}
MG_ENTRY double __multigrain_erand48(unsigned short* state) {
  return erand48(state_of_48(state));
}
MG_ENTRY long __multigrain_nrand48(unsigned short* state) {
  return nrand48(state_of_48(state));
}
MG_ENTRY long __multigrain_jrand48(unsigned short* state) {
  return jrand48(state_of_48(state));
}
MG_ENTRY unsigned short* __multigrain_seed48(unsigned short* state) {
  return seed48(state_of_48(state));
}
MG_ENTRY void __multigrain_lcong48(unsigned short* parameters) {
  lcong48(InOutBytes(parameters, 7 * sizeof *parameters));
}
static InOutBytes state_of_drand48(void* state) {
  return in_out(static_cast<drand48_data*>(state));
}
MG_ENTRY int __multigrain_drand48_r(void* state, double* result) {
  return drand48_r(state_of_drand48(state), in_out(result));
}
MG_ENTRY int __multigrain_lrand48_r(void* state, long* result) {
  return lrand48_r(state_of_drand48(state), in_out(result));
}
MG_ENTRY int __multigrain_mrand48_r(void* state, long* result) {
  return mrand48_r(state_of_drand48(state), in_out(result));
}
MG_ENTRY int __multigrain_erand48_r(unsigned short* own, void* state, double* result) {
  return erand48_r(state_of_48(own), state_of_drand48(state), in_out(result));
}
MG_ENTRY int __multigrain_nrand48_r(unsigned short* own, void* state, long* result) {
  return nrand48_r(state_of_48(own), state_of_drand48(state), in_out(result));
}
MG_ENTRY int __multigrain_jrand48_r(unsigned short* own, void* state, long* result) {
  return jrand48_r(state_of_48(own), state_of_drand48(state), in_out(result));
}
MG_ENTRY int __multigrain_srand48_r(long seed, void* state) {
  return srand48_r(seed, state_of_drand48(state));
}
