#include <tessera/corpus/find.h>

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/value.h>

namespace tessera::corpus {
namespace {

namespace fs = std::filesystem;

/// Whether a file describes the folder and is not data, whatever its extension.
bool is_about_the_folder(const std::string& name) {
  static constexpr std::array<std::string_view, 10> words = {"readme",   "license",     "licence",      "notice",
                                                             "citation", "changelog",   "dataset_info", "dataset_infos",
                                                             "state",    "dataset_dict"};
  const std::string stem = to_lower(name.substr(0, name.find('.')));
  const bool of_map = name.starts_with("cache-") && name.ends_with(".arrow");  // cached results of `datasets`' map()
  return of_map || name.starts_with('.') || name.starts_with('_') ||
         std::find(words.begin(), words.end(), stem) != words.end();
}

std::optional<Split> split_of_word(std::string_view word) {
  static constexpr std::array<std::pair<std::string_view, Split>, 10> words = {
      std::pair{std::string_view("train"), Split::train},
      {"training", Split::train},
      {"validation", Split::validation},
      {"valid", Split::validation},
      {"val", Split::validation},
      {"dev", Split::validation},
      {"test", Split::test},
      {"testing", Split::test},
      {"eval", Split::test},
      {"evaluation", Split::test}};
  for (const auto& [name, split] : words)
    if (word == name) return split;
  return std::nullopt;
}

/// Returns the split named by the first word of a name that names one; words are delimited by characters that are not
/// letters.
std::optional<Split> split_of_name(std::string_view name) {
  const std::string lower = to_lower(name);
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || static_cast<unsigned char>(c) >= 0x80; };
  for (auto begin = lower.begin(); begin != lower.end();) {
    begin = std::find_if(begin, lower.end(), is_letter);
    const auto end = std::find_if_not(begin, lower.end(), is_letter);
    if (const auto split = split_of_word({begin, end})) return split;
    begin = end;
  }
  return std::nullopt;
}

/// Collects files of known kinds below `folder`, with paths relative to it.
void collect(const std::string& folder, const std::string& below, std::vector<std::string>& paths) {
  const std::string here = below.empty() ? folder : path_join(folder, below);
  for (const std::string& name : list_folder(here)) {
    if (is_about_the_folder(name)) continue;
    const std::string path = below.empty() ? name : path_join(below, name);
    const std::string full = path_join(folder, path);
    if (is_directory(full)) {
      if (!fs::is_symlink(full)) collect(folder, path, paths);  // a link may lead back to this folder
    } else if (const auto kind = recognise(name).kind; kind && !to_lower(name).ends_with(".idx")) {
      // a file like model.bin is not a pair of token files
      if (*kind != FileKind::tokens || path_exists(full.substr(0, full.size() - 4) + ".idx")) paths.push_back(path);
    }
  }
}

/// Checks that a name from an untrusted file is a plain name of a file in the folder.
const std::string& plain_name(const Value& value) {
  const std::string& name = value.as_string();
  if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..")
    throw InputError(concat(value.where().str(), ": expected the name of a file in this folder, found \"", name, "\""));
  return name;
}

/// Returns the files written by Dataset.save_to_disk: state.json lists the shards in order.
std::vector<FolderFile> files_of_saved(const std::string& folder, std::optional<Split> split) {
  const Value state = read_json(path_join(folder, "state.json"), std::uint64_t{64} << 20);
  if (const Value* own = state.find("_split"); own != nullptr && own->is_string() && !split)
    split = split_of_name(own->as_string());
  std::vector<FolderFile> files;
  for (const Value& file : state.at("_data_files").items()) {
    const std::string& name = plain_name(file.at("filename"));
    const std::string path = path_join(folder, name);
    if (!path_exists(path))
      throw InputError(
          concat(file.where().str(), ": names ", name, ", which does not exist: the folder is incomplete"));
    files.push_back({path, split});
  }
  return files;
}

bool is_saved(const std::string& folder) {
  const std::string path = path_join(folder, "state.json");
  if (!path_exists(path)) return false;
  const Value state = read_json(path, std::uint64_t{64} << 20);
  return state.is_object() && state.find("_data_files") != nullptr;
}

/// Returns the files written by DatasetDict.save_to_disk: one folder per split.
std::vector<FolderFile> files_of_saved_splits(const std::string& folder) {
  const Value dict = read_json(path_join(folder, "dataset_dict.json"), std::uint64_t{64} << 20);
  std::vector<FolderFile> files;
  for (const Value& name : dict.at("splits").items()) {
    const std::string below = path_join(folder, plain_name(name));
    if (!is_saved(below))
      throw InputError(concat(name.where().str(), ": names ", below, ", which has no state.json: it is incomplete"));
    const auto more = files_of_saved(below, split_of_name(name.as_string()));
    files.insert(files.end(), more.begin(), more.end());
  }
  return files;
}

void match(const fs::path& base, const std::vector<std::string>& names, std::size_t at,
           std::vector<std::string>& found) {
  const std::string place = base.empty() ? "." : base.string();
  const bool last = at + 1 == names.size();
  if (names[at] == "**") {
    if (!last) match(base, names, at + 1, found);
    for (const std::string& name : list_folder(place)) {
      const fs::path path = base / name;
      if (name.starts_with('.')) continue;
      if (!is_directory(path.string())) {
        if (last) found.push_back(path.string());
      } else if (!fs::is_symlink(path)) {
        match(path, names, at, found);
      }
    }
    return;
  }
  if (!is_glob(names[at])) {
    const fs::path path = base / names[at];
    if (last ? path_exists(path.string()) && !is_directory(path.string()) : false) found.push_back(path.string());
    if (!last && is_directory(path.string())) match(path, names, at + 1, found);
    return;
  }
  for (const std::string& name : list_folder(place)) {
    if (::fnmatch(names[at].c_str(), name.c_str(), FNM_PERIOD) != 0) continue;
    const fs::path path = base / name;
    const bool folder = is_directory(path.string());
    if (last && !folder) found.push_back(path.string());
    if (!last && folder) match(path, names, at + 1, found);
  }
}

}  // namespace

