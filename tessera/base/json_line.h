#pragma once
/// \file
/// JSON that stands in a longer file.

#include <memory>
#include <string>
#include <string_view>

#include <tessera/base/value.h>

namespace tessera {

/// As parse_json, but positions count from `file`:`line`:`column`, so that they tell where in the file a value stands.
Value parse_json_line(std::string_view text, std::shared_ptr<const std::string> file, int line, int column = 1);

}  // namespace tessera
