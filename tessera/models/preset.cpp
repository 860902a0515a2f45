#include <tessera/config/core/model_presets.h>
#include <tessera/models/load.h>

namespace tessera::models {

Value preset(const std::string& name) { return config::known_preset(name); }

}  // namespace tessera::models
