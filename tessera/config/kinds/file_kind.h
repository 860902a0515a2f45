#pragma once
/// \file
/// config/kinds/: which system a file of settings belongs to, and the keys of all of them in one place.

#include <tessera/base/value.h>

#include <optional>
#include <string>
#include <string_view>

namespace tessera::config {

/// The files that describe a run.
enum class FileKind { tessera, accelerate, deepspeed, fsdp_config, training_args, megatron };
inline constexpr FileKind all_file_kinds[] = {FileKind::tessera,     FileKind::accelerate,    FileKind::deepspeed,
                                              FileKind::fsdp_config, FileKind::training_args, FileKind::megatron};

std::string_view kind_word(FileKind kind);   ///< "deepspeed": of --kind and --to
std::string_view kind_title(FileKind kind);  ///< "DeepSpeed's JSON"
std::string_view kind_flag(FileKind kind);   ///< "--deepspeed": the flag of `tessera train` that takes such a file
std::optional<FileKind> kind_of_word(std::string_view word);

/// The kind that most of the file's keys belong to (a misspelt key counts for the kind of the nearest known one, but
/// less); nullopt when no key is like any known one.
std::optional<FileKind> guess_kind(const Value& file);

/// What a file holds, of JSON or (.yaml, .yml, or what is no JSON) YAML, for guess_kind. Throws InputError.
Value read_any(const std::string& path);

}  // namespace tessera::config
