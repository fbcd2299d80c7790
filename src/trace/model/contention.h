// A price for contention: how long references and moves wait where others want the same memory, which the cost model of
// [Bolosky] leaves out (section 8.1.3).
//
// A simple queueing model, and no more: the processors are the customers of a closed network, each with one reference at a
// time. Of the time that a reference takes on average (the MCPR), a part is spent holding a memory that all can want: the
// global memory, or another processor's (its home). A move of a block holds it for the time that its data take (the part of R
// or G for each byte), and a reference from afar for that of one word of four bytes. Everything else delays nobody. Homes
// are equally often wanted, and times of service are exponential. Mean value analysis ([ReiserLavenberg]) gives the mean time
// of a reference, with its waiting. A home that is wanted more often than others, and the reaction of the program to the
// waiting, are not in it.
#pragma once

#include <span>

#include "trace/model/machine.h"
#include "trace/model/placement.h"

namespace multigrain::trace {

// The mean time of a round of `customers`, each of which thinks for `think` and then needs each station for its demand in turn.
double mean_round(unsigned customers, double think, std::span<const double> demands);

// The MCPR with contention, of a placement with these parts on a machine with so many processors: at least parts.mcpr().
double contended_mcpr(const CostParts& parts, const Machine& machine);

}  // namespace multigrain::trace
