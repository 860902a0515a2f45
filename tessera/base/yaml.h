#pragma once
/// \file
/// YAML with the behaviour of lenient readers (value.h has the strict one).

#include <tessera/base/value.h>

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Like parse_yaml of value.h. With `repeated`, duplicate keys are accepted: the last one counts, and "FILE:LINE: the
/// key ... appears twice" is appended to `repeated`. Members merged by "<<: *anchor" are then supported too; the
/// mapping's own members take precedence.
Value parse_yaml(std::string_view text, const std::string& name, std::vector<std::string>* repeated);

}  // namespace tessera
