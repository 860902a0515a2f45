#pragma once
/// \file
/// Names of modules in settings, matched by PEFT's rule (check_target_module_exists in peft/tuners/tuners_utils.py).

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// PEFT's word for all linear layers of a model except its head.
inline constexpr const char* all_linear = "all-linear";

/// Removes the name components that torch.compile, DDP, FSDP and activation checkpointing insert ("_orig_mod.").
std::string without_wrappers(std::string name);
/// Whether a module's name is `target` or ends in "." + target: "q_proj" matches "model.layers.0.self_attn.q_proj".
bool is_named_module(std::string_view module, std::string_view target);
/// Whether `text` is a regular expression for whole module names, i.e. has a character that cannot occur in a name.
bool is_module_pattern(std::string_view text);
/// Matches by is_named_module() or, if `target` is a pattern, against the module's whole name (base/names/pattern.h).
/// Throws InputError for a malformed pattern.
bool is_meant_module(std::string_view module, const std::string& target);
/// Whether `targets` match the module of a parameter or any module that contains it.
bool is_in_named_module(std::string_view parameter, const std::vector<std::string>& targets);
/// Splits "q_proj, v_proj" into names; a pattern is one name, commas included; empty text gives none. Throws InputError
/// with the setting's name and `hint` for an empty name.
std::vector<std::string> parse_module_names(std::string_view setting, const std::string& text, std::string_view hint);

}  // namespace tessera
