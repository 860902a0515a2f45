#pragma once
/// \file
/// config/accelerate/: the front end for accelerate: its YAML file, its variables, fsdp_config, its questionnaire.
///
/// accelerate's YAML or JSON (what `accelerate config` writes, --config_file). A front end: it translates keys into
/// settings and acts on nothing. Source of names, defaults and meanings: accelerate/commands/config/config_args.py,
/// commands/launch.py, utils/launch.py.
///
/// Every key of every section is checked, also of sections that do not act; only the section that distributed_type
/// names does. What readers of YAML 1.1 trip over means what was meant: no, NO, "no" and false are one, 1e8 is a whole
/// number, a list of words does where words with commas are expected.

#include <tessera/config/core/translation.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

/// Reads and parses (JSON when the name ends in .json, else YAML). Throws InputError: no such file, a folder, larger
/// than 256 KiB, malformed, not an object. With `repeated`, a key of the YAML may stand twice, as accelerate has it:
/// parse_yaml of base/yaml.h.
Value load_accelerate_file(const std::string& path, std::vector<std::string>* repeated = nullptr);

/// Checks all keys of the file and translates those that act on training. All that is wrong is added to `problems`.
Translation read_accelerate_file(const std::string& path, Problems& problems);
/// The same for a file that has been parsed. Values made elsewhere (environment variables, flags) carry where they come
/// from.
Translation read_accelerate(const Value& file, Problems& problems);

/// $HF_HOME/accelerate/default_config.yaml (HF_HOME: $XDG_CACHE_HOME/huggingface, ~/.cache/huggingface), or
/// default_config.json there, if there is one: what `accelerate launch` takes when it is given no file. Only `tessera
/// launch` looks there, and says so.
std::optional<std::string> default_accelerate_file(const GetEnvironment& environment = {});

/// What the file says to a launcher. Nothing: not said.
struct AccelerateLaunch {
  std::optional<std::int64_t> num_processes;  ///< on all machines together
  std::optional<std::int64_t> num_machines, machine_rank, main_process_port;
  std::string main_process_ip, gpu_ids, hostfile, inclusion_filter, exclusion_filter;
  bool enable_cpu_affinity = false;
};
AccelerateLaunch accelerate_launch(const Value& file, Problems& problems);

/// What becomes of each key, section by section ("deepspeed_config.zero_stage"); those of fsdp_config are fsdp_keys().
std::span<const KeyRow> accelerate_keys();
/// "fsdp_" of fsdp_config: its keys are known with and without it. Empty: the section has none.
std::string_view accelerate_prefix(std::string_view section);
/// The member of section.key (with or without the section's prefix) that is given and not null; nullptr when there is
/// none.
const Value* find_accelerate(const Value& file, std::string_view section, std::string_view key);

}  // namespace tessera::config
