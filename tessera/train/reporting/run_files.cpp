#include <tessera/train/reporting/run_files.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/plan/automatic.h>
#include <tessera/text/tokenizer_files.h>
#include <tessera/train/reporting/model_card.h>

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

/// Files of a run besides checkpoints, event files and the model.
constexpr std::array<const char*, 5> own_names = {"metrics.jsonl", "metrics.csv", "report.html", "trace.json",
                                                  plan::chosen_file};
constexpr const char* last_state = "trainer_state.json";

template <class Names>
bool is_among(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Also true for a dangling link.
bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

std::string card_of(const std::string& folder) { return path_join(folder, "README.md"); }

bool is_own_card_file(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(fs::symlink_status(path, ignored)) && is_own_card(read_file(path));
}

/// The first path in the merged model's folder that no run has written; empty: none.
std::string foreign_in_merged(const std::string& output_dir, const RunFiles& files) {
  const std::string folder = path_join(output_dir, kMergedFolder);
  if (!is_there(folder)) return "";
  std::error_code ignored;
  if (!fs::is_directory(fs::symlink_status(folder, ignored))) return folder;
  for (const std::string& name : list_folder(folder)) {
    const std::string path = path_join(folder, name);
    if (!files.holds(concat(kMergedFolder, "/", name)) && !(name == "README.md" && is_own_card_file(path))) return path;
  }
  return "";
}

/// A checkpoint is identified by its manifest.
std::string foreign_in_checkpoint(const std::string& folder) {
  std::error_code ignored;
  if (fs::is_symlink(fs::symlink_status(folder, ignored))) return folder;
  try {
    format::read_manifest(folder);
  } catch (const Error&) {
    return folder;
  }
  return checkpoint::foreign_path(folder);
}

bool is_inside(const std::string& checkpoint, const std::string& output_dir) {
  std::error_code ignored;
  return !checkpoint.empty() &&
         fs::weakly_canonical(checkpoint, ignored).parent_path() == fs::weakly_canonical(output_dir, ignored);
}

}  // namespace

RunFiles::RunFiles(std::string output_dir) : output_dir_(std::move(output_dir)) {
  const std::string path = path_join(output_dir_, kRunFilesList);
  if (!path_exists(path)) return;
  for (const std::string& line : split(read_file(path), '\n')) {
    const fs::path name = line;
    const bool inside = !line.empty() && name.is_relative() && name.lexically_normal() == name &&
                        *name.begin() != fs::path("..") && name.has_filename();
    if (inside) names_.insert(line);
  }
}

void RunFiles::add(const std::vector<std::string>& names) {
  const std::size_t before = names_.size();
  names_.insert(names.begin(), names.end());
  const bool gone = is_directory(output_dir_) && !path_exists(path_join(output_dir_, kRunFilesList));  // by a user
  if (names_.size() != before || gone) write();
}

void RunFiles::write() const {
  std::string text;
  for (const std::string& name : names_) text += name + "\n";
  write_file_atomically(path_join(output_dir_, kRunFilesList), text);
}

namespace {

/// Whether a run may have listed this name. Entries of a damaged list must not cause other files to be removed.
bool is_listed_name(const std::string& name) {
  return is_run_name(name) || name.starts_with(concat(kMergedFolder, "/")) ||
         fs::path(name).filename().string().starts_with("events.out.tfevents.");
}

}  // namespace

std::set<fs::path> RunFiles::folders() const {
  std::set<fs::path> found;
  for (const std::string& name : names_)
    if (is_listed_name(name))
      for (fs::path folder = fs::path(name).parent_path(); !folder.empty(); folder = folder.parent_path())
        found.insert(folder);
  return found;
}

void RunFiles::remove_all() {
  const std::set<fs::path> inner = folders();
  std::set<std::string> stay;
  for (const std::string& name : names_) {
    if (is_part_of_model(name)) {
      stay.insert(name);
      continue;
    }
    if (!is_listed_name(name)) continue;  // the list is damaged
    const fs::path path = path_join(output_dir_, name);
    std::error_code error;
    if (fs::is_directory(fs::symlink_status(path, error))) continue;  // a user's file with the same name
    fs::remove(path, error);
    if (error) throw Error(concat("cannot remove '", path.string(), "': ", error.message()));
  }
  for (auto folder = inner.rbegin(); folder != inner.rend(); ++folder) {  // inner ones first
    std::error_code not_empty;
    fs::remove(path_join(output_dir_, folder->string()), not_empty);
  }
  names_ = std::move(stay);
  write();
}

