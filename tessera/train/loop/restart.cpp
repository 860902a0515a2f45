#include <tessera/train/loop/restart.h>

#include <algorithm>
#include <filesystem>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/launch/cli/environment.h>

namespace tessera::train {
namespace {

constexpr const char* kMark = ".tessera-job";

std::string mark_path(const std::string& output_dir) { return path_join(output_dir, kMark); }

}  // namespace

Restart this_restart() {
  const launch::RankEnvironment environment = launch::read_rank_environment();
  return {environment.generation, environment.job, environment.memory_folder};
}

void mark_output(const std::string& output_dir, const Restart& restart) {
  if (restart.job.empty()) return;
  const std::string path = mark_path(output_dir);
  // The mark keeps the time of the job's first life: checkpoints from then on are its own.
  if (restart.generation > 0 && path_exists(path) && trim(read_file(path)) == restart.job) return;
  write_file_atomically(path, restart.job + "\n");
}

void unmark_output(const std::string& output_dir) { remove_tree(mark_path(output_dir)); }

std::optional<std::vector<checkpoint::StepFolder>> checkpoints_of_job(const OutputConfig& output,
                                                                      const Restart& restart) {
  const std::string mark = mark_path(output.output_dir);
  if (restart.generation == 0 || restart.job.empty() || !path_exists(mark) || trim(read_file(mark)) != restart.job)
    return std::nullopt;
  const auto begun = std::filesystem::last_write_time(mark);
  std::vector<checkpoint::StepFolder> folders = checkpoint::step_folders(output.output_dir);
  std::erase_if(folders, [&](const checkpoint::StepFolder& folder) {
    std::error_code missing;
    const auto written = std::filesystem::last_write_time(path_join(folder.path, format::kManifestName), missing);
    return missing || written < begun;  // half written, or an earlier run's
  });
  if (restart.memory_folder.empty()) return folders;
  for (const checkpoint::StepFolder& folder : checkpoint::step_folders(restart.memory_folder))
    folders.push_back(folder);
  std::stable_sort(folders.begin(), folders.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return folders;
}

}  // namespace tessera::train
