#include <tessera/text/unicode/pipeline_tables.h>
#include <tessera/text/unicode/script.h>

#include <algorithm>

namespace tessera::text {

std::uint8_t script_class(std::uint32_t code_point) {
  const auto after = std::upper_bound(script_runs.begin(), script_runs.end(), code_point,
                                      [](std::uint32_t value, const ScriptRun& run) { return value < run.first; });
  if (after == script_runs.begin() || std::prev(after)->last < code_point) return script_any;
  return std::prev(after)->script;
}

}  // namespace tessera::text
