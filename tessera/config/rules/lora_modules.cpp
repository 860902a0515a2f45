#include <tessera/config/rules/lora_modules.h>

#include <tessera/base/names/module_names.h>
#include <tessera/base/names/pattern.h>
#include <tessera/base/text.h>
#include <tessera/config/sections/model_config.h>

namespace tessera::config {

std::vector<std::string> lora_targets(const ModelConfig& config) {
  std::vector<std::string> targets =
      parse_module_names("lora_target_modules", config.lora_target_modules, concat(", or ", all_linear));
  if (targets == std::vector<std::string>{"all"}) targets = {all_linear};
  if (targets.size() == 1 && is_module_pattern(targets[0])) Pattern("--lora_target_modules", targets[0]);
  return targets;
}

std::vector<std::string> lora_modules_to_save(const ModelConfig& config) {
  return parse_module_names("lora_modules_to_save", config.lora_modules_to_save, "");
}

}  // namespace tessera::config
