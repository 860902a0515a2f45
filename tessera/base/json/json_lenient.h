#pragma once
/// \file
/// Hand-written JSON: HJSON (hjson.github.io), a superset of JSON. DeepSpeed's configuration files are read with it.

#include <tessera/base/value.h>

#include <string>
#include <string_view>

namespace tessera {

/// Parses JSON with these extensions: comments (# and // to the end of the line, /* */); a comma after the last member;
/// line ends instead of commas; unquoted keys (without blanks and ,:[]{}); unquoted text (verbatim to the end of the
/// line, unless it is a number, true, false or null followed by a comma, a bracket, a comment or the end of the line);
/// text in 'single quotes' (with JSON's escapes) and in '''three''' (several lines, whose common indentation is that of
/// the opening quote); a root object without braces; a byte order mark. Throws InputError for duplicate keys,
/// ill-formed UTF-8, nesting deeper than 256, more than 10000 values (configurations have hundreds), and anything else
/// that parse_json refuses. Values record their position in `name`.
Value parse_hjson(std::string_view text, const std::string& name);

}  // namespace tessera
