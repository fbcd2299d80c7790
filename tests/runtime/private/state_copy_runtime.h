// The program of state_copy_test needs this little of a runtime: two nodes, one of which copies its state to the other.
#pragma once

// Called on node 0. Copies the private state to node 1, runs `function(argument)` there, and returns what it returned.
// Returns -1 if the totals that send_state reports cannot be.
__attribute__((visibility("default"))) long copy_and_run(long (*function)(void*), void* argument);
// These return the bytes of the heap and of the globals that the last copy sent.
__attribute__((visibility("default"))) unsigned long last_heap_bytes();
__attribute__((visibility("default"))) unsigned long last_global_bytes();
