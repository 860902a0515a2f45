#pragma once
/// \file
/// Reads the texts of files for the text commands.

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

/// Flags of commands that read texts, for config::Flags, and their parsed values.
inline constexpr const char* column_flags[] = {"text_column_name", "dataset_text_field", "column_map"};
corpus::ColumnOptions column_options(const config::Flags& flags);

/// The files of all paths, globs and folders. Throws InputError, for example for token files, which contain no text.
std::vector<corpus::SourceFile> text_sources(const std::vector<std::string>& paths);
std::uint64_t bytes_of(const std::vector<corpus::SourceFile>& files);

struct DocumentVisitor {
  /// Receives a document in parts of about `part_bytes`; `ends` marks its last part, which may be empty.
  std::function<void(std::string_view part, bool ends)> take;
  std::function<void(std::uint64_t bytes_done)> progress;  ///< bytes of all files so far; may be empty
};

/// Visits all documents, in order: a .txt file is one document, and so is each record of other files, from which the
/// text column is read. Documents are cut only after a line feed with non-blank ASCII on both sides. Warns once per
/// file about invalid UTF-8, which tokenizers read as U+FFFD. Throws InputError with the location.
void for_each_document(const std::vector<corpus::SourceFile>& files, const corpus::ColumnOptions& columns,
                       std::size_t part_bytes, const DocumentVisitor& visitor);

}  // namespace tessera::tool
