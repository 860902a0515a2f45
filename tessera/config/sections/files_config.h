#pragma once
/// \file
/// Section "files" of a run's settings.

#include <tessera/config/sections/words.h>

#include <string>

namespace tessera {

/// Files of other systems (and ours) that describe the run: see config/resolve/front_ends.h.
struct FilesConfig {
  std::string config;          ///< our own: YAML or JSON with settings by name, in sections or not
  std::string config_file;     ///< accelerate's YAML or JSON
  std::string deepspeed;       ///< DeepSpeed's JSON: path, JSON object or base64
  std::string args_file;       ///< a .json, .yaml or .args of TrainingArguments, given without a flag
  Compat compat = Compat::v5;  ///< whose defaults TrainingArguments have where versions differ
  UnknownWords unknown = UnknownWords::automatic;  ///< what becomes of unknown keys and arguments
};

}  // namespace tessera
