#pragma once
/// \file
/// JSON as people write it by hand: HJSON (hjson.github.io), of which JSON is a part. DeepSpeed reads its files so.

#include <tessera/base/value.h>

#include <string>
#include <string_view>

namespace tessera {

/// JSON, and besides: comments (# and // to the end of the line, /* */), a comma after the last member, line ends
/// instead of commas, keys without quotes (no blanks and none of ,:[]{} in them), text without quotes (to the end of
/// the line, as it stands; a number, true, false or null that a comma, a bracket, a comment or the end of the line
/// follows is none), text in 'single quotes' (with JSON's escapes) and in '''three''' (several lines, whose common
/// indentation is that of the first quote), no braces around the whole, a byte order mark. Duplicate keys, ill-formed
/// UTF-8, nesting deeper than 256 and more than 10000 values (configurations have hundreds) throw InputError, as
/// everything does that parse_json refuses besides. Values know where they stand in `name`.
Value parse_hjson(std::string_view text, const std::string& name);

}  // namespace tessera
