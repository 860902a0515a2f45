#pragma once
/// \file
/// Removes and replaces single characters.

#include <tessera/text/unicode/utf8.h>

#include <string>
#include <string_view>

namespace tessera::text {

/// Removes the code points for which removed(code) is true from `text` (well-formed UTF-8). Returns `text` itself if
/// nothing is removed, otherwise a view of `storage`, which is overwritten.
template <class Removed>
std::string_view without(std::string_view text, std::string& storage, const Removed& removed) {
  bool changed = false;
  std::size_t copied = 0;  // everything before it is already in storage
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (removed(c.value)) {
      if (!changed) storage.clear();
      changed = true;
      storage.append(text, copied, at - copied);
      copied = at + c.size;
    }
    at += c.size;
  }
  if (!changed) return text;
  return storage.append(text, copied);
}

/// Nmt, the cleaning used for machine translation: removes ASCII controls and turns other white space into blanks.
std::string_view to_nmt(std::string_view text, std::string& storage);

}  // namespace tessera::text