bool is_part_of_model(std::string_view name) {
  return checkpoint::is_model_file(std::string(name)) || text::is_tokenizer_file(name);
}

bool is_run_name(std::string_view name) {
  return is_among(own_names, name) || name == last_state || is_part_of_model(name);
}

namespace {

/// The checkpoints that are removed together with the previous run.
std::vector<std::string> former_checkpoints(const std::string& output_dir, bool first_life) {
  std::vector<std::string> folders;
  for (const auto& folder : checkpoint::step_folders(output_dir)) folders.push_back(folder.path);
  if (first_life)  // a restart from scratch keeps damaged folders as evidence
    for (std::string& folder : checkpoint::damaged_folders(output_dir)) folders.push_back(std::move(folder));
  return folders;
}

/// `removes`: whether the previous run will be removed.
std::string path_in_the_way(const std::string& output_dir, bool removes, bool first_life, bool merges) {
  if (!is_directory(output_dir)) return "";
  const RunFiles files(output_dir);
  for (const std::string& name : list_folder(output_dir))
    if (is_run_name(name) && !files.holds(name)) return path_join(output_dir, name);
  if (merges)
    if (std::string foreign = foreign_in_merged(output_dir, files); !foreign.empty()) return foreign;
  if (!removes) return "";
  for (const std::string& folder : former_checkpoints(output_dir, first_life))
    if (std::string foreign = foreign_in_checkpoint(folder); !foreign.empty()) return foreign;
  return "";
}

/// The first folder of the previous run in which this user may not remove files; empty: none.
std::string write_protected(const std::string& output_dir, bool first_life) {
  std::vector<std::string> folders = former_checkpoints(output_dir, first_life);
  for (const std::string& folder : std::vector<std::string>(folders)) {
    std::error_code ignored;
    for (fs::recursive_directory_iterator at(folder, ignored), end; at != end; at.increment(ignored))
      if (at->is_directory(ignored) && !at->is_symlink(ignored)) folders.push_back(at->path());
  }
  std::set<fs::path> listed = RunFiles(output_dir).folders();
  for (const char* own : {"", kMergedFolder}) listed.insert(own);
  for (const fs::path& name : listed)
    if (const std::string folder = path_join(output_dir, name.string()); is_directory(folder))
      folders.push_back(folder);
  for (const std::string& folder : folders)
    if (::access(folder.c_str(), W_OK | X_OK) != 0) return folder;
  return "";
}

}  // namespace

void require_nothing_in_the_way(const OutputConfig& output, const std::string& resume_folder, bool first_life,
                                bool merges) {
  const std::string& folder = output.output_dir;
  if (is_inside(resume_folder, folder)) return;  // the folder belongs to a run
  const bool removes = output.overwrite_output_dir && resume_folder.empty();
  if (const std::string path = path_in_the_way(folder, removes, first_life, merges); !path.empty())
    throw InputError(concat("--output_dir: ", path, " is in the way: a run writes there, and neither ",
                            path_join(folder, kRunFilesList),
                            " nor a manifest lists it as written by one of our runs. ",
                            "Nothing was changed. Move it away, or choose another folder"));
  if (!removes || !is_directory(folder)) return;
  if (const std::string path = write_protected(folder, first_life); !path.empty())
    throw InputError(concat("--overwrite_output_dir: ", path, " is write-protected for this user, so the previous ",
                            "run cannot be removed. Nothing was changed. Grant write permission, or choose another ",
                            "folder"));
}

void prepare_output_folder(const OutputConfig& output, const std::string& resume_folder, bool first_life, bool merges) {
  const std::string& folder = output.output_dir;
  const bool removes = output.overwrite_output_dir && resume_folder.empty();
  const bool goes_on_here = is_inside(resume_folder, folder);
  require_nothing_in_the_way(output, resume_folder, first_life, merges);
  make_folders(folder);
  RunFiles files(folder);
  if (removes) {
    for (const std::string& former : former_checkpoints(folder, first_life)) checkpoint::remove_written(former);
    for (const std::string& card : {card_of(folder), card_of(path_join(folder, kMergedFolder))})
      if (is_own_card_file(card)) remove_tree(card);
    files.remove_all();
  }
  std::vector<std::string> names = {"metrics.jsonl"};
  if (goes_on_here)  // the folder belongs to a run: include files written before the list existed
    for (const std::string& name : list_folder(folder))
      if (is_run_name(name)) names.push_back(name);
  files.add(names);
}

}  // namespace tessera::train
