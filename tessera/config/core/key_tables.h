#pragma once
/// \file
/// The tables of all front ends in one place: which keys a format has and what becomes of each.
/// docs/configuration_keys.md, the guess of a file's kind and the counts of `tessera config check` are made from it.

#include <tessera/config/convert/convert.h>
#include <tessera/config/core/translation.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

struct KeyTable {
  FileKind kind;
  std::string_view title;         ///< "DeepSpeed's JSON"
  std::string_view introduction;  ///< a sentence of Markdown
  std::span<const KeyRow> rows;
};

/// All tables, in the order of the page.
std::vector<KeyTable> key_tables();

/// The page: a chapter for each table, with a row for each key.
std::string key_tables_markdown();

/// Keys of the file's top level that some kind of file has, for guess_kind.
std::vector<std::string> top_level_keys(FileKind kind);

/// A key with a value in a file.
struct Leaf {
  std::string path;  ///< "zero_optimization.stage", as it is spelled there
  SourcePos where;
  const KeyRow* row = nullptr;  ///< what the tables say of it, or of the section that it stands in; nullptr: nothing
};
/// All of them, in the order of the file; a list counts as one. Settings of our own file have no row: all of them act.
std::vector<Leaf> leaves_of(const Value& file, FileKind kind);

}  // namespace tessera::config
