#pragma once
/// \file
/// The filters and tests of Jinja 3.1 that chat templates use, by name. Not included: filters that generate HTML or lay
/// out text (urlize, xmlattr, center, batch, slice, wordcount, ...) or need randomness.

#include <map>
#include <string_view>

#include <tessera/text/jinja/objects.h>

namespace tessera::text::jinja {

using FilterFunction = Value (*)(Machine& machine, const Value& input, const Given& given);
using TestFunction = bool (*)(Machine& machine, const Value& input, const Given& given);

/// Applies value|name(given). Throws Fault for an unknown name, suggesting the nearest one.
Value apply_filter(Machine& machine, std::string_view name, const Value& input, const Given& given);
/// value is name(given)
bool apply_test(Machine& machine, std::string_view name, const Value& input, const Given& given);
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

// Tables from the files that implement the filters and tests.
using FilterTable = std::map<std::string_view, FilterFunction, std::less<>>;
const FilterTable& text_filters();
const FilterTable& sequence_filters();

}  // namespace tessera::text::jinja
