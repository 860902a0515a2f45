#pragma once
/// \file
/// The training loop: data -> micro-batches -> loss.backward() -> reduce -> clip -> optimizer step -> log, evaluate,
/// save.

#include <tessera/base/error.h>
#include <tessera/base/value.h>

namespace tessera {
struct RunConfig;
}

namespace tessera::train {

/// Trains as configured on the ranks of tessera::world() (call init() first), and writes the files listed in
/// docs/architecture.md under "Files of a run" to output_dir: a Hugging Face folder, checkpoint-N/, metrics.jsonl,
/// report.html. `resolved` is the configuration with the origins of its values, for the report. Collective. Returns
/// done, stopped (SIGTERM: after saving) or interrupted (SIGINT).
///
/// Errors in the configuration or input throw InputError before anything is written, on every rank with the same exit
/// code; only one rank's error has a message (comm/run_on_all_ranks.h). Later failures throw Error.
ExitCode train(const RunConfig& config, const Value& resolved);

}  // namespace tessera::train
