// Where a run begins: choose_start() of setup.h.

#include <tessera/train/setup.h>

#include <ATen/Parallel.h>

#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/choose.h>
#include <tessera/parallel/replicas.h>
#include <tessera/train/restart.h>

namespace tessera::train {
namespace {

/// What the flag asks for, before any checkpoint is looked at.
struct Wish {
  std::vector<checkpoint::StepFolder> candidates;  ///< newest first; the newest whole one is taken
  std::string named;                               ///< this one and no other
};

bool asks_for_newest(const OutputConfig& output) {
  const std::string asked = to_lower(output.resume_from_checkpoint);
  return asked == "true" || asked == "last";
}

/// --resume_from_checkpoint of a start that is no restart, or of one that has nothing to go on from.
Wish wish_of_flag(const OutputConfig& output) {
  check_output_folder(output);
  Wish wish;
  if (asks_for_newest(output))
    wish.candidates = checkpoint::step_folders(output.output_dir);
  else if (to_lower(output.resume_from_checkpoint) != "false")
    wish.named = output.resume_from_checkpoint;
  return wish;
}

/// Calls what throws the same InputError on every rank; rank 0 keeps it.
template <typename Work>
auto told_once(const comm::Group& group, const Work& work) {
  try {
    return work();
  } catch (const InputError&) {
    if (group.rank() != 0) throw FailedElsewhere(ExitCode::bad_input);
    throw;
  }
}

std::string follow_flag(const OutputConfig& output, const comm::Group& group, const checkpoint::Ranks& ranks) {
  Wish wish;
  agree(group, [&] { wish = wish_of_flag(output); });
  return told_once(group, [&]() -> std::string {
    if (!wish.named.empty()) checkpoint::require_whole(wish.named, ranks);
    if (!asks_for_newest(output)) return wish.named;
    const auto newest = checkpoint::choose_newest(wish.candidates, ranks);
    if (!newest)
      throw InputError(concat("--resume_from_checkpoint ", output.resume_from_checkpoint, ": ", output.output_dir,
                              " holds no complete checkpoint-N folder; leave the flag out to start from the beginning"));
    return *newest;
  });
}

}  // namespace

Start choose_start(const RunConfig& config, const comm::World& world) {
  const comm::Group& group = world.group();
  const checkpoint::Ranks ranks{world.rank(), world.size(), [&](const std::string& text) { return parallel::all_gather_text(group, text); },
                                at::get_num_threads()};
  const Restart restart = this_restart();
  std::optional<std::vector<checkpoint::StepFolder>> own;
  agree(group, [&] { own = checkpoints_of_job(config.output, restart); });
  // Rank 0 speaks for all: a folder that another rank does not see is found when it is examined.
  const bool restarted = parallel::all_gather_text(group, own ? "restarted" : "")[0] == "restarted";
  Start start;
  if (restarted)
    if (const auto newest = told_once(group, [&] { return checkpoint::choose_newest(own.value_or(std::vector<checkpoint::StepFolder>()), ranks); }))
      start.checkpoint = *newest;
  if (start.checkpoint.empty()) {
    OutputConfig output = config.output;
    start.overwrite = restarted && output.resume_from_checkpoint.empty();  // what the failed generation wrote
    if (start.overwrite) output.overwrite_output_dir = true;
    start.checkpoint = follow_flag(output, group, ranks);
  }
  if (world.rank() == 0 && restart.generation > 0)
    log::info("restart ", restart.generation, ": ",
              start.checkpoint.empty() ? "there is no checkpoint yet; beginning again" : concat("going on from ", start.checkpoint));
  return start;
}

}  // namespace tessera::train
