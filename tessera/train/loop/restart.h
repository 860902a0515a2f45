#pragma once
/// \file
/// After a failure our agent restarts all ranks (tessera train --max_restarts): they resume from the newest checkpoint
/// that this job has written, never from one that an earlier run left in the same folder.

#include <tessera/checkpoint/folder.h>

#include <optional>
#include <string>
#include <vector>

namespace tessera {
struct OutputConfig;
}

namespace tessera::train {

/// Identifies the job and the generation of this process.
struct Restart {
  int generation = 0;  ///< 0: the first start
  std::string job;     ///< empty: not started by our agent
  /// Folder of the copies in the agent's memory (--checkpoint_in_memory); empty: none.
  std::string memory_folder = {};
};

/// Reads the environment (TESSERA_GENERATION, TESSERA_JOB, TESSERA_MEMORY).
Restart this_restart();

/// Marks the output folder as written to by this job. Rank 0 calls it before writing anything else there; does nothing
/// without a job. Throws Error.
void mark_output(const std::string& output_dir, const Restart& restart);
/// Removes the mark when the job is done.
void unmark_output(const std::string& output_dir);

/// The checkpoints that this job has written so far, on disk and in memory, newest first, complete or not: a restarted
/// rank resumes from the newest complete one, or else starts as the job did. nullopt: this is not a restart, or the
/// failed generations had not written anything, so the run behaves as at the first start.
std::optional<std::vector<checkpoint::StepFolder>> checkpoints_of_job(const OutputConfig& output,
                                                                      const Restart& restart);

}  // namespace tessera::train
