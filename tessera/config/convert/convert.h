#pragma once
/// \file
/// config/convert/: converts a resolved configuration to another system's file (`tessera config convert`), and compares
/// configurations. A writer uses only the resolved settings, never the original file, so any readable format can become
/// any writable one. Settings that the target cannot express are listed, each with its flag.

#include <tessera/base/value.h>
#include <tessera/config/kinds/file_kind.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {
struct RunConfig;
}

namespace tessera::config {

struct Resolved;

/// Whether the setting only records how the run was described (files, --fsdp, --fsdp_config, --zero_stage,
/// --group_by_length); other settings contain its meaning.
bool only_describes(std::string_view setting);

/// The settings in which two configurations differ, without those of only_describes(); zero3 and full_shard are the
/// same strategy.
std::vector<std::string> differences(const RunConfig& a, const RunConfig& b);

/// The shortest list of settings, with values as for flags, that resolves to the same run.
std::vector<std::pair<std::string, std::string>> needed_settings(const Resolved& resolved);

struct Converted {
  Value file;  ///< in the target's format, ready to be written
  std::vector<std::string>
      /// settings the target cannot express: "--bf16_optimizer_states true: accelerate's file has no key for it"
      lost;
};

/// Throws InputError for FileKind::fsdp_config if the run shards nothing, and for FileKind::megatron.
Converted convert(const Resolved& resolved, FileKind target);

/// Formats the file as text: YAML for Tessera's and accelerate's, JSON for the others (or with `json`).
std::string file_text(const Value& file, FileKind kind, bool json = false);

/// YAML that YAML 1.1 and 1.2 readers parse identically: text that either would read as another type is quoted. Members
/// keep their order.
std::string dump_yaml(const Value& value);

}  // namespace tessera::config
