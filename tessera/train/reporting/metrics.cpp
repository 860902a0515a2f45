#include <tessera/train/reporting/metrics.h>

#include <fcntl.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/train/reporting/kept_lines.h>

namespace tessera::train {
namespace {

constexpr int real_digits = 9;
constexpr std::int64_t shown_parts = 256;  // a curve is about 1,000 pixels wide, and each of these parts keeps several
                                           // lines

Value integers(const std::vector<std::int64_t>& numbers) {
  Value array = Value::make_array();
  for (const std::int64_t n : numbers) array.push_back(Value::of(n));
  return array;
}

Value reals(const std::vector<double>& numbers) {
  Value array = Value::make_array();
  for (const double x : numbers) array.push_back(Value::of(x));
  return array;
}

/// A JSON number cannot be nan or infinite, and null would not show which of these it was.
Value real_or_text(double value) { return std::isfinite(value) ? Value::of(value) : Value::of(format_real(value)); }

/// {"forward": 12.5, ...}: milliseconds.
Value milliseconds(const PhaseSeconds& seconds) {
  Value object = Value::make_object();
  for (std::size_t i = 0; i < phase_count; ++i) object.set(std::string(phase_names[i]), Value::of(1000 * seconds[i]));
  return object;
}

double per_second(std::int64_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }

void add_rewards(Value& line, const PreferenceMetrics& m, const char* prefix = "") {
  for (const auto& [name, number] : named(m)) line.set(concat(prefix, name), real_or_text(number));
}

/// The number after `key` in /proc/self/status, in bytes.
std::int64_t process_status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != key) continue;
    std::int64_t kib = 0;
    if (status >> kib) return kib * 1024;
    break;
  }
  throw Error(concat("/proc/self/status has no ", key, " line: is /proc mounted?"));
}

}  // namespace

Value to_json(const MemoryByKind& memory) {
  Value object = Value::make_object();
  for (std::size_t i = 0; i < memory_kind_count; ++i)
    object.set(std::string(memory_kind_names[i]), Value::of(memory[i]));
  return object;
}

std::int64_t StepMetrics::peak_memory_bytes() const {
  return memory_by_rank.empty() ? 0 : *std::max_element(memory_by_rank.begin(), memory_by_rank.end());
}

std::int64_t StepMetrics::peak_allocated_bytes() const {
  std::int64_t most = 0;
  for (const MemoryByKind& kinds : memory_kinds) most = std::max(most, allocated_bytes(kinds));
  return most;
}

std::vector<double> RouterMetrics::mean_load() const {
  std::vector<double> mean(static_cast<std::size_t>(experts), 0);
  for (const auto& [block, shares] : load)
    for (std::size_t e = 0; e < mean.size(); ++e) mean[e] += shares[e] / static_cast<double>(load.size());
  return mean;
}

double RouterMetrics::imbalance() const {
  double largest = 0;
  for (const auto& [block, shares] : load) largest = std::max(largest, *std::max_element(shares.begin(), shares.end()));
  return largest * static_cast<double>(experts);
}

std::vector<std::pair<std::string, double>> named_predictions(const std::vector<double>& losses) {
  std::vector<std::pair<std::string, double>> all;
  for (std::size_t i = 0; i < losses.size(); ++i) all.emplace_back(concat("mtp_", i + 1, "_loss"), losses[i]);
  return all;
}

std::vector<std::pair<std::string, double>> named(const PreferenceMetrics& m) {
  if (!m.measured) return {};
  return {{"rewards/chosen", m.chosen},       {"rewards/rejected", m.rejected},
          {"rewards/accuracies", m.accuracy}, {"rewards/margins", m.chosen - m.rejected},
          {"logps/chosen", m.log_chosen},     {"logps/rejected", m.log_rejected}};
}

ClassMetrics class_metrics(const std::vector<double>& counts) {
  const std::size_t classes = counts.size() / 3;
  double right = 0, rows = 0, f1 = 0, occurring = 0;
  const auto f1_of = [&](std::size_t c) {
    const double both = counts[classes + c] + counts[2 * classes + c];
    return both > 0 ? 2 * counts[c] / both : 0;
  };
  for (std::size_t c = 0; c < classes; ++c) {
    right += counts[c];
    rows += counts[2 * classes + c];
    f1 += f1_of(c);
    occurring += counts[classes + c] + counts[2 * classes + c] > 0 ? 1 : 0;
  }
  if (rows == 0) return {};
  return {true, right / rows, classes == 2 ? f1_of(1) : f1 / occurring};
}

