#pragma once
/// \file
/// Python's two ways to fill in a text: "%s: %d" % (name, count) and "{}: {:02d}".format(name, count).

#include <string>
#include <string_view>

#include <tessera/text/jinja/objects.h>

namespace tessera::text::jinja {

/// `values`: a tuple for several, a dict for %(name)s. Conversions are %s, %r, %d, %i and %f with '-' or '0', width and
/// precision. Throws Fault for others, and for what does not fit the value.
std::string percent_format(Machine& machine, std::string_view format, const Value& values);

/// Fields {}, {0}, {name}, each with [<>][0][width][.precision] and s, d or f behind ':'. Throws Fault for others.
std::string brace_format(Machine& machine, std::string_view format, const Given& given);

}  // namespace tessera::text::jinja
