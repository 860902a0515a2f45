#pragma once
/// \file
/// Which checkpoint a training goes on from: what --resume_from_checkpoint means, in `tessera train` and in the faces.
/// The newest whole one is taken; a damaged one is set aside with a warning (checkpoint/choose.h).

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
  checkpoint::Depth depth = checkpoint::Depth::all;  ///< how far a checkpoint is looked at before it is loaded
  checkpoint::WhyNotResumable why_not = checkpoint::why_not_resumable;
};

/// The setting is a folder: that one and no other.
bool names_a_folder(const OutputConfig& output);

/// The folder that the setting means; empty: none was asked for. `rejected`: folders that are not to be chosen.
/// Collective; the same on every rank. Where there is nothing to go on from, or a named folder is not whole, rank 0
/// throws InputError and the others FailedElsewhere.
std::string checkpoint_to_resume(const OutputConfig& output, const comm::Group& group, const ResumeRules& rules,
                                 const std::set<std::string>& rejected = {});
/// The newest of `candidates` that is whole and not rejected. Collective; throws in the same way.
std::optional<std::string> newest_whole(std::vector<checkpoint::StepFolder> candidates, const comm::Group& group,
                                        const ResumeRules& rules, const std::set<std::string>& rejected = {});

/// Throws InputError on rank 0 and FailedElsewhere on the others. Every rank calls it.
[[noreturn]] void refuse(const comm::Group& group, const std::string& why);
/// The ranks of a group that examine a checkpoint together, each with all its threads.
checkpoint::Ranks examiners(const comm::Group& group);

}  // namespace tessera::train
