#pragma once
/// \file
/// The file of --fsdp_config: Hugging Face's TrainingArguments.fsdp_config (transformers 4 and 5) and the fsdp_config section of
/// accelerate's YAML, FSDP version 1 and 2. A front end: it translates keys into our settings and acts on nothing.
///
/// Names and accepted values: transformers/training_args.py, accelerate/utils/dataclasses.py (FullyShardedDataParallelPlugin) and
/// accelerate/commands/launch.py. Every key is known with and without the prefix "fsdp_". What those programs accept and then
/// ignore is honoured here where it can be, else named in a note.

#include <tessera/base/value.h>
#include <tessera/config/resolve.h>

#include <string>
#include <vector>

namespace tessera::config {

/// One setting that a file gives.
struct FileSetting {
  std::string name;  ///< of the field (fields.h)
  std::string text;  ///< as a flag would give it
  std::string key;   ///< as it is spelled in the file
  SourcePos where;
};

struct FsdpFile {
  std::vector<FileSetting> settings;  ///< in the order of the file, each field once
  std::vector<std::string> notes;     ///< "fsdp.json:4: use_orig_params has no effect: ..."
};

/// `given`: the name of a JSON file (of a YAML file when it ends in .yaml or .yml), or a JSON object. A file that has a section
/// fsdp_config (accelerate's own) is read there. Unknown keys (with the nearest known one), values of a wrong kind, and two
/// spellings of one key that disagree are added to `problems`, each with file and line.
FsdpFile read_fsdp_config(const std::string& given, Problems& problems);

/// "fsdp.json:14".
std::string file_and_line(const SourcePos& where);

}  // namespace tessera::config
