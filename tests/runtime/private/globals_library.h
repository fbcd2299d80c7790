// A shared library of the program's own, whose variables globals_test looks for.
#pragma once

extern int library_global;

int* library_static();
