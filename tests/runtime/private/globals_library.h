// This is a shared library of the program's own, for whose variables globals_test looks.
#pragma once

extern int library_global;

int* library_static();
