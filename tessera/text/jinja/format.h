#pragma once
/// \file
/// Python's two ways to fill in a text: "%s: %d" % (name, count) and "{}: {:02d}".format(name, count).

#include <string>
#include <string_view>

#include <tessera/text/jinja/objects.h>

namespace tessera::text::jinja {

/// `values`: a tuple for several, a dict for %(name)s. Throws Fault for what is not s, r, d, i, u, x, X, o, e, E, f, F,
/// g, G, c, or does not fit the value.
std::string percent_format(Machine& machine, std::string_view format, const Value& values);

/// Fields {}, {0}, {name}, each with !s or !r and a format specification; attributes and items in a field are refused.
std::string brace_format(Machine& machine, std::string_view format, const Given& given);

}  // namespace tessera::text::jinja
