#include <tessera/train/core/resume.h>

#include <ATen/Parallel.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/config/sections/output_config.h>

namespace tessera::train {
namespace {

bool may_begin_anew(const OutputConfig& output) { return to_lower(output.resume_from_checkpoint) == "auto"; }

bool asks_for_newest(const OutputConfig& output) {
  const std::string asked = to_lower(output.resume_from_checkpoint);
  return asked == "true" || asked == "last" || may_begin_anew(output);
}

}  // namespace

bool names_a_folder(const OutputConfig& output) {
  return !output.resume_from_checkpoint.empty() && to_lower(output.resume_from_checkpoint) != "false" &&
         !asks_for_newest(output);
}

std::string checkpoint_to_resume(const OutputConfig& output, const comm::Group& group, const ResumeRules& rules,
                                 const std::set<std::string>& rejected) {
  const std::string& asked = output.resume_from_checkpoint;
  if (names_a_folder(output)) {
    const checkpoint::Ranks ranks = examiners(group);
    const checkpoint::Finding finding = checkpoint::examine(asked, ranks, rules.depth, rules.why_not);
    if (finding.kind != checkpoint::Finding::Kind::whole)
      refuse(group, checkpoint::named_but_not_whole(asked, finding, ranks, rules.why_not));
    return asked;
  }
  if (!asks_for_newest(output)) return "";
  std::vector<checkpoint::StepFolder> candidates;
  comm::run_on_all_ranks(group, [&] { candidates = checkpoint::step_folders(output.output_dir); });
  const auto found = newest_whole(std::move(candidates), group, rules, rejected);
  if (!found && may_begin_anew(output)) return "";
  if (!found)
    refuse(group, concat("--resume_from_checkpoint ", asked, ": ", output.output_dir,
                         " has no complete checkpoint-N folder; remove the flag to start from scratch"));
  return *found;
}

std::optional<std::string> newest_whole(std::vector<checkpoint::StepFolder> candidates, const comm::Group& group,
                                        const ResumeRules& rules, const std::set<std::string>& rejected) {
  std::erase_if(candidates, [&](const checkpoint::StepFolder& folder) { return rejected.contains(folder.path); });
  return comm::report_on_first_rank(
      group, [&] { return checkpoint::choose_newest(candidates, examiners(group), rules.depth, rules.why_not); });
}

void refuse(const comm::Group& group, const std::string& why) {
  if (group.rank() != 0) throw comm::FailedElsewhere(ExitCode::bad_input);
  throw InputError(why);
}

checkpoint::Ranks examiners(const comm::Group& group) {
  return {group.rank(), group.size(), [group](const std::string& text) { return comm::all_gather_text(group, text); },
          at::get_num_threads()};
}

}  // namespace tessera::train
