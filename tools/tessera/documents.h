#pragma once
/// \file
/// The documents of a text file, for the text commands.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/format/jsonl.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::tool {

/// Says where a text is not UTF-8; tokenizers take U+FFFD for what is not.
inline void warn_of_ill_formed(const std::string& path, std::string_view text) {
  if (is_utf8(text)) return;
  std::size_t begin = 0;
  int line = 1;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1, ++line)
    if (!is_utf8(text.substr(begin, end - begin))) break;
  log::warning(path, ":", line, ": not valid UTF-8; ill-formed bytes count as U+FFFD, here and further on");
}

/// Calls visit(text, bytes of the file that it took) for each document, in order: a .jsonl file has one a line in its
/// field `column`, any other file is one document. Throws InputError with file:line:column.
template <class Visit>
void for_each_document(const std::string& path, const std::string& column, Visit visit) {
  if (!path.ends_with(".jsonl")) {
    const std::string text = read_file(path);
    warn_of_ill_formed(path, text);
    return visit(text, text.size());
  }
  format::JsonlReader reader(path);
  std::uint64_t before = 0;
  while (const auto row = reader.next()) {
    visit(row->at(column).as_string(), static_cast<std::size_t>(reader.bytes_read() - before));
    before = reader.bytes_read();
  }
}

}  // namespace tessera::tool
