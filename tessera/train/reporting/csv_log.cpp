#include <tessera/train/reporting/csv_log.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/train/reporting/kept_lines.h>

namespace tessera::train {
namespace {

constexpr std::string_view kHeader =
    "step,wall_time,epoch,loss,grad_norm,learning_rate,tokens_per_second,step_time_ms,peak_memory_gib,cpu_utilization,"
    "mfu,data_ms,forward_ms,backward_ms,communication_ms,optimizer_ms,other_ms,eval_loss,eval_perplexity,"
    "eval_accuracy,eval_f1,eval_runtime,train_loss,train_runtime,train_samples_per_second,train_steps_per_second,total_"
    "flos";
constexpr int csv_digits = 9;

/// The header of an existing log, whose columns are kept; otherwise our header.
std::string header_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  std::getline(file, line);
  // The file is empty, or its header was truncated by a power failure.
  if (file.eof() && kHeader.starts_with(line)) return std::string(kHeader);
  if (file.eof() || !line.starts_with("step,"))
    throw InputError(concat(path, " begins with '", line.substr(0, 60),
                            "': it is not the log of a run, so this run cannot append to it; move it away"));
  if (line.ends_with('\r')) line.pop_back();  // saved by a spreadsheet
  return line;
}

}  // namespace

std::string_view CsvLog::header() { return kHeader; }

CsvLog::CsvLog(const std::string& path, std::int64_t resumed_step) {
  const std::string header = resumed_step >= 0 ? header_of(path) : std::string(kHeader);
  columns_ = split(header, ',');
  if (resumed_step >= 0) {
    const auto commas = std::count(header.begin(), header.end(), ',');
    keep_lines(path, concat(header, "\n"), [&](std::string_view line, bool ended) {
      const auto step = parse_int(line.substr(0, line.find(',')));  // the header has no such column
      return ended && step && *step <= resumed_step && std::count(line.begin(), line.end(), ',') == commas;
    });
  } else {
    write_file_atomically(path, concat(header, "\n"));
  }
  file_ = AppendFile(path);
}

void CsvLog::append(double wall_time, std::int64_t step, std::span<const std::pair<std::string, double>> values) {
  std::vector<std::string> cells(columns_.size());
  const auto set = [&](std::string_view name, std::string text) {
    const auto column = std::find(columns_.begin(), columns_.end(), name);
    if (column != columns_.end()) cells[static_cast<std::size_t>(column - columns_.begin())] = std::move(text);
  };
  set("step", concat(step));
  set("wall_time", format_real(wall_time, 13));  // milliseconds
  for (const auto& [name, value] : values) set(name, format_real(value, csv_digits));
  file_.append(join(cells, ",") + "\n");
}

}  // namespace tessera::train
