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

/// RFC 4180 with a header. Columns have transformers' names (eval_loss, train_runtime); what a line does not have is
/// empty. Reals carry 9 significant digits.
class CsvLog {
 public:
  /// Starts a file with its header. With resumed_step >= 0 an existing one keeps its columns, which may be those of an
  /// older version, and its lines up to that step; half a line, which a machine that lost power leaves, is dropped.
  /// Throws InputError for an existing file that is not such a log, which is left as it is, and Error.
  CsvLog(const std::string& path, std::int64_t resumed_step);

  /// One line, without the figures that have no column: those of one kind of training are in metrics.jsonl alone.
  void append(double wall_time, std::int64_t step, std::span<const std::pair<std::string, double>> values);
  static std::string_view header();

 private:
  std::vector<std::string> columns_;  ///< the file's
  AppendFile file_;
};

}  // namespace tessera::train
