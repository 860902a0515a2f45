#include <tessera/checkpoint/folder.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/text/tokenizer_files.h>

namespace tessera::checkpoint {
namespace {

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kWriting = ".tmp.";   // checkpoint-STEP.tmp.PID: being written
constexpr std::string_view kDeleting = ".old.";  // checkpoint-STEP.old.PID: being deleted

std::optional<std::int64_t> parse_step(std::string_view digits) {
  const auto step = parse_int(digits);
  if (!step || *step < 0 || std::to_string(*step) != digits) return std::nullopt;
  return step;
}

// The process that created checkpoint-STEP.tmp.PID or checkpoint-STEP.old.PID; nullopt for any other name.
std::optional<std::int64_t> owner_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  for (const std::string_view mark : {kWriting, kDeleting}) {
    const auto at = name.find(mark);
    if (at != std::string_view::npos && parse_step(name.substr(0, at)))
      return parse_step(name.substr(at + mark.size()));
  }
  return std::nullopt;
}

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw Error(concat(what, " ", path, ": ", std::strerror(errno)));
}

void sync_to_disk(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("cannot open", path);
  const int result = ::fsync(fd);
  const int saved_errno = errno;
  ::close(fd);
  errno = saved_errno;
  if (result != 0) fail("cannot sync to disk:", path);
}

bool is_regular(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(std::filesystem::symlink_status(path, ignored));
}

/// Whether saves write files with this name.
bool is_name_of_saves(std::string_view name) {
  if (const std::size_t growing = name.find(".tmp."); growing != std::string_view::npos) name = name.substr(0, growing);
  for (const char* end : {".safetensors", ".json"})
    if (name.ends_with(end)) return true;
  return text::is_tokenizer_file(name);
}

/// The names of files in a folder that no save has written.
std::vector<std::string> foreign_names(const std::string& folder) {
  std::optional<format::Manifest> manifest;
  try {
    manifest = format::read_manifest(folder);
  } catch (const Error&) {  // without a manifest, the names decide
  }
  std::vector<std::string> foreign;
  for (const std::string& name : list_folder(folder)) {
    const std::string path = path_join(folder, name);
    const bool ours =
        manifest ? name == format::kManifestName || std::any_of(manifest->files.begin(), manifest->files.end(),
                                                                [&](const auto& file) { return file.name == name; })
                 : is_name_of_saves(name) || name.starts_with(".tokenizer");
    const bool half_written = !manifest && name.starts_with(".tokenizer");  // a folder of files waiting for their final
                                                                            // names
    if (!ours || !(is_regular(path) || half_written)) foreign.push_back(name);
  }
  return foreign;
}

/// Moves files that no save has written from a replaced folder to its successor.
void hand_over(const std::string& old, const std::string& target) {
  if (!is_directory(old) || std::filesystem::is_symlink(old)) return;  // only the link itself is replaced
  for (const std::string& name : foreign_names(old)) {
    const std::string from = path_join(old, name), to = path_join(target, name);
    const std::string place = path_exists(to) ? to + ".kept" : to;
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, place.c_str(), RENAME_NOREPLACE) != 0)
      fail("no save has written this file, so it must be kept, but it cannot be moved to " + place + ":", from);
  }
}

// Swaps two files or folders in one step. Returns false if `b` does not exist or the file system does not support it.
bool exchange(const std::string& a, const std::string& b) {
  if (!path_exists(b)) return false;
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) fail("cannot replace", b);
  return false;
}

// Renames `made` to `target`, replacing an existing one.
void put_in_place(const std::string& made, const std::string& target) {
  std::string old = made;
  if (!exchange(made, target)) {
    old = concat(target, kDeleting, ::getpid());
    remove_written(old);
    if (path_exists(target) && ::rename(target.c_str(), old.c_str()) != 0) fail("cannot rename", target);
    if (::rename(made.c_str(), target.c_str()) != 0) fail("cannot rename to", target);
  }
  hand_over(old, target);
  remove_tree(old);
}

void sync_all(const std::string& folder) {
  for (const std::string& name : list_folder(folder)) sync_to_disk(path_join(folder, name));
  sync_to_disk(folder);
}

