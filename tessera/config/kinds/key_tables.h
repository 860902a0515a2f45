#pragma once
/// \file
/// The tables of all front ends: each format's keys and how they are handled. docs/configuration_keys.md is generated
/// from them, and guess_kind() uses them.

#include <tessera/config/core/translation.h>
#include <tessera/config/kinds/file_kind.h>

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

/// The page docs/configuration_keys.md: a chapter for each table, with a row for each key.
std::string key_tables_markdown();

/// Top-level keys of this kind of file, for guess_kind.
std::vector<std::string> top_level_keys(FileKind kind);

}  // namespace tessera::config
