#pragma once
/// \file
/// What a dataset holds, in a few words that can be kept and compared.

#include <string>

namespace tessera::data {

class Dataset;

/// "1024 rows, contents 5f3a9c0b12de4477": the number of rows and a hash of them, of more than 2^20 tokens that of 256
/// rows at equal distances, the first and the last among them, so that it takes no time at a start. Rows that were
/// appended, cut off or shifted by a change before them give another text; a change within one row of a large dataset
/// may not. Empty for a stream, whose state knows its files (stream/row_stream.h).
std::string describe_contents(const Dataset& dataset);

}  // namespace tessera::data