/// Tensors come first, so that a reader who finds the index or the configuration also finds the tensors they refer to.
bool tensors_first(const std::string& a, const std::string& b) {
  const auto place = [](const std::string& name) {
    return name.ends_with(".safetensors") ? 0 : name.ends_with(".index.json") ? 1 : 2;
  };
  return place(a) < place(b);
}

/// A sequence of renames that can be undone.
class Renames {
 public:
  /// `to` may exist: the two are swapped in one step; if the file system does not support that, `to` is replaced for
  /// good.
  void put(const std::string& from, const std::string& to) {
    const bool replaced = path_exists(to);
    if (exchange(from, to)) return done_.push_back({from, to, true});
    if (::rename(from.c_str(), to.c_str()) != 0) fail("cannot rename to", to);
    if (!replaced) done_.push_back({from, to, false});
  }
  void undo() {
    for (auto last = done_.rbegin(); last != done_.rend(); ++last)
      if (::renameat2(AT_FDCWD, last->to.c_str(), AT_FDCWD, last->from.c_str(),
                      last->exchanged ? RENAME_EXCHANGE : 0) != 0)
        log::warning("cannot restore the earlier contents of ", last->to, ": ", std::strerror(errno));
    done_.clear();
  }

 private:
  struct Done {
    std::string from, to;
    bool exchanged;
  };
  std::vector<Done> done_;
};

}  // namespace

std::vector<StepFolder> step_folders(const std::string& output_dir, std::string_view prefix) {
  std::vector<StepFolder> found;
  if (!is_directory(output_dir)) return found;
  for (const std::string& name : list_folder(output_dir)) {
    if (!name.starts_with(prefix)) continue;
    const auto step = parse_step(std::string_view(name).substr(prefix.size()));
    const std::string path = path_join(output_dir, name);
    if (step && is_directory(path)) found.push_back({*step, path});
  }
  std::sort(found.begin(), found.end(), [](const StepFolder& a, const StepFolder& b) { return a.step > b.step; });
  return found;
}

std::vector<std::string> damaged_folders(const std::string& output_dir) {
  std::vector<std::string> found;
  if (!is_directory(output_dir)) return found;
  for (const std::string& name : list_folder(output_dir)) {
    std::string_view step = name;
    if (!step.starts_with(kPrefix) || !step.ends_with(damaged_suffix)) continue;
    step.remove_prefix(kPrefix.size());
    step.remove_suffix(std::string_view(damaged_suffix).size());
    if (parse_step(step)) found.push_back(path_join(output_dir, name));
  }
  return found;
}

std::string foreign_path(const std::string& folder) {
  if (!is_directory(folder)) return path_exists(folder) ? folder : "";
  const std::vector<std::string> foreign = foreign_names(folder);
  return foreign.empty() ? "" : path_join(folder, foreign[0]);
}

void remove_written(const std::string& folder) {
  if (const std::string foreign = foreign_path(folder); !foreign.empty())
    throw Error(concat("'", folder, "' is kept, because no save wrote ", foreign, ": move that file elsewhere"));
  remove_tree(folder);
}

void remove_checkpoint(const std::string& folder) {
  const std::string aside = concat(folder, kDeleting, ::getpid());
  remove_written(aside);
  const std::vector<std::string> foreign = foreign_names(folder);
  if (foreign.empty()) {
    if (::rename(folder.c_str(), aside.c_str()) != 0) fail("cannot rename", folder);
    return remove_tree(aside);  // a crash in between leaves no damaged checkpoint-STEP
  }
  log::info(folder, " is kept with ", foreign[0], foreign.size() > 1 ? " and more" : "",
            ", which no save has written; only the checkpoint in it is removed");
  const std::vector<std::string> names = list_folder(folder);
  remove_tree(path_join(folder, format::kManifestName));  // without it the folder is not a checkpoint
  for (const std::string& name : names)
    if (std::find(foreign.begin(), foreign.end(), name) == foreign.end()) remove_tree(path_join(folder, name));
}

