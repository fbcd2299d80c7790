#include "references/execute.h"
#include "references/module/instructions.h"

extern "C" multigrain::references::Execute multigrain_references_module() {
  return &multigrain::references::execute;
}
