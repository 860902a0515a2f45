#pragma once
/// \file
/// What limits a run, in one line with the numbers that say so.

#include <tessera/train/reporting/phases.h>

#include <cstdint>
#include <string>

namespace tessera::train {

/// Means over a run, or over what was seen of it so far.
struct Utilization {
  PhaseSeconds seconds = {};     ///< per step, mean over the ranks
  double cpu_utilization = 0;    ///< processor time / (time x threads x ranks), during steps; 0: unknown
  double flops_utilization = 0;  ///< share of the measured peak (MFU); 0: unknown
  std::int64_t steps = 100;      ///< that the means are of
  std::int64_t ranks = 1, local_ranks = 1;
  std::int64_t threads = 1;           ///< per rank
  std::int64_t cores = 0;             ///< cores of the host that the processes may use; 0: unknown
  std::int64_t micro_batch = 1;       ///< rows
  std::int64_t accumulation = 1;      ///< micro-batches per step
  bool gathers_parameters = false;    ///< whole parameters are gathered for every micro-batch
  std::string cut_axis = "";          ///< "tp", "cp" or "pp" where this rank waits most for those; else empty
  std::int64_t peak_bytes = 0;        ///< bytes of the rank that needs most
  std::int64_t activation_bytes = 0;  ///< activations among these
  std::int64_t machine_bytes = 0;     ///< memory of the host; 0: unknown
};

struct Advice {
  std::string bound;  ///< "compute-bound" | "memory-bound" | "communication-bound" | "input-bound" | "overhead-bound"
  std::string text;   ///< why, and what to change: one sentence, or two
  std::string line() const { return bound + ": " + text; }
};

/// In this order: memory that is nearly used up (over 85 % of the host), then what takes more than a fifth of the
/// time and is not computing - input, communication, logs and checkpoints, the largest share of them first -, else
/// computing. Pure.
Advice advise(const Utilization& run);

}  // namespace tessera::train