std::vector<std::pair<std::string, double>> named(const ClassMetrics& m) {
  if (!m.measured) return {};
  return {{"accuracy", m.accuracy}, {"f1", m.f1}};
}

double EvalMetrics::perplexity() const { return std::exp(loss); }

Value to_json(const StepMetrics& m) {
  Value line =
      Value::make_object({{"step", Value::of(m.step)},
                          {"loss", real_or_text(m.loss)},
                          {"grad_norm", real_or_text(m.grad_norm)},
                          {"learning_rate", Value::of(m.learning_rate)},
                          {"epoch", Value::of(m.epoch)},
                          {"tokens_per_second", Value::of(m.tokens_per_second)},
                          {"step_time_ms", Value::of(m.step_time_ms)},
                          {"cpu_seconds", Value::of(m.cpu_seconds)},
                          {"cpu_utilization", Value::of(m.cpu_utilization)},
                          {"phase_ms", milliseconds(m.phases)},
                          {"peak_memory_bytes", Value::of(m.peak_memory_bytes())},
                          {"peak_allocated_bytes", Value::of(m.peak_allocated_bytes())},
                          {"peak_memory_bytes_by_rank", integers(m.memory_by_rank)},
                          // whole milliseconds, because Unix seconds need more digits than the other numbers have
                          {"wall_time_ms", Value::of(static_cast<std::int64_t>(m.wall_time * 1e3))}});
  if (m.flops_utilization > 0) line.set("mfu", Value::of(m.flops_utilization));
  if (m.num_input_tokens_seen >= 0) line.set("num_input_tokens_seen", Value::of(m.num_input_tokens_seen));
  if (m.skipped_steps >= 0) line.set("skipped_steps", Value::of(m.skipped_steps));
  if (m.loss_scale > 0) line.set("loss_scale", Value::of(m.loss_scale));
  if (m.rows > 0) line.set("rows", Value::of(m.rows));
  if (!m.shares.empty()) {
    line.set("batch_shares", integers(m.shares));
    line.set("idle_by_rank", reals(m.idle_by_rank));
  }
  if (m.noise.measured) {
    line.set("gradient_squared_norm", real_or_text(m.noise.squared_norm));
    line.set("gradient_noise_trace", real_or_text(m.noise.trace));
    if (m.noise.scale) line.set("gradient_noise_scale", Value::of(*m.noise.scale));
  }
  add_rewards(line, m.preference);
  for (const auto& [name, number] : named_predictions(m.predictions)) line.set(name, real_or_text(number));
  if (m.routers.experts > 0) {
    line.set("router_aux_loss", real_or_text(m.routers.auxiliary_loss));
    line.set("router_z_loss", real_or_text(m.routers.z_loss));
    line.set("expert_load", reals(m.routers.mean_load()));
    line.set("expert_imbalance", Value::of(m.routers.imbalance()));
    if (m.routers.limited) line.set("expert_slots_dropped", Value::of(m.routers.dropped));
  }
  return line;
}

Value to_json(const EvalMetrics& m) {
  Value line = Value::make_object({{"event", Value::of("eval")},
                                   {"step", Value::of(m.step)},
                                   {"epoch", Value::of(m.epoch)},
                                   {"eval_loss", real_or_text(m.loss)}});
  if (m.has_perplexity()) line.set("perplexity", real_or_text(m.perplexity()));
  for (const auto& [name, number] : named(m.classes)) line.set(concat("eval_", name), Value::of(number));
  if (!m.classes.measured) line.set("eval_tokens", Value::of(m.tokens));
  line.set("eval_seconds", Value::of(m.seconds));
  add_rewards(line, m.preference, "eval_");
  return line;
}

