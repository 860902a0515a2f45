#pragma once
/// \file
/// config/megatron/: Megatron-LM's arguments as flags of `tessera train`. A front end: it only translates. Names,
/// defaults and meanings: megatron/training/arguments.py.
///
/// The model's shape (--num-layers, --hidden-size, ...) becomes config_name and config_overrides: GPT-2, Llama if the
/// arguments describe one (--swiglu, --normalization RMSNorm, --position-embedding-type rope), or a related family:
/// Qwen2 and 3, Mixtral, Qwen's mixtures of experts, DeepSeek-V3 (megatron_experts.cpp). --global-batch-size becomes
/// gradient_accumulation_steps, using the number of processes (--num_processes, or the launcher's WORLD_SIZE).

#include <tessera/config/core/translation.h>

#include <optional>
#include <string>
#include <vector>

namespace tessera::config {

/// How each argument is handled, without leading dashes and with '_' for '-'.
std::span<const KeyRow> megatron_keys();
/// The row of an argument, or of the refused family it belongs to ("retro_*"); nullptr if absent.
const KeyRow* find_megatron_key(std::string_view name);

/// Whether the arguments are Megatron's: at least one name is Megatron's alone (--train-iters,
/// --tensor-model-parallel-size, ...), and none is one of transformers' (--model_name_or_path, --learning_rate,
/// --num_train_epochs).
bool is_megatron_style(const std::vector<FileWord>& arguments);

/// If the arguments are Megatron's (read_megatron_flags assumes so): removes from `arguments` those in megatron_keys()
/// that are not settings of ours (--bf16, --seed, --weight-decay, ... stay and mean the same), translates them, and
/// adds errors to `problems`. The flags are the settings' origins. Where Megatron's default differs from ours and no
/// argument sets the value, Megatron's applies (weight_decay 0.01, seed 1234). Otherwise returns nullopt and changes
/// nothing. A file of arguments (read_model_args) makes them Megatron's.
Translation read_megatron_flags(std::vector<FileWord>& arguments, Problems& problems,
                                const GetEnvironment& environment = {});
std::optional<Translation> translate_megatron_flags(std::vector<FileWord>& arguments, Problems& problems,
                                                    const GetEnvironment& environment = {});

/// The top-level key above the arguments in the YAML files of Megatron's functional tests.
inline constexpr const char* model_args_key = "MODEL_ARGS";
/// After this many problems, the remaining arguments are not checked.
inline constexpr std::size_t most_megatron_problems = 20;
/// Reads such a file, which `arguments` name after --args_file or on its own. Its words replace its name and precede
/// the typed ones, which therefore win. "--swiglu: true" is a switch, "[a b]" are several words, ${NAME} is an
/// environment variable, whose absence is a problem; of repeated keys the last one wins. Returns notes about the file;
/// nullopt if there is none.
std::optional<std::vector<std::string>> read_model_args(std::vector<FileWord>& arguments, Problems& problems,
                                                        const GetEnvironment& environment);

}  // namespace tessera::config
