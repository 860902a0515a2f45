#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/model_presets.h>
#include <tessera/models/load.h>

namespace tessera::models {

Value preset(const std::string& name) {
  if (auto known = config::model_preset(name)) return *std::move(known);
  throw InputError(
      concat("config_name \"", name, "\" is neither a file nor a preset; presets: ", config::model_preset_names()));
}

}  // namespace tessera::models
