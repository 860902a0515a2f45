#pragma once
/// \file
/// Ranks all plans of a cluster (meshes x strategies x schedules x recomputation x micro-batches) that are valid and
/// fit. First evaluates every point with formulas (about 1 microsecond each, on `threads` threads), then the best ones
/// with the schedules' action lists. Among plans that differ by less than the prediction error, the one with fewer
/// messages wins (sure.h). The result does not depend on the number of threads.

#include <tessera/plan/time.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::plan {

/// The fixed and the variable choices of a search.
struct Question {
  Model model;
  Cluster cluster;
  std::int64_t sequence = 0;      ///< tokens per row; 0: min(4096, the model's positions)
  std::int64_t global_batch = 0;  ///< rows per step
  Precision precision = Precision::bf16;
  Engine engine;            ///< the training program
  double memory_limit = 0;  ///< bytes per device; 0: 94 % of its memory
  int threads = 1;
  std::size_t keep = 10;
  // Fixed by the user; 0 or nullopt: searched.
  int tp = 0, pp = 0, cp = 0, ep = 0;
  std::int64_t rows = 0, micro_batches = 0;
  std::int64_t least_rows = 1, most_rows = 0;  ///< bounds for the rows of a micro-batch in the search; most_rows 0: no
                                               ///< limit
  std::optional<std::int64_t> recompute;
  std::optional<Strategy> strategy;
  std::optional<std::string> schedule;
};

struct Candidate {
  Plan plan;
  StepTime time;
  Memory memory;                                  ///< memory of the rank that needs the most
  int rank = 0;                                   ///< index of that rank along pp
  double seconds = 0;                             ///< per step
  double tokens_per_second = 0, utilization = 0;  ///< throughput of the whole cluster; MFU
};

struct Answer {
  /// Fastest first, except that break_tie() (sure.h) may move one forward among equally fast ones.
  std::vector<Candidate> best;
  std::size_t equal = 1;              ///< number of plans whose times are indistinguishable
  std::string decided_by;             ///< reason why the first of them was chosen; empty: it is the fastest
  std::optional<Candidate> smallest;  ///< if nothing fits: the plan that needs the least
  std::uint64_t points = 0, too_large = 0;
  double seconds = 0;  ///< duration of the search
};

/// Throws InputError for a contradictory query: a batch that no mesh divides, axes that do not fit.
Answer search(const Question& question);

/// Evaluates one plan in full: exact memory of the fullest rank, simulated time.
Candidate evaluate(const Question& question, Plan plan);

/// Memory of every rank along pp, computed like that of the fullest rank in evaluate().
std::vector<Memory> memory_of_ranks(const Question& question, const Plan& plan);

/// A change of one setting of the best plan, and its effect.
struct Neighbour {
  std::string change;   ///< "tp 4"
  std::string verdict;  ///< "4.1 % slower: tensor +0.31 s", "does not fit: 97.2 of 80.0 GB, activations 41.0"
};
std::vector<Neighbour> neighbours(const Question& question, const Candidate& best);

/// Compares another engine's plan with our engine's under the same settings: our time, and the largest difference.
std::string against_ours(const Question& question, const Candidate& theirs);

/// The arguments of `tessera train` that run the plan (without data and output).
std::vector<std::string> train_arguments(const Question& question, const Plan& plan);
/// The command that runs the plan, by lines: `tessera train` with its arguments, without data and output. For a
/// recorded module: the launcher, and the options that the user's C++ program passes to the library.
std::vector<std::string> run_lines(const Question& question, const Plan& plan);
/// "activations, 41.2 GB" or "products, 61 % of the step": the limiting factor.
std::string limit_of(const Question& question, const Candidate& candidate);

}  // namespace tessera::plan
