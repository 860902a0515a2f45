#pragma once
/// \file
/// Places in a part of a file that is read without what stands before it, so that the number of its first line is not
/// known. It is counted when a place is spelt out, which only complaints do; reading costs nothing.

#include <cstdint>
#include <string>

namespace tessera {

/// The name of the file (as a SourcePos holds it), and where the part begins. A SourcePos with line -n stands in the
/// part's n-th line, and its `file` must be the name of a FilePart:
///
///   const auto part = std::make_shared<const FilePart>("a.jsonl", 1 << 20);
///   SourcePos{part, -1, 3}.str()   // "a.jsonl:13094:3", or "a.jsonl: line 1 behind byte 1048576" once it is gone
class FilePart : public std::string {
 public:
  FilePart(std::string path, std::uint64_t begin) : std::string(std::move(path)), begin_(begin) {}
  std::string place(int line, int column) const;  ///< line counts from 1 within the part

 private:
  std::uint64_t begin_;  ///< a line begins at this byte
};

}  // namespace tessera
