#include <tessera/architectures/presets.h>
#include <tessera/models/load.h>

namespace tessera::models {

Value preset(const std::string& name) { return architectures::known_preset(name); }

}  // namespace tessera::models