Value to_json(const RunTotals& t) {
  Value line = Value::make_object({{"event", Value::of("end")},
                                   {"reason", Value::of(t.reason)},
                                   {"steps", Value::of(t.steps)},
                                   {"epoch", Value::of(t.epoch)},
                                   {"tokens", Value::of(t.tokens)},
                                   {"seconds", Value::of(t.seconds)},
                                   {"startup_seconds", Value::of(t.startup_seconds)},
                                   {"skipped_steps", Value::of(t.skipped_steps)},
                                   {"loss", real_or_text(t.loss)},
                                   {"train_loss", real_or_text(t.train_loss)},
                                   {"tokens_per_second", Value::of(t.tokens_per_second)},
                                   {"model_flops_per_second", Value::of(t.flops_per_second)},
                                   {"peak_flops_per_second", Value::of(t.peak_flops_per_second)},
                                   {"total_flops", Value::of(t.total_flops)},
                                   {"peak_memory_bytes", Value::of(t.peak_memory_bytes)},
                                   {"peak_allocated_bytes", Value::of(t.peak_allocated_bytes)},
                                   {"advice", Value::of(t.advice)},
                                   {"unigram_entropy", Value::of(t.unigram_entropy)},
                                   {"communication", t.communication}});
  if (t.has_eval) {
    line.set("eval_loss", real_or_text(t.eval_loss));
    if (t.has_perplexity) line.set("perplexity", real_or_text(std::exp(t.eval_loss)));
  }
  return line;
}

Value hf_log_entry(const StepMetrics& m) {
  Value entry = Value::make_object({{"epoch", Value::of(m.epoch)},
                                    {"grad_norm", real_or_text(m.grad_norm)},
                                    {"learning_rate", Value::of(m.learning_rate)},
                                    {"loss", real_or_text(m.loss)}});
  if (m.num_input_tokens_seen >= 0) entry.set("num_input_tokens_seen", Value::of(m.num_input_tokens_seen));
  add_rewards(entry, m.preference);
  for (const auto& [name, number] : named_predictions(m.predictions)) entry.set(name, real_or_text(number));
  entry.set("step", Value::of(m.step));
  return entry;
}

Value hf_log_entry(const EvalMetrics& m) {
  Value entry = Value::make_object({{"epoch", Value::of(m.epoch)},
                                    {"eval_loss", real_or_text(m.loss)},
                                    {"eval_runtime", Value::of(m.seconds)},
                                    {"eval_samples_per_second", Value::of(per_second(m.rows, m.seconds))},
                                    {"eval_steps_per_second", Value::of(per_second(m.batches, m.seconds))}});
  for (const auto& [name, number] : named(m.classes)) entry.set(concat("eval_", name), Value::of(number));
  add_rewards(entry, m.preference, "eval_");
  entry.set("step", Value::of(m.step));
  return entry;
}

Value hf_log_entry(const RunTotals& t) {
  return Value::make_object({{"epoch", Value::of(t.epoch)},
                             {"step", Value::of(t.steps)},
                             {"total_flos", Value::of(t.total_flops)},
                             {"train_loss", real_or_text(t.train_loss)},
                             {"train_runtime", Value::of(t.seconds)},
                             {"train_samples_per_second", Value::of(per_second(t.rows, t.seconds))},
                             {"train_steps_per_second", Value::of(per_second(t.steps_here, t.seconds))}});
}

std::int64_t peak_resident_bytes() { return process_status_bytes("VmHWM:"); }
std::int64_t resident_bytes() { return process_status_bytes("VmRSS:"); }

double process_cpu_seconds() {
  timespec used = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

double seconds_since_process_start() {
  const auto seconds = seconds_since_start(::getpid());
  if (!seconds) throw Error("/proc/self/stat is not readable: is /proc mounted?");
  return *seconds;
}

MetricsFile::MetricsFile(const std::string& path, std::int64_t resumed_step) : sample_(shown_parts) {
  if (resumed_step >= 0) {
    std::size_t unreadable = 0;
    // Lines after the checkpoint will be measured again, and the previous end line is not the last one of the run.
    keep_lines(path, "", [&](std::string_view line, bool) {
      if (trim(line).empty()) return false;
      const std::optional<LogPoint> point = read_log_point(line);
      if (!point) ++unreadable;
      if (!point || !point->step || *point->step > resumed_step) return false;
      sample_.add(*point, std::make_shared<const std::string>(line));
      return true;
    });
    if (unreadable > 0)
      log::warning(path, ": ", unreadable,
                   unreadable == 1 ? " line that is not JSON is" : " lines that are not JSON are",
                   " dropped (a power failure can leave such lines)");
  } else {
    write_file_atomically(path, "");
  }
  file_ = AppendFile(path);
}

void MetricsFile::append(const Value& line) {
  auto text = std::make_shared<const std::string>(dump_json(line, -1, real_digits));
  file_.append(*text + "\n");
  sample_.add(log_point(line), std::move(text));
}

}  // namespace tessera::train
