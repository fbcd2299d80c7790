// What the Python package multigrain asks of the runtime beyond the public interface, and how an interpreter becomes a worker.
#pragma once

#include <span>

#include "multigrain/multigrain.h"
#include "runtime/node.h"
#include "runtime/start.h"

namespace multigrain::interpreter {

// The life of a node other than 0: as soon as there is work it is the interpreter, by its main(), as a worker; when node 0
// ends the run the process ends. Returns what the interpreter's main() returns, which is not what a worker does if all is
// well.
int run_worker(Node& node, std::span<char* const> arguments, char** environment, MainFunction interpreter_main);

}  // namespace multigrain::interpreter

extern "C" {

// The function of processors that work for the interpreter, for mg_spawn: it waits until this node's interpreter has said what
// is to be called, and calls that. With a null pointer it only has the node's interpreter begin, and does not wait.
MG_API void __multigrain_interpreter_work(void* argument);

// From now on processors of this node that work for the interpreter call this. Called once on each node.
MG_API void __multigrain_set_interpreter_work(mg_function work);

// Returns whether the run writes checkpoints.
MG_API int __multigrain_writes_checkpoints(void);

// mg_checkpoint() as a function of processors, for mg_spawn: those that have nothing to do write their part, without their
// node's interpreter.
MG_API void __multigrain_interpreter_checkpoint(void* root);

// Returns the version of the library, which must be the package's.
MG_API const char* __multigrain_version(void);
}
