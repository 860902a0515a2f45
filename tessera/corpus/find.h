#pragma once
/// \file
/// Finding files by their names: what sources.h is made of.

#include <tessera/corpus/sources.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

/// What a file's name says of it.
struct Recognised {
  std::optional<FileKind> kind;  ///< none: an unknown extension
  Compression compression = Compression::none;
};
Recognised recognise(std::string_view path);

/// The split that a path below its dataset's folder names, if any: a word of the file's name, else of a folder's.
std::optional<Split> split_of(std::string_view path);

struct FolderFile {
  std::string path;            ///< with the folder's
  std::optional<Split> split;  ///< none: its name does not say
};

/// The files of known kinds in a folder, or those that `datasets` names in it, in order. Throws InputError for an
/// ill-formed state.json or dataset_dict.json.
std::vector<FolderFile> files_of_folder(const std::string& folder);

/// `*` and `?` match within one name, `[a-z]` one of a set, `**` any number of folders; '.' at the beginning of a name
/// is matched only by itself.
bool is_glob(std::string_view pattern);
/// Files (not folders) that match, sorted.
std::vector<std::string> matches_of(const std::string& pattern);

}  // namespace tessera::corpus
