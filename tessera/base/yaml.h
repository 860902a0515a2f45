#pragma once
/// \file
/// YAML as its lenient readers take it (value.h has the strict one).

#include <tessera/base/value.h>

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// As parse_yaml of value.h. With `repeated`, a key may stand twice: the last one counts, and "FILE:LINE: the key ...
/// appears twice" is appended to it; and the members of "<<: *anchor" are those of the mapping, where it has not its
/// own.
Value parse_yaml(std::string_view text, const std::string& name, std::vector<std::string>* repeated);

}  // namespace tessera
