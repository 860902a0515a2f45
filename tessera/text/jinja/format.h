#pragma once
/// \file
/// Python's two kinds of string formatting: "%s: %d" % (name, count) and "{}: {:02d}".format(name, count).

#include <string>
#include <string_view>

#include <tessera/text/jinja/objects.h>

namespace tessera::text::jinja {

/// `values`: a tuple for several values, a dict for %(name)s. Conversions are %s, %r, %d, %i and %f with '-' or '0',
/// width and precision. Throws Fault for other conversions and for values of the wrong type.
std::string percent_format(Machine& machine, std::string_view format, const Value& values);

/// Fields are {}, {0} and {name}, each with an optional [<>][0][width][.precision] and s, d or f after ':'. Throws
/// Fault for other fields.
std::string brace_format(Machine& machine, std::string_view format, const Given& given);

}  // namespace tessera::text::jinja
