#pragma once
/// \file
/// corpus/readers/: one reader per kind of file. For their contract see records.h.

#include <tessera/corpus/bytes/window.h>
#include <tessera/corpus/records.h>

#include <memory>
#include <vector>

namespace tessera::corpus {

std::unique_ptr<RecordReader> read_lines(const SourceFile& file, const Piece& piece);  ///< text and jsonl
std::vector<Piece> pieces_of_lines(const SourceFile& file, std::uint64_t bytes_each);

std::unique_ptr<RecordReader> read_json_values(Window bytes);          ///< json_values.h
std::unique_ptr<RecordReader> read_csv(Window bytes, char separator);  ///< csv.cpp

}  // namespace tessera::corpus