bool looks_complete(const std::string& folder) {
  try {
    format::verify_sizes(folder, format::read_manifest(folder));
    return true;
  } catch (const InputError&) {
    return false;
  }
}

std::string step_folder(const std::string& output_dir, std::int64_t step) {
  TESSERA_CHECK(step >= 0, "checkpoint of step ", step);
  return path_join(output_dir, concat(kPrefix, step));
}

std::string writing_folder(const std::string& output_dir, std::int64_t step, std::int64_t pid) {
  return concat(step_folder(output_dir, step), kWriting, pid);
}

void publish_written_folder(const std::string& written, const std::string& target) {
  sync_all(written);
  put_in_place(written, target);
  const std::string around = std::filesystem::path(target).parent_path().string();
  sync_to_disk(around.empty() ? "." : around);
}

void publish_folder(const std::string& target, const std::function<void(const std::string&)>& fill) {
  const std::string temporary = target + ".tmp";
  remove_written(temporary);
  make_folders(temporary);
  try {
    fill(temporary);
    publish_written_folder(temporary, target);
  } catch (...) {
    remove_tree(temporary);
    throw;
  }
}

void publish_files(const std::string& written, const std::string& target,
                   const std::function<bool(const std::string& name)>& replaces) {
  sync_all(written);
  std::vector<std::string> names = list_folder(written), old;
  for (const std::string& name : list_folder(target))
    if (replaces(name) && !std::binary_search(names.begin(), names.end(), name)) old.push_back(name);
  std::stable_sort(names.begin(), names.end(), tensors_first);
  std::stable_sort(old.begin(), old.end(), [](const auto& a, const auto& b) { return tensors_first(b, a); });
  Renames renames;
  try {
    for (const std::string& name : names) renames.put(path_join(written, name), path_join(target, name));
    for (const std::string& name : old) renames.put(path_join(target, name), path_join(written, name));
  } catch (...) {
    renames.undo();
    throw;
  }
  sync_to_disk(target);
}

namespace {

/// Whether the process that created a folder may still be working on it: a process with that id is alive, and it is not
/// a later one that reused the id (after a reboot, or in a container, ids are small and are reused soon).
bool owner_lives(std::int64_t pid, const std::string& folder) {
  if (pid == ::getpid()) return false;
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno != EPERM) return false;
  struct stat facts{};
  const auto age = seconds_since_start(static_cast<pid_t>(pid));
  if (!age || ::stat(folder.c_str(), &facts) != 0) return true;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return *age + 1 >= static_cast<double>(now.tv_sec - facts.st_mtim.tv_sec);  // 1: both values are rounded
}

}  // namespace

void remove_stale_folders(const std::string& output_dir) {
  if (!is_directory(output_dir)) return;
  for (const std::string& name : list_folder(output_dir)) {
    const auto owner = owner_of(name);
    if (!owner) continue;
    const std::string path = path_join(output_dir, name);
    if (owner_lives(*owner, path)) continue;
    if (const std::string foreign = foreign_path(path); !foreign.empty()) {
      log::warning(path,
                   " looks like a leftover of a run that ended while writing it, but it is kept, because no save has ",
                   "written ", foreign);
      continue;
    }
    log::info("removing ", path, ", left by a run that ended while writing it");
    remove_tree(path);
  }
}

void prune_step_folders(const std::string& output_dir, std::int64_t saved_step, std::int64_t keep,
                        const std::string& protected_folder) {
  if (keep <= 0) return;
  const auto folders = step_folders(output_dir);
  const std::string protected_path = protected_folder.empty() ? "" : absolute_path(protected_folder);
  const auto stays = [&](const StepFolder& folder) {
    return folder.step == saved_step || (!protected_path.empty() && absolute_path(folder.path) == protected_path);
  };
  std::int64_t kept = std::count_if(folders.begin(), folders.end(), stays);
  for (const StepFolder& folder : folders) {
    if (stays(folder) || !path_exists(path_join(folder.path, format::kManifestName))) continue;
    if (kept < keep && looks_complete(folder.path)) {
      ++kept;
    } else {
      remove_checkpoint(folder.path);
    }
  }
}

}  // namespace tessera::checkpoint
