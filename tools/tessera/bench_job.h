#pragma once
/// \file
/// One measured run of `tessera train`, for `tessera bench scaling`.

#include <string>
#include <vector>

namespace tessera::tool {

/// Seconds per step, as means over the timed steps and the ranks.
struct JobFigures {
  double step = 0;  ///< median
  double tokens_per_second = 0;
  double compute = 0;        ///< forward, backward, optimizer
  double input = 0;          ///< waiting for data
  double communication = 0;  ///< blocked in collectives, including waits for late ranks
  double imbalance = 0;      ///< mean excess over the rank that waits least; 0 when unknown
  double other = 0;          ///< the rest of the step
};

/// Runs `tessera train` with these arguments (including an output folder) in child processes and reads
/// OUTPUT/metrics.jsonl; the first `warmup` steps are omitted. Throws Error with the run's own message when it fails,
/// and Error with ExitCode::interrupted when this process is asked to stop (which also ends the run).
JobFigures run_job(const std::vector<std::string>& arguments, const std::string& output, int warmup);

}  // namespace tessera::tool
