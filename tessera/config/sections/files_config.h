#pragma once
/// \file
/// Section "files" of a run's settings.

#include <tessera/config/sections/words.h>

#include <string>

namespace tessera {

/// Configuration files of Tessera and other systems: see config/resolve/front_ends.h.
struct FilesConfig {
  std::string config;          ///< our own format: YAML or JSON with settings by name, with or without sections
  std::string config_file;     ///< accelerate's YAML or JSON
  std::string deepspeed;       ///< DeepSpeed's JSON: path, JSON object or base64
  std::string args_file;       ///< TrainingArguments in a .json, .yaml or .args file, passed without a flag
  Compat compat = Compat::v5;  ///< transformers version whose defaults apply where versions differ
  UnknownWords unknown = UnknownWords::automatic;  ///< how unknown keys and arguments are handled
};

}  // namespace tessera
