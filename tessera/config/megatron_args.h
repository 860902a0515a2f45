#pragma once
/// \file
/// Megatron-LM's arguments as flags of `tessera train`. A front end: it translates and acts on nothing. Names and meanings:
/// megatron/training/arguments.py.

#include <tessera/config/translation.h>

#include <optional>
#include <string>
#include <vector>

namespace tessera::config {

/// What becomes of each argument, without the leading dashes and with '_' for '-'.
std::span<const KeyRow> megatron_keys();

/// Whether the arguments are Megatron's: at least one of them is a name that only Megatron has (--num-layers, --train-iters,
/// --tensor-model-parallel-size, ...).
bool is_megatron_style(const std::vector<std::string>& arguments);

/// When the arguments are Megatron's: takes out of `arguments` all that are named in megatron_keys(), translates them, and adds what is
/// wrong to `problems`. Names that both have with one meaning (--bf16, --seed, --lr-warmup-...) stay when ours reads them too. The
/// origins of the settings are the flags. nullopt, and nothing is touched, when they are not Megatron's.
std::optional<Translation> translate_megatron_flags(std::vector<std::string>& arguments, Problems& problems);

}  // namespace tessera::config
