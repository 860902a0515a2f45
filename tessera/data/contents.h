#pragma once
/// \file
/// A short description of a dataset's contents that can be stored and compared.

#include <string>

namespace tessera::data {

class Dataset;

/// "1024 rows, contents 5f3a9c0b12de4477": the number of rows and a hash of them. For more than 2^20 tokens the hash
/// covers only 256 evenly spaced rows, including the first and the last, so that startup stays fast. The text changes
/// if rows are appended, removed or shifted; a change within one row of a large dataset may go unnoticed. Empty for a
/// stream, whose state identifies its files (stream/row_stream.h).
std::string describe_contents(const Dataset& dataset);

}  // namespace tessera::data
