#include "base/config.h"
// (being written)
