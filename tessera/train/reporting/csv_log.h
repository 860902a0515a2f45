#pragma once
/// \file
/// OUT/metrics.csv (--report_to csv): one line per log and per evaluation, for spreadsheets and pandas.

#include <tessera/base/append_file.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::train {

/// Written as in RFC 4180, with a header. Columns have transformers' names (eval_loss, train_runtime); missing values
/// are empty. Reals have 9 significant digits.
class CsvLog {
 public:
  /// Starts a file with its header. With resumed_step >= 0 an existing file keeps its columns, which may be those of an
  /// older version, and its lines up to that step; an incomplete last line (after a power failure) is dropped. Throws
  /// InputError, leaving the file unchanged, if an existing file is not such a log; Error if the file cannot be read or
  /// written.
  CsvLog(const std::string& path, std::int64_t resumed_step);

  /// Appends one line. Values without a column are skipped: values specific to one kind of training are only in
  /// metrics.jsonl.
  void append(double wall_time, std::int64_t step, std::span<const std::pair<std::string, double>> values);
  static std::string_view header();

 private:
  std::vector<std::string> columns_;  ///< columns of the file
  AppendFile file_;
};

}  // namespace tessera::train