Recognised recognise(std::string_view path) {
  static constexpr std::array<std::pair<std::string_view, Compression>, 5> compressions = {
      std::pair{std::string_view(".gz"), Compression::gzip},
      {".gzip", Compression::gzip},
      {".zst", Compression::zstd},
      {".zstd", Compression::zstd},
      {".xz", Compression::xz}};
  static constexpr std::array<std::pair<std::string_view, FileKind>, 13> kinds = {
      std::pair{std::string_view(".txt"), FileKind::text},
      {".text", FileKind::text},
      {".jsonl", FileKind::jsonl},
      {".ndjson", FileKind::jsonl},
      {".json", FileKind::json},
      {".csv", FileKind::csv},
      {".tsv", FileKind::tsv},
      {".parquet", FileKind::parquet},
      {".arrow", FileKind::arrow},
      {".feather", FileKind::arrow},
      {".arrows", FileKind::arrow},
      {".bin", FileKind::tokens},
      {".idx", FileKind::tokens}};
  Recognised found;
  std::string name = to_lower(path);
  for (const auto& [extension, compression] : compressions) {
    if (!name.ends_with(extension)) continue;
    found.compression = compression;
    name.resize(name.size() - extension.size());
    break;
  }
  for (const auto& [extension, kind] : kinds)
    if (name.ends_with(extension)) found.kind = kind;
  return found;
}

std::optional<Split> split_of(std::string_view path) {
  const std::vector<std::string> names = split(path, '/');
  for (auto name = names.rbegin(); name != names.rend(); ++name)
    if (const auto split = split_of_name(*name)) return split;
  return std::nullopt;
}

std::vector<FolderFile> files_of_folder(const std::string& folder) {
  if (path_exists(path_join(folder, "dataset_dict.json"))) return files_of_saved_splits(folder);
  if (is_saved(folder)) return files_of_saved(folder, std::nullopt);
  std::vector<std::string> paths;
  collect(folder, "", paths);
  std::sort(paths.begin(), paths.end());
  std::vector<FolderFile> found;
  for (const std::string& path : paths) found.push_back({path_join(folder, path), split_of(path)});
  return found;
}

bool is_glob(std::string_view pattern) { return pattern.find_first_of("*?[") != std::string_view::npos; }

std::vector<std::string> matches_of(const std::string& pattern) {
  std::vector<std::string> names, found;
  for (std::string& name : split(pattern, '/'))
    if (!name.empty()) names.push_back(std::move(name));
  if (names.empty()) return {};
  match(pattern.starts_with('/') ? "/" : "", names, 0, found);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace tessera::corpus
