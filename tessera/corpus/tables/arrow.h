#pragma once
/// \file
/// Internal to the plug-in (table_plugin.h). Only *_arrow.cpp files include this header.

#include <tessera/base/error.h>
#include <tessera/base/value.h>
#include <tessera/corpus/records.h>

#include <arrow/array.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tessera::corpus {

/// Converts array[row] to a value. A list becomes an array, a struct an object, a map an array of [key, value]; binary
/// becomes a string of its bytes; dates, times and timestamps become ISO 8601 text ("2024-05-06T07:08:09.000123", with
/// "+00:00" if a time zone is given), decimals and intervals text, durations integers in their unit; an unsigned number
/// beyond int64 becomes real. `where` becomes the position of the value and everything in it.
Value value_of(const arrow::Array& array, std::int64_t row, const SourcePos& where);

/// A pool that limits Arrow's allocations, so that sizes claimed by a damaged file cannot exhaust the memory.
arrow::MemoryPool* limited_pool();

/// Returns the value of a Result, or throws InputError "PLACE: Arrow's message".
void require(const arrow::Status& status, const std::string& place);
template <class T>
T require(arrow::Result<T> result, const std::string& place) {
  require(result.status(), place);
  return std::move(result).ValueUnsafe();
}

/// Calls `act`; exceptions of Arrow or the standard library become InputError "PLACE: ...".
template <class Act>
auto guarded(const std::string& place, Act act) {
  try {
    return act();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw InputError(concat(place, ": ", error.what()));
  }
}

/// The batches of a file, one after another. After an error the next call continues after the damage, if possible.
class Batches {
 public:
  struct Batch {
    std::shared_ptr<arrow::RecordBatch> rows;
    std::string place;           ///< "a.parquet: row group 3"
    std::int64_t first_row = 0;  ///< row number within that place
  };
  virtual ~Batches() = default;
  virtual Batch next() = 0;  ///< rows == nullptr: the end
  virtual std::uint64_t bytes_read() const = 0;
};

std::vector<Piece> pieces_of_parquet(const SourceFile& file, std::uint64_t bytes_each);
std::unique_ptr<Batches> parquet_batches(const SourceFile& file, const Piece& piece,
                                         const std::vector<std::string>& columns);
std::vector<Piece> pieces_of_ipc(const SourceFile& file, std::uint64_t bytes_each);
std::unique_ptr<Batches> ipc_batches(const SourceFile& file, const Piece& piece,
                                     const std::vector<std::string>& columns);

}  // namespace tessera::corpus
