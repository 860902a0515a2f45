#include <tessera/base/module_names.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>

namespace tessera {

bool is_named_module(std::string_view module, std::string_view target) {
  return module == target || (module.size() > target.size() && module.ends_with(target) &&
                              module[module.size() - target.size() - 1] == '.');
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
  for (const std::string& name : split(text, ',')) {
    names.push_back(trim(name));
    if (names.back().empty())
      throw InputError(concat("--", setting, " '", text, "' has an empty name: give names separated by commas", hint));
  }
  return names;
}

}  // namespace tessera
