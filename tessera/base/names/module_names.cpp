#include <tessera/base/names/module_names.h>

#include <tessera/base/error.h>
#include <tessera/base/names/pattern.h>
#include <tessera/base/text.h>

#include <algorithm>

namespace tessera {

std::string without_wrappers(std::string name) {
  for (const std::string_view wrapper :
       {"module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."})
    for (std::size_t at = 0; (at = name.find(wrapper, at)) != std::string::npos;)
      if (at == 0 || name[at - 1] == '.')
        name.erase(at, wrapper.size());
      else
        at += wrapper.size();
  return name;
}

bool is_named_module(std::string_view module, std::string_view target) {
  return module == target || (module.size() > target.size() && module.ends_with(target) &&
                              module[module.size() - target.size() - 1] == '.');
}

bool is_module_pattern(std::string_view text) { return text.find_first_of("*+?()[]{}|^$\\") != text.npos; }

bool is_meant_module(std::string_view module, const std::string& target) {
  if (!is_module_pattern(target)) return is_named_module(module, target);
  return Pattern("the pattern of module names", target).fits(module);
}

bool is_in_named_module(std::string_view parameter, const std::vector<std::string>& targets) {
  for (auto dot = parameter.find('.'); dot != std::string_view::npos; dot = parameter.find('.', dot + 1))
    if (std::any_of(targets.begin(), targets.end(),
                    [&](const std::string& target) { return is_named_module(parameter.substr(0, dot), target); }))
      return true;
  return false;
}

std::vector<std::string> parse_module_names(std::string_view setting, const std::string& text, std::string_view hint) {
  std::vector<std::string> names;
  if (text.empty()) return names;
  if (is_module_pattern(text)) return {trim(text)};
  for (const std::string& name : split(text, ',')) {
    names.push_back(trim(name));
    if (names.back().empty())
      throw InputError(concat("--", setting, " '", text, "' has an empty name: use names separated by commas", hint));
  }
  return names;
}

}  // namespace tessera
