#pragma once
/// \file
/// config/convert/: from a resolved configuration to the file of another system (`tessera config convert`), and what
/// two configurations have in common. A writer needs only what was resolved, never the file it came from: any format
/// that can be read can become any that can be written, and what the target cannot say is listed, each with the flag
/// that says it.

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

/// Settings that only say how the run was described: files, --fsdp, --fsdp_config, --zero_stage, --group_by_length.
/// What they mean stands in others.
bool only_describes(std::string_view setting);

/// The settings in which two configurations differ, leaving out those that only describe; zero3 and full_shard are one
/// strategy.
std::vector<std::string> differences(const RunConfig& a, const RunConfig& b);

/// The shortest list of settings, with their values as flags give them, that resolves to the same run.
std::vector<std::pair<std::string, std::string>> needed_settings(const Resolved& resolved);

struct Converted {
  Value file;  ///< the target's, ready to be written
  std::vector<std::string>
      lost;  ///< "--bf16_optimizer_states true: accelerate's file has no key for it": what the target cannot say
};

/// Throws InputError for FileKind::fsdp_config when the run shards nothing, and for FileKind::megatron.
Converted convert(const Resolved& resolved, FileKind target);

/// As text: YAML for Tessera's and accelerate's, JSON for the others (or when `json`).
std::string file_text(const Value& file, FileKind kind, bool json = false);

/// YAML that YAML 1.1 and 1.2 readers take alike: text that either would take for something else is quoted. Members
/// keep their order.
std::string dump_yaml(const Value& value);

}  // namespace tessera::config
