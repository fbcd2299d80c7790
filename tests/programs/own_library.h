// This is a shared library as programs bring their own: it has variables of every kind, and a parallel sum that relies
// on them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

extern int library_counter;  // executables may hold the copy of it that everybody uses
extern std::vector<std::string> library_names;

// Calls mg_spawn_all and keeps what the processors need in static variables.
long library_sum(const int* numbers, size_t count);

// Returns a static local.
int& library_setting();
