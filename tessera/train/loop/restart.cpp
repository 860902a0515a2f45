#include <tessera/train/loop/restart.h>

#include <algorithm>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/checkpoint/files.h>
#include <tessera/config/sections/output_config.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/launch/cli/environment.h>

namespace tessera::train {
namespace {

constexpr const char* kMark = ".tessera-job";

std::string mark_path(const std::string& output_dir) { return path_join(output_dir, kMark); }

/// Whether the job wrote the checkpoint, judged by the job named in the checkpoint rather than by times, because clocks
/// may be set back. True if the state is unreadable.
bool may_be_of_job(const std::string& folder, const std::string& job) {
  if (!path_exists(path_join(folder, format::kManifestName))) return false;  // half written
  try {
    const Value state = read_json(path_join(folder, checkpoint::kRunStateFile));
    const Value* const named = state.find("job");
    return named != nullptr && named->as_string() == job;
  } catch (const Error&) {
    return true;  // damaged: reading it completely reports the details
  }
}

}  // namespace

Restart this_restart() {
  const launch::RankEnvironment environment = launch::read_rank_environment();
  return {environment.generation, environment.job, environment.memory_folder};
}

void mark_output(const std::string& output_dir, const Restart& restart) {
  if (restart.job.empty()) return;
  const std::string path = mark_path(output_dir);
  if (restart.generation > 0 && path_exists(path) && trim(read_file(path)) == restart.job) return;
  write_file_atomically(path, restart.job + "\n");
}

void unmark_output(const std::string& output_dir) { remove_tree(mark_path(output_dir)); }

std::optional<std::vector<checkpoint::StepFolder>> checkpoints_of_job(const OutputConfig& output,
                                                                      const Restart& restart) {
  const std::string mark = mark_path(output.output_dir);
  if (restart.generation == 0 || restart.job.empty() || !path_exists(mark) || trim(read_file(mark)) != restart.job)
    return std::nullopt;
  std::vector<checkpoint::StepFolder> folders = checkpoint::step_folders(output.output_dir);
  std::erase_if(folders,
                [&](const checkpoint::StepFolder& folder) { return !may_be_of_job(folder.path, restart.job); });
  if (restart.memory_folder.empty()) return folders;
  for (const checkpoint::StepFolder& folder : checkpoint::step_folders(restart.memory_folder))
    folders.push_back(folder);
  std::stable_sort(folders.begin(), folders.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return folders;
}

}  // namespace tessera::train
