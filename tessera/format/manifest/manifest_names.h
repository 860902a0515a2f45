#pragma once
/// \file
/// Checks the names in a checkpoint's folder against its manifest: every file that readers would open must be listed.

#include <tessera/format/manifest/manifest.h>

#include <string>
#include <vector>

namespace tessera::format {

struct NameProblem {
  std::string file;  ///< plain name
  std::string text;  ///< one sentence that begins with the name; may contain control characters from file names
};

/// Finds problems with names: shards and pieces named by a listed NAME.safetensors.index.json must be listed; there
/// must not be a file that readers would prefer to a listed one (NAME.safetensors in addition to its index, an index in
/// addition to NAME.safetensors, PEFT's files). A listed index that cannot be parsed is a problem. Throws InputError
/// when the folder cannot be listed.
std::vector<NameProblem> check_names(const std::string& folder, const Manifest& manifest);

}  // namespace tessera::format
