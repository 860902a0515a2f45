#include <tessera/config/core/resolved.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>

namespace tessera::config {

const Origin& Resolved::origin(std::string_view setting) const {
  static const Origin by_default;
  TESSERA_CHECK(find_field(setting) != nullptr, "unknown setting ", setting);
  const auto found = origins.find(setting);
  return found == origins.end() ? by_default : found->second;
}

std::string Resolved::said(std::string_view setting) const {
  const Origin& from = origin(setting);
  return from.is_flag() ? from.str() : concat(setting, " (", from, ")");
}

void throw_if_any(const Problems& problems) {
  const std::vector<std::string>& told = problems.told();
  if (told.empty()) return;
  if (told.size() == 1) throw InputError(told.front());
  throw InputError(concat(told.size(), " problems in the configuration:\n  ", join(told, "\n  ")));
}

}  // namespace tessera::config
