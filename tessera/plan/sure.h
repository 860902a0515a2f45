#pragma once
/// \file
/// How sure a prediction is, and which of plans that are equally fast to it is taken.

#include <tessera/plan/search.h>

#include <string>
#include <vector>

namespace tessera::plan {

/// How far predicted times are from measured ones, as a share, and how that is known.
struct Sureness {
  double median = 0;   ///< half of the runs are nearer
  double most = 0;     ///< nine of ten are nearer
  double equal = 0;    ///< plans whose times differ by less are equal
  std::string source;  ///< the runs that show it, for people
};
/// Three kinds: this machine's own calibration; devices of which published runs were compared
/// (bench/plan_published.py); others, of which only the data sheet is known.
Sureness sureness(const Cluster& cluster, const Engine& engine = {});

/// Messages that a rank takes part in during a step: collectives of tensor, context and expert parallelism by block and
/// micro-batch, both ways, those of a pipeline, and those of data parallelism by unit.
double messages_of_step(const Model& model, const Plan& plan);

/// Puts first, among the candidates that are slower than the fastest by less than `tolerance`, the one with the fewest
/// messages, of several such the one that leaves most memory; the others stay in their order. `best` is sorted by time.
/// Says how many are equal, and in words why the first of them is taken; empty: one alone is fastest.
struct Tie {
  std::size_t equal = 1;
  std::string reason;
};
Tie break_tie(const Model& model, std::vector<Candidate>& best, double tolerance);

}  // namespace tessera::plan
