#pragma once
/// \file
/// The documents of a text file, for the text commands.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/value.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace tessera::tool {

/// Calls visit(text, bytes of the file that it took) for each document, in order: a .jsonl file has one a line in its
/// field "text", any other file is one document. Throws InputError with file and line.
template <class Visit>
void for_each_document(const std::string& path, Visit visit) {
  const std::string text = read_file(path);
  if (!path.ends_with(".jsonl")) return visit(text, text.size());
  std::size_t begin = 0;
  for (int line = 1; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view row = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (trim(row).empty()) continue;
    visit(parse_json(row, concat(path, ":", line)).at("text").as_string(), row.size());
  }
}

}  // namespace tessera::tool
