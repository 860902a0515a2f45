// Chooses a run's starting point: choose_start() of setup.h.

#include <tessera/train/loop/setup.h>

#include <tessera/base/log.h>
#include <tessera/checkpoint/choose.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/train/core/resume.h>
#include <tessera/train/loop/restart.h>
#include <tessera/train/reporting/output_lock.h>

namespace tessera::train {

Start choose_start(const RunConfig& config, const comm::World& world, const std::set<std::string>& rejected) {
  const comm::Group& group = world.group();
  // The tensors are verified while they are loaded.
  const ResumeRules rules{.depth = checkpoint::Depth::small_files};
  const Restart restart = this_restart();
  std::optional<std::vector<checkpoint::StepFolder>> own;
  run_on_all_ranks(group, [&] {
    if (world.rank() == 0) require_unlocked(config.output.output_dir);
  });
  run_on_all_ranks(group, [&] { own = checkpoints_of_job(config.output, restart); });
  // Rank 0 decides for all ranks; verification detects a folder that another rank cannot see.
  Start start;
  start.restarted = comm::all_gather_text(group, own ? "restarted" : "")[0] == "restarted";
  if (start.restarted)
    start.checkpoint =
        newest_whole(own.value_or(std::vector<checkpoint::StepFolder>()), group, rules, rejected).value_or("");
  if (start.checkpoint.empty()) {
    OutputConfig output = config.output;
    // After a restart, the folder may contain the failed generation's files.
    start.overwrite = start.restarted && output.resume_from_checkpoint.empty();
    if (start.overwrite) output.overwrite_output_dir = true;
    run_on_all_ranks(group, [&] { check_output_folder(output); });
    start.checkpoint = checkpoint_to_resume(output, group, rules, rejected);
    start.named = names_a_folder(output);
  }
  if (world.rank() == 0 && restart.generation > 0)
    log::info("restart ", restart.generation, ": ",
              start.checkpoint.empty() ? "there is no checkpoint yet; starting from the beginning"
                                       : concat("resuming from ", start.checkpoint));
  return start;
}

void reject_start(const comm::World& world, const Start& start, const checkpoint::Finding& finding) {
  using Kind = checkpoint::Finding::Kind;
  const comm::Group& group = world.group();
  if (start.named) refuse(group, checkpoint::named_but_not_whole(start.checkpoint, finding, examiners(group)));
  if (finding.kind == Kind::not_shared) refuse(group, finding.text);
  if (world.rank() != 0) return;
  if (finding.kind == Kind::damaged)
    checkpoint::set_aside(start.checkpoint, finding);
  else
    log::warning("skipping a checkpoint: ", finding.text);
}

}  // namespace tessera::train
