// How a function is declared that compiled code calls by its name.
#pragma once

#define MG_ENTRY extern "C" __attribute__((visibility("default")))
