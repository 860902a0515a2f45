#pragma once
/// \file
/// Which names a checkpoint's folder may hold beside its manifest: what readers would open must be listed.

#include <tessera/format/manifest/manifest.h>

#include <string>
#include <vector>

namespace tessera::format {

struct NameProblem {
  std::string file;  ///< plain name
  std::string text;  ///< one sentence that begins with a name; may hold control characters that a file name holds
};

/// Problems with names: shards and pieces that a listed NAME.safetensors.index.json names must be listed; no file may
/// lie there that readers would take instead of a listed one (NAME.safetensors beside its index, an index beside
/// NAME.safetensors, PEFT's files). A listed index that cannot be parsed is a problem. Throws InputError when the
/// folder cannot be listed.
std::vector<NameProblem> check_names(const std::string& folder, const Manifest& manifest);

}  // namespace tessera::format
