#pragma once
/// \file
/// The functions available to every chat template.

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include <tessera/text/jinja/objects.h>

namespace tessera::text::jinja {

/// range, dict, namespace, joiner, cycler, raise_exception and strftime_now (which uses `now`, in local time).
std::vector<std::pair<std::string, Value>> make_globals(Machine& machine, std::time_t now);

}  // namespace tessera::text::jinja
