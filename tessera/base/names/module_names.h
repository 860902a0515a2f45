#pragma once
/// \file
/// Names of modules in settings, matched by PEFT's rule (check_target_module_exists in peft/tuners/tuners_utils.py).

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// PEFT's word for every linear map of a model but its head.
inline constexpr const char* all_linear = "all-linear";

/// A parameter's name without what torch.compile, DDP, FSDP and activation checkpointing put into names ("_orig_mod.").
std::string without_wrappers(std::string name);
/// Whether a module's name is `target`, or ends in "." + target: "q_proj" means "model.layers.0.self_attn.q_proj".
bool is_named_module(std::string_view module, std::string_view target);
/// Whether `text` is a regular expression of modules' whole names: it has a character that no name has.
bool is_module_pattern(std::string_view text);
/// is_named_module(), or, of a pattern, whether all of the module's name matches it (base/names/pattern.h). Throws
/// InputError for a malformed one.
bool is_meant_module(std::string_view module, const std::string& target);
/// Whether `targets` name the module of a parameter, or a module around it.
bool is_in_named_module(std::string_view parameter, const std::vector<std::string>& targets);
/// "q_proj, v_proj" as names; a pattern is one, commas and all; empty text: none. Throws InputError with the setting's
/// name and `hint` for an empty name.
std::vector<std::string> parse_module_names(std::string_view setting, const std::string& text, std::string_view hint);

}  // namespace tessera
