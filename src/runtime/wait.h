// Moved: fabric/wait.h.
#pragma once
#include "fabric/wait.h"  // IWYU pragma: export
