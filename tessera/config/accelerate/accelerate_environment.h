#pragma once
/// \file
/// The variables ACCELERATE_*, FSDP_*, PARALLELISM_CONFIG_* and MEGATRON_LM_* by which `accelerate launch` tells its
/// children what its file and flags say: read here, so that a program of ours that it starts obeys, and written, so
/// that what `tessera launch` starts finds the same. Names and defaults: accelerate/utils/launch.py
/// (prepare_multi_gpu_env and its siblings), checked against real runs (tests/fixtures/accelerate/*.env).

#include <tessera/config/core/translation.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera::config {

/// What `tessera launch` hands to its ranks besides: the checked file with its positions, which all of the above are
/// then read from, so that nothing is lost which has no variable and origins stay "a.yaml:4".
inline constexpr const char* accelerate_file_variable = "TESSERA_ACCELERATE_CONFIG";
/// The text of that variable; keys that are the launcher's own are left out. Throws InputError when a text is not
/// UTF-8.
std::string packed_accelerate(const Value& file);
/// Throws InputError when the text is something else.
Value unpacked_accelerate(const std::string& text);

/// What the variables say, as settings. accelerate writes its defaults, too; a variable with a default value says
/// nothing here (so it does not override a file), except the strategy's. Values are checked as those of the file are.
Translation read_accelerate_environment(const GetEnvironment& environment, Problems& problems);

/// The variables that `accelerate launch` sets for this file (which is taken to be without problems), in the order of
/// its code.
std::vector<std::pair<std::string, std::string>> accelerate_variables(const Value& file);

}  // namespace tessera::config
