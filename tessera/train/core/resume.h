#pragma once
/// \file
/// Chooses the checkpoint from which a run resumes (--resume_from_checkpoint), for `tessera train` and the faces. Takes
/// the newest complete one; a damaged one is set aside with a warning (checkpoint/choose.h).

#include <tessera/checkpoint/choose.h>
#include <tessera/comm/group.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tessera {
struct OutputConfig;
}

namespace tessera::train {

struct ResumeRules {
  checkpoint::Depth depth = checkpoint::Depth::all;  ///< how thoroughly a checkpoint is checked before it is loaded
  checkpoint::WhyNotResumable why_not = checkpoint::why_not_resumable;
};

/// Whether the setting names a folder, in which case exactly that one is used.
bool names_a_folder(const OutputConfig& output);

/// The folder that the setting selects; empty: the run starts from scratch. `rejected`: folders to skip. Collective;
/// the same on every rank. If there is nothing to resume from, or a named folder is incomplete, rank 0 throws
/// InputError and the others throw FailedElsewhere.
std::string checkpoint_to_resume(const OutputConfig& output, const comm::Group& group, const ResumeRules& rules,
                                 const std::set<std::string>& rejected = {});
/// Returns the newest of `candidates` that is complete and not rejected. Collective; throws as above.
std::optional<std::string> newest_whole(std::vector<checkpoint::StepFolder> candidates, const comm::Group& group,
                                        const ResumeRules& rules, const std::set<std::string>& rejected = {});

/// Throws InputError on rank 0 and FailedElsewhere on the others. Every rank calls it.
[[noreturn]] void refuse(const comm::Group& group, const std::string& why);
/// The ranks of a group that check a checkpoint together, each with all its threads.
checkpoint::Ranks examiners(const comm::Group& group);

}  // namespace tessera::train
