#include "globals_library.h"

int library_global = 11;

int* library_static() {
  static int hidden = 12;
  return &hidden;
}
