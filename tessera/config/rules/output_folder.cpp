#include <tessera/config/rules/output_folder.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include <tessera/base/file.h>
#include <tessera/base/text.h>

namespace tessera::config {
namespace {

bool is_bystander(const std::string& folder, const std::string& name) {
  if (name.starts_with('.') || name == "lost+found") return true;
  const auto ends = {".log", ".out", ".err", ".pid"};
  std::error_code ignored;
  return std::any_of(ends.begin(), ends.end(), [&](const char* end) { return name.ends_with(end); }) &&
         std::filesystem::is_regular_file(path_join(folder, name), ignored);
}

/// The entries that keep a run from starting without confirmation.
std::vector<std::string> entries_that_count(const std::string& folder) {
  std::vector<std::string> names = list_folder(folder);
  std::erase_if(names, [&](const std::string& name) { return is_bystander(folder, name); });
  return names;
}

}  // namespace

std::string why_not_empty(const std::string& folder) {
  const std::vector<std::string> names = entries_that_count(folder);
  if (names.empty()) return "";
  const bool of_a_run = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("checkpoint-") || name == "metrics.jsonl";
  });
  const std::string many = concat(names.size(), names.size() == 1 ? " entry" : " entries");
  if (of_a_run)
    return concat("is not empty (", many,
                  "): choose another folder, resume with --resume_from_checkpoint last, or replace its run with "
                  "--overwrite_output_dir (files that no run wrote stay)");
  return concat("is not empty (", many, ", among them ", names[0],
                "), and contains no run: choose another folder, or start in it with --overwrite_output_dir, which "
                "removes none of these files");
}

}  // namespace tessera::config
