#include <tessera/corpus/sources.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/corpus/find.h>

namespace tessera::corpus {
namespace {

constexpr const char* known_extensions =
    ".txt, .jsonl, .json, .csv, .tsv (each also .gz, .zst, .xz), .parquet, .arrow, or .bin with an .idx next to it";

std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t shown = 8;
  if (names.empty()) return "it is empty";
  const std::vector<std::string> first(names.begin(),
                                       names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), shown)));
  return concat("it has ", join(first), names.size() > shown ? concat(" and ", names.size() - shown, " more") : "");
}

SourceFile recognised(const std::string& path) {
  std::error_code error;
  const Recognised found = recognise(path);
  if (!found.kind) throw InputError(concat(path, ": unknown kind of file; expected ", known_extensions));
  SourceFile file{path, *found.kind, found.compression, std::filesystem::file_size(path, error)};
  if (error) throw InputError(concat("cannot read '", path, "': ", error.message()));
  const bool packs_itself =
      file.kind == FileKind::parquet || file.kind == FileKind::arrow || file.kind == FileKind::tokens;
  if (packs_itself && file.compression != Compression::none)
    throw InputError(concat(path, ": ", name_of(file.kind), " cannot be read when compressed again (the format ",
                            "is not read from front to back): decompress the file first"));
  if (file.kind == FileKind::tokens) {
    file.path = path.substr(0, path.size() - 4) + ".bin";
    for (const char* part : {".bin", ".idx"})
      if (const std::string other = path.substr(0, path.size() - 4) + part; !path_exists(other))
        throw InputError(concat(path, ": ", other, " does not exist: tokens need a pair of files, .bin and .idx"));
    file.bytes = std::filesystem::file_size(file.path);
  }
  return file;
}

/// Throws if the files are of several kinds.
void require_one_kind(const std::string& what, const std::vector<SourceFile>& files) {
  std::map<FileKind, std::vector<const SourceFile*>> by_kind;
  for (const SourceFile& file : files) by_kind[file.kind].push_back(&file);
  if (by_kind.size() <= 1) return;
  std::vector<std::string> parts;
  for (const auto& [kind, of_kind] : by_kind)
    parts.push_back(concat(of_kind.size(), " of ", name_of(kind), " (", of_kind.front()->path, ")"));
  const std::string extension = std::filesystem::path(files.front().path).extension().string();
  throw InputError(concat(what, ": contains files of several kinds: ", join(parts),
                          "; select one with a glob, such as '", is_directory(what) ? path_join(what, "**/*") : "*",
                          extension, "'"));
}

std::vector<SourceFile> of_folder(const std::string& folder, Split split) {
  std::vector<FolderFile> found = files_of_folder(folder);
  std::vector<std::string> chosen;
  for (const FolderFile& file : found)
    if (file.split.value_or(Split::train) == split) chosen.push_back(file.path);
  if (chosen.empty()) {
    if (found.empty())
      throw InputError(concat(folder, ": contains no file that can be read; expected ", known_extensions, "; ",
                              some_of(list_folder(folder))));
    std::vector<std::string> names;
    for (const FolderFile& file : found) names.push_back(file.path.substr(folder.size()));
    throw InputError(concat(folder, ": has no files of the split ", name_of(split), "; ", some_of(names)));
  }
  std::vector<SourceFile> files;
  for (const std::string& path : chosen) files.push_back(recognised(path));
  return files;
}

}  // namespace

const char* name_of(Split split) {
  switch (split) {
    case Split::train:
      return "train";
    case Split::validation:
      return "validation";
    case Split::test:
      return "test";
  }
  return "?";
}

const char* name_of(FileKind kind) {
  switch (kind) {
    case FileKind::text:
      return "text";
    case FileKind::jsonl:
      return "JSON Lines";
    case FileKind::json:
      return "JSON";
    case FileKind::csv:
      return "CSV";
    case FileKind::tsv:
      return "TSV";
    case FileKind::parquet:
      return "Parquet";
    case FileKind::arrow:
      return "Arrow";
    case FileKind::tokens:
      return "tokens";
  }
  return "?";
}

SourceFile source_file(const std::string& path) {
  if (!path_exists(path)) throw InputError(concat("no such file '", path, "'"));
  return recognised(path);
}

std::vector<SourceFile> find_sources(const std::string& what, Split split) {
  std::vector<SourceFile> files;
  if (is_directory(what)) {
    files = of_folder(what, split);
  } else if (path_exists(what)) {
    files = {recognised(what)};
  } else if (is_glob(what)) {
    for (const std::string& path : matches_of(what)) files.push_back(recognised(path));
    if (files.empty()) throw InputError(concat("no file matches '", what, "'"));
  } else {
    const std::string folder = std::filesystem::path(what).parent_path().string();
    const std::string place = folder.empty() ? "." : folder;
    if (!is_directory(place)) throw InputError(concat("no such file '", what, "': no such folder '", place, "'"));
    const std::vector<std::string> names = list_folder(place);
    const auto near = nearest(std::filesystem::path(what).filename().string(), names);
    throw InputError(
        concat("no such file '", what, "'", near ? concat("; did you mean '", path_join(folder, *near), "'?") : ""));
  }
  // A pair of .bin and .idx is one source, whichever of the two a glob matches.
  const auto same = [](const SourceFile& a, const SourceFile& b) { return a.path == b.path; };
  files.erase(std::unique(files.begin(), files.end(), same), files.end());
  require_one_kind(what, files);
  return files;
}

bool has_split(const std::string& folder, Split split) {
  const std::vector<FolderFile> found = files_of_folder(folder);
  return std::any_of(found.begin(), found.end(), [&](const FolderFile& file) { return file.split == split; });
}

}  // namespace tessera::corpus
