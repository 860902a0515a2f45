#pragma once
/// \file
/// Scans JSON without building values: checks that it is complete and lists the members of its outermost object. Fast
/// enough for a log of a hundred thousand lines.

#include <functional>
#include <string_view>

namespace tessera {

/// Returns whether `text` is one JSON object by the rules of parse_json (value.h), except that duplicate members and
/// numbers beyond the range of double are accepted. Calls `member` for each member of the outermost object, in order,
/// with the name between its quotation marks and the text of the value, both still escaped; also for members before a
/// syntax error.
bool skim_json_object(std::string_view text,
                      const std::function<void(std::string_view name, std::string_view value)>& member);

}  // namespace tessera
