// Declares the functions that calls.def names for the calls that the host carries out or looks at. Each returns what
// the system call does: a result, or -errno.
#pragma once

#include "guest/calls.h"

namespace multigrain::guest::call {

// calls.cpp has this one, for calls that calls.def lists with a function although they need none of their own.
using guest::pass;

// memory_calls.cpp
long map(Call& call);
long unmap(Call& call);
long protect(Call& call);
long protect_with_key(Call& call);
long lock_all(Call& call);
long remap(Call& call);
long set_break(Call& call);
long advise(Call& call);
long barrier(Call& call);
long attach(Call& call);
long detach(Call& call);

// signal_calls.cpp
long signal_action(Call& call);
long signal_mask(Call& call);
long signal_return(Call& call);
long signal_stack(Call& call);
long signal_pending(Call& call);
long signal_wait(Call& call);
// These are for calls with a signal mask for their own time, in the argument that the name says or where
// the sixth points.
long masked_first(Call& call);
long masked_fourth(Call& call);
long masked_fifth(Call& call);
long masked_indirectly(Call& call);

// process_calls.cpp
long clone(Call& call);
long fork(Call& call);
long vfork(Call& call);
long exit_thread(Call& call);
long exit_process(Call& call);
long set_tid_address(Call& call);
long set_robust_list(Call& call);
long arch_prctl(Call& call);
long prctl(Call& call);

// exec_calls.cpp
long execute(Call& call);
long execute_at(Call& call);

// file_calls.cpp
long open(Call& call);
long open_at(Call& call);
long open_how(Call& call);
long read_link(Call& call);
long read_link_at(Call& call);
long path_first(Call& call);
long path_second(Call& call);
// These do the same for calls with flags that may say that a link itself is meant.
long path_and_flags_third(Call& call);
long path_and_flags_fourth(Call& call);

// descriptor_calls.cpp
long close_range(Call& call);
long list_folder(Call& call);
long list_folder_as_before(Call& call);
long get_limit(Call& call);
long set_limit(Call& call);
long limit(Call& call);

// processor_calls.cpp
long set_processors(Call& call);
long get_processors(Call& call);
long get_processor(Call& call);

}  // namespace multigrain::guest::call
