#pragma once
/// \file
/// config/accelerate/: the front end for accelerate: its YAML file, environment variables, fsdp_config and
/// questionnaire.
///
/// accelerate's YAML or JSON (written by `accelerate config`, --config_file). A front end: it only translates keys into
/// settings. Source of names, defaults and meanings: accelerate/commands/config/config_args.py, commands/launch.py,
/// utils/launch.py.
///
/// Every key of every section is checked, but only the section that distributed_type names takes effect. Values that
/// YAML 1.1 readers misread are accepted as intended: no, NO, "no" and false are equal, 1e8 is a whole number, and a
/// list of words may replace comma-separated words.

#include <tessera/config/core/translation.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

/// Reads and parses (JSON if the name ends in .json, else YAML). Throws InputError: no such file, a folder, larger than
/// 256 KiB, malformed, not an object. With `repeated`, a YAML key may occur twice, as in accelerate: see parse_yaml
/// (base/yaml.h).
Value load_accelerate_file(const std::string& path, std::vector<std::string>* repeated = nullptr);

/// Checks all keys of the file and translates the keys that affect training. All errors are added to `problems`.
Translation read_accelerate_file(const std::string& path, Problems& problems);
/// The same for a parsed file. Values from environment variables or flags carry their origin as position.
Translation read_accelerate(const Value& file, Problems& problems);

/// $HF_HOME/accelerate/default_config.yaml (HF_HOME: $XDG_CACHE_HOME/huggingface, ~/.cache/huggingface), or
/// default_config.json in that folder, if it exists: the file that `accelerate launch` uses by default. Only `tessera
/// launch` reads it, and reports that it did.
std::optional<std::string> default_accelerate_file(const GetEnvironment& environment = {});

/// The file's settings for a launcher. nullopt: not specified.
struct AccelerateLaunch {
  std::optional<std::int64_t> num_processes;  ///< total over all machines
  std::optional<std::int64_t> num_machines, machine_rank, main_process_port;
  std::string main_process_ip, gpu_ids, hostfile, inclusion_filter, exclusion_filter;
  bool enable_cpu_affinity = false;
};
AccelerateLaunch accelerate_launch(const Value& file, Problems& problems);

/// How each key is handled, listed by section ("deepspeed_config.zero_stage"); for fsdp_config see fsdp_keys().
std::span<const KeyRow> accelerate_keys();
/// "fsdp_" for fsdp_config, whose keys are accepted with and without it. Empty: the section has no prefix.
std::string_view accelerate_prefix(std::string_view section);
/// The value of section.key (with or without the section's prefix) if present and not null; otherwise nullptr.
const Value* find_accelerate(const Value& file, std::string_view section, std::string_view key);

}  // namespace tessera::config
