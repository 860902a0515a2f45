#pragma once
/// \file
/// config/megatron/: Megatron-LM's arguments as flags of `tessera train`. A front end: it translates and acts on
/// nothing. Names, defaults and meanings: megatron/training/arguments.py.
///
/// The shape of the model (--num-layers, --hidden-size, ...) becomes config_name and config_overrides: GPT-2's, or
/// Llama's when the arguments describe one (--swiglu, --normalization RMSNorm, --position-embedding-type rope), or
/// those of a family in its manner: Qwen2 and 3, Mixtral, Qwen's mixtures of experts, DeepSeek-V3
/// (megatron_experts.cpp).
/// --global-batch-size becomes gradient_accumulation_steps by the number of processes (--num_processes, or WORLD_SIZE
/// of the launcher).

#include <tessera/config/core/translation.h>

#include <optional>
#include <string>
#include <vector>

namespace tessera::config {

/// What becomes of each argument, without the leading dashes and with '_' for '-'.
std::span<const KeyRow> megatron_keys();
/// The row of an argument, or of the refused family it belongs to ("retro_*"); nullptr: there is none.
const KeyRow* find_megatron_key(std::string_view name);

/// Whether the arguments are Megatron's: at least one of them is a name that only Megatron has (--train-iters,
/// --tensor-model-parallel-size, ...), and none is one of transformers' (--model_name_or_path, --learning_rate,
/// --num_train_epochs).
bool is_megatron_style(const std::vector<FileWord>& arguments);

/// When the arguments are Megatron's (read_megatron_flags: as if they were): takes out of `arguments` those that are
/// named in megatron_keys() and are no settings of ours (--bf16, --seed, --weight-decay, ... stay, with the same
/// meaning), translates them, and adds what is wrong to `problems`. The origins of the settings are the flags. Where
/// Megatron's default differs from ours and the arguments are silent, Megatron's holds (weight_decay 0.01, seed 1234).
/// nullopt, and nothing is touched, when they are not Megatron's. A file of arguments (read_model_args) makes them
/// Megatron's.
Translation read_megatron_flags(std::vector<FileWord>& arguments, Problems& problems,
                                const GetEnvironment& environment = {});
std::optional<Translation> translate_megatron_flags(std::vector<FileWord>& arguments, Problems& problems,
                                                    const GetEnvironment& environment = {});

/// The top-level key of the YAML files of Megatron's functional tests below which the arguments stand.
inline constexpr const char* model_args_key = "MODEL_ARGS";
/// After so many, the other arguments are not looked at.
inline constexpr std::size_t most_megatron_problems = 20;
/// What such a file, named in `arguments` by --args_file or alone, holds: its words replace its name, before the typed
/// ones, which so count when both say something. "--swiglu: true" is a switch, "[a b]" are several words, ${NAME} is
/// the variable of the environment, whose absence is a problem; of a key that stands twice the last one counts. Returns
/// notes about the file; nullopt when there is none.
std::optional<std::vector<std::string>> read_model_args(std::vector<FileWord>& arguments, Problems& problems,
                                                        const GetEnvironment& environment);

}  // namespace tessera::config
