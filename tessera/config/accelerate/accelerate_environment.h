#pragma once
/// \file
/// The variables ACCELERATE_*, FSDP_*, PARALLELISM_CONFIG_* and MEGATRON_LM_* with which `accelerate launch` passes its
/// file and flags to its children. They are read so that the settings apply when accelerate starts our program, and
/// written so that children of `tessera launch` find the same variables. Names and defaults: accelerate/utils/launch.py
/// (prepare_multi_gpu_env and its siblings), checked against real runs (tests/fixtures/accelerate/*.env).

#include <tessera/config/core/translation.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera::config {

/// Additional variable from `tessera launch` to its ranks: the checked file with its positions. Ranks read all of the
/// above from it, so that keys without a variable are kept and origins stay "a.yaml:4".
inline constexpr const char* accelerate_file_variable = "TESSERA_ACCELERATE_CONFIG";
/// The value of that variable, without the launcher's own keys. Throws InputError if a text is not UTF-8.
std::string packed_accelerate(const Value& file);
/// The inverse of packed_accelerate(). Throws InputError for any other text.
Value unpacked_accelerate(const std::string& text);

/// Translates the variables into settings. accelerate also writes its defaults, so a variable with a default value is
/// ignored (it must not override a file), except for the strategy. Values are checked like those of the file.
Translation read_accelerate_environment(const GetEnvironment& environment, Problems& problems);

/// The variables that `accelerate launch` sets for this file, which must be valid, in the order of its code.
std::vector<std::pair<std::string, std::string>> accelerate_variables(const Value& file);

}  // namespace tessera::config
