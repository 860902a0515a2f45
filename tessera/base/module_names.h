#pragma once
/// \file
/// Names of modules in settings, matched by PEFT's rule (check_target_module_exists in peft/tuners/tuners_utils.py).

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Whether a module's name is `target`, or ends in "." + target: "q_proj" means "model.layers.0.self_attn.q_proj".
bool is_named_module(std::string_view module, std::string_view target);
/// Whether `targets` name the module of a parameter, or a module around it.
bool is_in_named_module(std::string_view parameter, const std::vector<std::string>& targets);
/// "q_proj, v_proj" as names; empty text: none. Throws InputError with the setting's name and `hint` for an empty name.
std::vector<std::string> parse_module_names(std::string_view setting, const std::string& text, std::string_view hint);

}  // namespace tessera
