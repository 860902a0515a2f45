#pragma once
/// \file
/// Positions in a part of a file that is read without the text before it, so the number of its first line is unknown.
/// Lines are counted only when a position is printed, that is, in error messages; reading costs nothing extra.

#include <cstdint>
#include <string>

namespace tessera {

/// The file's name (as SourcePos holds it) and the offset at which the part begins. A SourcePos with line -n refers to
/// the part's n-th line, and its `file` must be a FilePart:
///
///   const auto part = std::make_shared<const FilePart>("a.jsonl", 1 << 20);
///   SourcePos{part, -1, 3}.str()   // "a.jsonl:13094:3", or "a.jsonl: line 1 after byte 1048576" if the file is gone
class FilePart : public std::string {
 public:
  FilePart(std::string path, std::uint64_t begin) : std::string(std::move(path)), begin_(begin) {}
  std::string place(int line, int column) const;  ///< `line` counts from 1 within the part

 private:
  std::uint64_t begin_;  ///< offset of the start of a line
};

}  // namespace tessera
