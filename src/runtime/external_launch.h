// Programs that an external launcher (mpirun or srun) has started: each finds out by itself which node of
// which run it is.
//
// mgrun tells a node what it is (MULTIGRAIN_NODE and so on), and turns address randomisation off. Other launchers do
// neither. So the program's first act is to read what they say instead, and to execute itself anew as mgrun would have
// started it. The process stays the same, with its descriptors: the launcher notices nothing.
//
// The environment is not always to be believed. All these variables are inherited by whatever a launched
// process starts, so:
//  - MULTIGRAIN_NODE or MULTIGRAIN_JOB_FD is set: mgrun, or this very file, has started the process. The program looks
//    at nothing else.
//  - MULTIGRAIN_NODES=1: the user wants every process to be a program of its own.
//  - PMI_FD, PMI_RANK and PMI_SIZE (MPICH's mpirun; srun --mpi=pmi2) count if PMI_FD is an open socket. A process that
//    was started with its descriptors closed has no part in the job.
//  - PMIX_NAMESPACE and PMIX_RANK count, with the number of processes from OMPI_COMM_WORLD_SIZE (Open MPI's mpirun) or,
//    if the name space is one of Slurm's, SLURM_STEP_NUM_TASKS (srun --mpi=pmix).
//  - One process is no run: a job of one process leaves the program alone.
//  - Slurm's other variables mean nothing: they are set as well in shells inside an allocation (salloc, sbatch), where
//    programs that are run by hand are on their own. Only a task of a step of several (SLURM_TASK_PID is this process)
//    that has neither PMIx nor PMI-2 is an error: it would silently run as many programs.
//  - A script between the launcher and the program changes nothing; MPI libraries hold it alike.
//  - A process that a node itself starts is no part of the node's run: forget_launch() takes all of these variables out
//    of the environment that such a process gets.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace multigrain {

// The facts on which the decision depends.
struct LaunchFacts {
  std::map<std::string, std::string, std::less<>> environment;
  pid_t process = 0;
  // Those descriptors that the environment names and that are open sockets.
  std::vector<int> sockets;
  unsigned usable_cores = 1;  // the cores of this process
  unsigned host_cores = 1;    // the cores of the whole host
};

struct ExternalLaunch {
  std::string wireup;  // "pmix" or "pmi2"
  unsigned node = 0;
  unsigned nodes = 1;
  unsigned nodes_here = 1;  // on this host
  // For MULTIGRAIN_CORES: the cores of the whole run, if every host is like this one.
  unsigned cores = 1;
};

// Returns what an external launcher has made of this process; nothing if it is a program on its own, or if mgrun
// started it. Errors: the launcher has started several processes in a way that does not let them meet, or settings
// contradict it.
Result<std::optional<ExternalLaunch>> detect_external_launch(const LaunchFacts& facts);

// Detects an external launch, and if there is one executes the program anew as a node: then it does not return unless
// that fails. Called before anything else of the runtime, and while no other thread runs. Errors: those above; address
// randomisation cannot be turned off.
Status join_external_launch(char** argv);

// Takes what launchers told this process out of its environment, because programs that it starts would believe it.
// Called when the nodes have met and the settings have been read, before the program runs. The user's settings stay.
void forget_launch();

}  // namespace multigrain
