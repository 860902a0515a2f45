#pragma once
/// \file
/// Names the limiting resource of a run in one line, with the supporting numbers.

#include <tessera/train/reporting/phases.h>

#include <cstdint>
#include <string>

namespace tessera::train {

/// Means over a run, or over its observed part.
struct Utilization {
  PhaseSeconds seconds = {};     ///< seconds per step, mean over the ranks
  double cpu_utilization = 0;    ///< processor time / (time x threads x ranks), during steps; 0: unknown
  double flops_utilization = 0;  ///< share of the measured peak (MFU); 0: unknown
  std::int64_t steps = 100;      ///< number of steps in these means
  std::int64_t ranks = 1, local_ranks = 1;
  std::int64_t threads = 1;           ///< per rank
  std::int64_t cores = 0;             ///< cores of the host that the processes may use; 0: unknown
  std::int64_t micro_batch = 1;       ///< rows
  std::int64_t accumulation = 1;      ///< micro-batches per step
  bool gathers_parameters = false;    ///< whole parameters are gathered for every micro-batch
  std::string cut_axis = "";          ///< "tp", "cp" or "pp" if this rank waits most for that axis; otherwise empty
  std::int64_t peak_bytes = 0;        ///< peak bytes of the rank with the highest peak
  std::int64_t activation_bytes = 0;  ///< the part of peak_bytes that activations occupy
  std::int64_t machine_bytes = 0;     ///< memory of the host; 0: unknown
};

struct Advice {
  std::string bound;  ///< "compute-bound" | "memory-bound" | "communication-bound" | "input-bound" | "overhead-bound"
  std::string text;   ///< reason and remedy: one or two sentences
  std::string line() const { return bound + ": " + text; }
};

/// Checks in this order: memory that is nearly used up (over 85 % of the host's); then the largest of input,
/// communication, and logs and checkpoints, if it takes more than a fifth of the time; otherwise the run is
/// compute-bound. Pure function.
Advice advise(const Utilization& run);

}  // namespace tessera::train
