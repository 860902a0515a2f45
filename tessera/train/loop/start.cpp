// Where a run begins: choose_start() of setup.h.

#include <tessera/train/loop/setup.h>

#include <ATen/Parallel.h>

#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/choose.h>
#include <tessera/parallel/replicas.h>
#include <tessera/train/loop/restart.h>

namespace tessera::train {
namespace {

/// What the flag asks for, before any checkpoint is looked at.
struct ResumeRequest {
  std::vector<checkpoint::StepFolder> candidates;  ///< newest first; the newest whole one is taken
  std::string named;                               ///< this one and no other
};

bool asks_for_newest(const OutputConfig& output) {
  const std::string asked = to_lower(output.resume_from_checkpoint);
  return asked == "true" || asked == "last";
}

bool names_a_folder(const OutputConfig& output) {
  return !output.resume_from_checkpoint.empty() && to_lower(output.resume_from_checkpoint) != "false" &&
         !asks_for_newest(output);
}

/// --resume_from_checkpoint of a start that is no restart, or of one that has nothing to go on from.
ResumeRequest resume_request(const OutputConfig& output) {
  check_output_folder(output);
  ResumeRequest request;
  if (asks_for_newest(output)) request.candidates = checkpoint::step_folders(output.output_dir);
  if (names_a_folder(output)) request.named = output.resume_from_checkpoint;
  return request;
}

/// The newest that has not been rejected.
std::optional<std::string> newest(std::vector<checkpoint::StepFolder> candidates, const std::set<std::string>& rejected,
                                  const comm::Group& group, const checkpoint::Ranks& ranks) {
  std::erase_if(candidates, [&](const checkpoint::StepFolder& folder) { return rejected.contains(folder.path); });
  return comm::told_by_first(
      group, [&] { return checkpoint::choose_newest(candidates, ranks, checkpoint::Depth::small_files); });
}

std::string follow_flag(const OutputConfig& output, const std::set<std::string>& rejected, const comm::Group& group,
                        const checkpoint::Ranks& ranks) {
  ResumeRequest request;
  agree(group, [&] { request = resume_request(output); });
  if (names_a_folder(output)) {
    const checkpoint::Finding finding = checkpoint::examine(request.named, ranks, checkpoint::Depth::small_files);
    if (finding.kind != checkpoint::Finding::Kind::whole)
      comm::told_by_first(group,
                          [&] { throw InputError(checkpoint::named_but_not_whole(request.named, finding, ranks)); });
    return request.named;
  }
  if (!asks_for_newest(output)) return "";
  const auto found = newest(std::move(request.candidates), rejected, group, ranks);
  if (!found)
    comm::told_by_first(group, [&] {
      throw InputError(
          concat("--resume_from_checkpoint ", output.resume_from_checkpoint, ": ", output.output_dir,
                 " holds no complete checkpoint-N folder; leave the flag out to start from the beginning"));
    });
  return *found;
}

}  // namespace

checkpoint::Ranks examiners(const comm::World& world, int threads) {
  return {world.rank(), world.size(),
          [&world](const std::string& text) { return comm::all_gather_text(world.group(), text); }, threads};
}

Start choose_start(const RunConfig& config, const comm::World& world, const std::set<std::string>& rejected) {
  const comm::Group& group = world.group();
  const checkpoint::Ranks ranks = examiners(world, at::get_num_threads());
  const Restart restart = this_restart();
  std::optional<std::vector<checkpoint::StepFolder>> own;
  agree(group, [&] { own = checkpoints_of_job(config.output, restart); });
  // Rank 0 speaks for all: a folder that another rank does not see is found when it is examined.
  Start start;
  start.restarted = comm::all_gather_text(group, own ? "restarted" : "")[0] == "restarted";
  if (start.restarted)
    start.checkpoint = newest(own.value_or(std::vector<checkpoint::StepFolder>()), rejected, group, ranks).value_or("");
  if (start.checkpoint.empty()) {
    OutputConfig output = config.output;
    start.overwrite = start.restarted && output.resume_from_checkpoint.empty();  // what the failed generation wrote
    if (start.overwrite) output.overwrite_output_dir = true;
    start.checkpoint = follow_flag(output, rejected, group, ranks);
    start.named = names_a_folder(output);
  }
  if (world.rank() == 0 && restart.generation > 0)
    log::info("restart ", restart.generation, ": ",
              start.checkpoint.empty() ? "there is no checkpoint yet; beginning again"
                                       : concat("going on from ", start.checkpoint));
  return start;
}

void reject_start(const comm::World& world, const Start& start, const checkpoint::Finding& finding) {
  using Kind = checkpoint::Finding::Kind;
  const auto refuse = [&](const std::string& why) {
    comm::told_by_first(world.group(), [&] { throw InputError(why); });
  };
  if (start.named)
    refuse(checkpoint::named_but_not_whole(start.checkpoint, finding, examiners(world, at::get_num_threads())));
  if (finding.kind == Kind::not_shared) refuse(finding.text);
  if (world.rank() != 0) return;
  if (finding.kind == Kind::damaged)
    checkpoint::set_aside(start.checkpoint, finding);
  else
    log::warning("skipping a checkpoint: ", finding.text);
}

}  // namespace tessera::train
