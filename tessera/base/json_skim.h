#pragma once
/// \file
/// Reading past JSON: is it whole, and what are the members of its outermost object? Nothing is built, so that a log of
/// a hundred thousand lines is read in a moment.

#include <functional>
#include <string_view>

namespace tessera {

/// Whether `text` is one JSON object by the rules of parse_json (value.h), but for members that appear twice and
/// numbers beyond the range of double. `member` is called with each member of the object itself, in order: the name
/// between its quotation marks and the text of the value, both with their escapes; also with those before a mistake.
bool skim_json_object(std::string_view text,
                      const std::function<void(std::string_view name, std::string_view value)>& member);

}  // namespace tessera
