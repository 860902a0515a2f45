#pragma once
/// \file
/// JSON embedded in a longer file.

#include <memory>
#include <string>
#include <string_view>

#include <tessera/base/value.h>

namespace tessera {

/// Like parse_json, but positions count from `file`:`line`:`column`, so they refer to the enclosing file.
Value parse_json_line(std::string_view text, std::shared_ptr<const std::string> file, int line, int column = 1);

}  // namespace tessera
