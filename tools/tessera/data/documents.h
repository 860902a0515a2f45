#pragma once
/// \file
/// The texts of files, for the text commands.

#include <tessera/config/resolve/command_flags.h>
#include <tessera/corpus/columns.h>
#include <tessera/corpus/records.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tool {

/// Flags of commands that read texts, for config::Flags, and what they say.
inline constexpr const char* column_flags[] = {"text_column_name", "dataset_text_field", "column_map"};
corpus::ColumnOptions column_options(const config::Flags& flags);

/// The files of all paths, globs and folders. Throws InputError, for tokens too, which have no text.
std::vector<corpus::SourceFile> text_sources(const std::vector<std::string>& paths);
std::uint64_t bytes_of(const std::vector<corpus::SourceFile>& files);

struct DocumentVisitor {
  /// A document comes in parts of about `part_bytes`; with `ends` comes its last, which may be empty.
  std::function<void(std::string_view part, bool ends)> take;
  std::function<void(std::uint64_t bytes_done)> progress;  ///< bytes of all files so far; may be empty
};

/// Visits all documents, in order: a .txt is one, and so is each record of another kind, of whose columns the text is
/// read. Documents are cut only behind a line feed that has non-blank ASCII on both sides. Warns once per file of what
/// is not UTF-8: tokenizers take U+FFFD for it. Throws InputError with the place.
void for_each_document(const std::vector<corpus::SourceFile>& files, const corpus::ColumnOptions& columns,
                       std::size_t part_bytes, const DocumentVisitor& visitor);

}  // namespace tessera::tool
