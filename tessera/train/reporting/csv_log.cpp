#include <tessera/train/reporting/csv_log.h>

#include <algorithm>
#include <vector>

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

}  // namespace

std::string_view CsvLog::header() { return kHeader; }

CsvLog::CsvLog(const std::string& path, std::int64_t resumed_step) {
  if (resumed_step >= 0) {
    const auto commas = std::count(kHeader.begin(), kHeader.end(), ',');
    std::int64_t number = 0;
    bool same = true;
    keep_lines(path, concat(kHeader, "\n"), [&](std::string_view line, bool ended) {
      if (number++ == 0) same = line == kHeader;
      const auto step = parse_int(line.substr(0, line.find(',')));
      return same && ended && step && *step <= resumed_step && std::count(line.begin(), line.end(), ',') == commas;
    });
  } else {
    write_file_atomically(path, concat(kHeader, "\n"));
  }
  file_ = AppendFile(path);
}

void CsvLog::append(double wall_time, std::int64_t step, std::span<const std::pair<std::string, double>> values) {
  static const std::vector<std::string> columns = split(kHeader, ',');
  std::vector<std::string> cells(columns.size());
  cells[0] = concat(step);
  cells[1] = format_real(wall_time, 13);  // milliseconds
  for (const auto& [name, value] : values) {
    const auto column = std::find(columns.begin(), columns.end(), name);
    if (column == columns.end()) continue;  // figures that some trainings have are in metrics.jsonl alone
    cells[static_cast<std::size_t>(column - columns.begin())] = format_real(value, csv_digits);
  }
  file_.append(join(cells, ",") + "\n");
}

}  // namespace tessera::train
