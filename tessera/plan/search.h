#pragma once
/// \file
/// All plans of a cluster, ranked: meshes x strategies x schedules x recomputation x micro-batches, without those that
/// cannot be or do not fit. First every point by formulas (about 1 microsecond each, on as many threads as asked), then
/// the best ones by the schedules' own action lists. Of plans that differ by less than the error of predictions the one
/// with fewer messages is taken (sure.h). The result does not depend on the number of threads.

#include <tessera/plan/time.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::plan {

/// What may vary, and what may not.
struct Question {
  Model model;
  Cluster cluster;
  std::int64_t sequence = 0;      ///< tokens of a row; 0: min(4096, the model's positions)
  std::int64_t global_batch = 0;  ///< rows of a step
  Precision precision = Precision::bf16;
  Engine engine;            ///< whose program trains
  double memory_limit = 0;  ///< bytes a device may need; 0: 94 % of what it has
  int threads = 1;
  std::size_t keep = 10;
  // Fixed by the user; 0 or nullopt: to be chosen.
  int tp = 0, pp = 0, cp = 0, ep = 0;
  std::int64_t rows = 0, micro_batches = 0;
  std::int64_t least_rows = 1, most_rows = 0;  ///< bounds of the rows that are chosen; 0: any number
  std::optional<std::int64_t> recompute;
  std::optional<Strategy> strategy;
  std::optional<std::string> schedule;
};

struct Candidate {
  Plan plan;
  StepTime time;
  Memory memory;                                  ///< what the rank that needs most has
  int rank = 0;                                   ///< along pp
  double seconds = 0;                             ///< for a step
  double tokens_per_second = 0, utilization = 0;  ///< the whole cluster's; MFU
};

struct Answer {
  /// Fastest first, but for the one that break_tie() (sure.h) puts before others that are as fast.
  std::vector<Candidate> best;
  std::size_t equal = 1;              ///< so many of them cannot be told apart by their times
  std::string decided_by;             ///< why the first of them is taken; empty: it is faster than all others
  std::optional<Candidate> smallest;  ///< when nothing fits: what needs least
  std::uint64_t points = 0, too_large = 0;
  double seconds = 0;  ///< that the search took
};

/// Throws InputError when the question contradicts itself: a batch that no mesh divides, axes that do not fit.
Answer search(const Question& question);

/// One plan in full: exact memory of the fullest rank, simulated time.
Candidate evaluate(const Question& question, Plan plan);

/// Every rank along pp, as evaluate() counts the fullest.
std::vector<Memory> memory_of_ranks(const Question& question, const Plan& plan);

/// A change of one setting of the best plan, and what becomes of it.
struct Neighbour {
  std::string change;   ///< "tp 4"
  std::string verdict;  ///< "4.1 % slower: tensor +0.31 s", "does not fit: 97.2 of 80.0 GB, activations 41.0"
};
std::vector<Neighbour> neighbours(const Question& question, const Candidate& best);

/// What another engine's plan takes in ours, with the same settings, and where most of the difference is.
std::string against_ours(const Question& question, const Candidate& theirs);

/// The arguments of `tessera train` that run it (without data and output).
std::vector<std::string> train_arguments(const Question& question, const Plan& plan);
/// What runs it, in lines: `tessera train` with its arguments, without data and output. Of a recorded module the
/// launcher and the options that the user's own program gives the library (C++).
std::vector<std::string> run_lines(const Question& question, const Plan& plan);
/// "activations, 41.2 GB" or "products, 61 % of the step": what stands in the way of more.
std::string limit_of(const Question& question, const Candidate& candidate);

}  // namespace tessera::plan
