// What HLRC's driver is built with where it is explored (hlrc_driver_world.h): the stops of driver_steps.h, rings whose
// capacity is the scenario's, and profiles that take no time. States that differ in nothing but a time stamp on a stack
// would not be found to be equal.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "driver_steps.h"

#define MULTIGRAIN_MOST_NODES 64
#define MULTIGRAIN_RING(name, entries) inline uint64_t name = entries
#define ticks() uint64_t{0}
