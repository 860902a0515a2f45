#pragma once
/// \file
/// corpus/tables/: Parquet and Arrow through Apache Arrow's own library. It is 60 MB, so it is linked only into a
/// plug-in, libtessera_arrow.so (the files *_arrow.cpp, cmake/Arrow.cmake), which is loaded when the first such file is
/// opened. Nothing else includes Arrow's headers.

#include <tessera/corpus/records.h>

#include <memory>
#include <string>
#include <vector>

namespace tessera::corpus {

/// The plug-in's functions, as declared in records.h.
struct TablePlugin {
  std::vector<Piece> (*pieces_of)(const SourceFile& file, std::uint64_t bytes_each);
  std::unique_ptr<RecordReader> (*read_records)(const SourceFile& file, const Piece& piece,
                                                const std::vector<std::string>& columns);
};

/// Loads the plug-in, which is installed next to libtessera_core.so; it is never unloaded. Throws Error with the remedy
/// if it is missing.
const TablePlugin& table_plugin();
bool has_table_plugin();  ///< whether the plug-in's file exists

/// The only function that the plug-in exports.
extern "C" const TablePlugin* tessera_table_plugin();
inline constexpr const char* table_plugin_entry = "tessera_table_plugin";

}  // namespace tessera::corpus
