#pragma once
/// \file
/// Finds files by name; used by sources.h.

#include <tessera/corpus/sources.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

/// File kind and compression, derived from a file's name.
struct Recognised {
  std::optional<FileKind> kind;  ///< nullopt: unknown extension
  Compression compression = Compression::none;
};
Recognised recognise(std::string_view path);

/// The split that a path below its dataset's folder names, if any: by a word of the file's name, otherwise by a word of
/// a folder's name.
std::optional<Split> split_of(std::string_view path);

struct FolderFile {
  std::string path;            ///< including the folder
  std::optional<Split> split;  ///< nullopt: not named
};

/// The files of known kinds in a folder or, for a folder saved by `datasets`, the files that it lists; in order. Throws
/// InputError for a malformed state.json or dataset_dict.json.
std::vector<FolderFile> files_of_folder(const std::string& folder);

/// `*` and `?` match within one name, `[a-z]` one character of a set, `**` any number of folders; a leading '.' of a
/// name must be matched literally.
bool is_glob(std::string_view pattern);
/// Matching files (not folders), sorted.
std::vector<std::string> matches_of(const std::string& pattern);

}  // namespace tessera::corpus
