#include <tessera/format/manifest/manifest_names.h>

#include <set>
#include <string_view>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/format/manifest/regular_file.h>
#include <tessera/format/manifest/state_index.h>
#include <tessera/format/safetensors/safetensors_index.h>

namespace tessera::format {
namespace {

constexpr std::string_view kSuffix = ".safetensors", kIndexSuffix = ".safetensors.index.json";

/// The files named by an index of shards (safetensors_index.h) or of pieces (state_index.h).
std::set<std::string> files_named_by(const std::string& path) {
  const std::string text = read_file(path, std::uint64_t{256} << 20);
  if (parse_json(text, path).contains("weight_map")) {
    const SafetensorsIndex index = parse_safetensors_index(text, path);
    return {index.files.begin(), index.files.end()};
  }
  std::set<std::string> files;
  for (const StoredTensor& tensor : parse_state_index(text, path).tensors)
    for (const StoredPiece& piece : tensor.pieces) files.insert(piece.file);
  return files;
}

/// Maps NAME.safetensors.index.json to NAME.safetensors.
std::string single_file(const std::string& index) {
  return index.substr(0, index.size() - kIndexSuffix.size()) + std::string(kSuffix);
}

/// Checks the files that a listed index names, and files with related names.
void check_index(const std::string& folder, const std::string& index, const std::set<std::string>& listed,
                 std::vector<NameProblem>& problems) {
  try {
    for (const std::string& file : files_named_by(path_join(folder, index)))
      if (!listed.contains(file))
        problems.push_back({index, concat(index, " names ", file, ", which ", kManifestName, " does not list")});
  } catch (const InputError& error) {
    problems.push_back({index, error.what()});
  }
  const std::string single = single_file(index);
  if (!listed.contains(single) && path_exists(path_join(folder, single)))
    problems.push_back({single, concat(single, " is not listed in ", kManifestName,
                                       ", but would be read instead of the files that ", index, " names")});
}

}  // namespace

std::vector<NameProblem> check_names(const std::string& folder, const Manifest& manifest) {
  std::set<std::string> listed;
  for (const ManifestFile& file : manifest.files) listed.insert(file.name);
  std::vector<NameProblem> problems;
  for (const std::string& name : listed)
    if (name.ends_with(kIndexSuffix) && RegularFile(folder, name).problem().empty())
      check_index(folder, name, listed, problems);
  for (const std::string& name : list_folder(folder)) {
    if (listed.contains(name)) continue;
    if (name == "adapter_config.json" ||
        name == "adapter_model.safetensors")  // with PEFT's files, readers would take a whole model for adapters
      problems.push_back({name, concat(name, " is not listed in ", kManifestName,
                                       ", but would make readers treat the folder as adapters")});
    if (name.ends_with(kIndexSuffix) && !listed.contains(single_file(name)))
      problems.push_back({name, concat(name, " is not listed in ", kManifestName)});
  }
  return problems;
}

}  // namespace tessera::format
