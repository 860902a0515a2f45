#pragma once
/// \file
/// After a failure our agent starts all ranks again (tessera train --max_restarts): they go on from the newest
/// checkpoint that this very job has written, never from one that an earlier run left in the same folder.

#include <tessera/checkpoint/folder.h>

#include <optional>
#include <string>
#include <vector>

namespace tessera {
struct OutputConfig;
}

namespace tessera::train {

/// Which life of the job this process belongs to.
struct Restart {
  int generation = 0;  ///< 0: the first
  std::string job;     ///< empty: not started by our agent
  /// Where this job's ranks keep copies in the agent's memory (--checkpoint_in_memory); empty: nowhere.
  std::string memory_folder = {};
};

/// From the environment (TESSERA_GENERATION, TESSERA_JOB, TESSERA_MEMORY).
Restart this_restart();

/// Marks the output folder as written to by this job. Rank 0 calls it before it writes anything else there; without a
/// job it does nothing. Throws Error.
void mark_output(const std::string& output_dir, const Restart& restart);
/// Removes the mark: the job is done.
void unmark_output(const std::string& output_dir);

/// The checkpoints that this job has written so far, on the disk and in memory, newest first, whole or not: a rank that
/// was started again goes on from the newest whole one, and begins as the job did at first where there is none.
/// nullopt: this is no restart, or the failed generations had not begun to write: everything is as at the first start.
std::optional<std::vector<checkpoint::StepFolder>> checkpoints_of_job(const OutputConfig& output,
                                                                      const Restart& restart);

}  // namespace tessera::train
