#pragma once
/// \file
/// config/kinds/: determines the system that a configuration file belongs to, and collects all systems' keys.

#include <tessera/base/value.h>

#include <optional>
#include <string>
#include <string_view>

namespace tessera::config {

/// Kinds of files that describe a run.
enum class FileKind { tessera, accelerate, deepspeed, fsdp_config, training_args, megatron };
inline constexpr FileKind all_file_kinds[] = {FileKind::tessera,     FileKind::accelerate,    FileKind::deepspeed,
                                              FileKind::fsdp_config, FileKind::training_args, FileKind::megatron};

std::string_view kind_word(FileKind kind);   ///< "deepspeed": the word for --kind and --to
std::string_view kind_title(FileKind kind);  ///< "DeepSpeed's JSON"
std::string_view kind_flag(FileKind kind);   ///< "--deepspeed": the flag of `tessera train` that takes such a file
std::optional<FileKind> kind_of_word(std::string_view word);

/// The kind that most of the file's keys belong to; a misspelt key counts for the kind of the nearest known key, with
/// less weight. nullopt if no key resembles a known one.
std::optional<FileKind> guess_kind(const Value& file);

/// The content of a JSON or YAML file, for guess_kind: YAML if it ends in .yaml or .yml or is not JSON. Throws
/// InputError.
Value read_any(const std::string& path);

}  // namespace tessera::config
