#include <tessera/train/reporting/journal.h>

#include <time.h>
#include <cmath>
#include <exception>
#include <filesystem>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/train/reporting/log_format.h>
#include <tessera/train/reporting/summary.h>

namespace tessera::train {
namespace {

double unix_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Returns Markdown that shows a text verbatim.
std::string as_code(const std::string& text) {
  std::string out;
  for (const std::string& line : split(text, '\n')) out += "    " + line + "\n";
  return out;
}

/// Turns a name that may be a path (transformers' default is output_dir) into a single folder name.
std::string file_name_of(std::string name) {
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  name = name.substr(name.find_last_of('/') + 1);
  return name.empty() || name == "." || name == ".." ? "run" : name;
}

}  // namespace

Journal::Journal(const Setup& setup, const comm::World& world)
    : config_(setup.config.output),
      resumed_step_(setup.plan.resumed_step),
      resumed_(setup.resume.has_value()),
      model_config_(setup.model->hf_config()),
      progress_(world.rank() != 0, setup.config.output.disable_tqdm) {
  exposition_.job = config_.run_name.empty() ? file_name_of(config_.output_dir) : config_.run_name;
  if (config_.metrics_port > 0 && world.rank() == 0) {
    server_.emplace(static_cast<int>(config_.metrics_port));
    server_->show(prometheus_text(exposition_));
  }
  if (setup.resume)
    for (const Value& entry : setup.resume->log_history) remember(entry);
}

void Journal::open(OutputFolder& output, const Value& configuration) {
  output_ = &output;
  if (!config_.metrics_file.empty()) {
    try {
      write_file_atomically(config_.metrics_file, prometheus_text(exposition_));
    } catch (const Error& error) {
      throw InputError(concat("--metrics_file: ", error.what()));
    }
  }
  if (reports_to(config_, "tensorboard")) open_events(output, configuration);
  if (reports_to(config_, "csv")) open_csv(output);
}

void Journal::open_events(OutputFolder& output, const Value& configuration) {
  const double now = unix_seconds();
  try {
    std::string folder = config_.logging_dir.empty() ? output.path("runs") : config_.logging_dir;
    if (!config_.run_name.empty())
      folder = path_join(folder, file_name_of(config_.run_name));  // TensorBoard displays the folder's name
    events_.emplace(folder, now, resumed_step_ + 1);
    if (config_.logging_dir.empty()) {
      const std::filesystem::path inside = events_->path(), out = output.path("");
      output.files().add({inside.lexically_normal().lexically_relative(out.lexically_normal()).string()});
    }
  } catch (const Error& error) {
    throw InputError(concat("--logging_dir: ", error.what()));
  }
  events_->text(now, resumed_step_, "args/text_summary", as_code(dump_json(configuration)));
  events_->text(now, resumed_step_, "model_config/text_summary", as_code(dump_json(model_config_)));
}

void Journal::open_csv(OutputFolder& output) {
  try {
    output.files().add({"metrics.csv"});
    csv_.emplace(output.path("metrics.csv"), resumed_ ? resumed_step_ : -1);
  } catch (const Error& error) {
    throw InputError(concat("--report_to ", config_.report_to, ": ", error.what()));
  }
}

void Journal::logged(const StepMetrics& m, std::int64_t total_steps, double seconds_left) {
  progress_.set_loss(m.loss);
  if (config_.log_format != LogFormat::plain)
    progress_.record(hf_line(m, config_.log_format == LogFormat::hf5));
  else if (progress_.mode() == Progress::Mode::plain)
    progress_.note(plain_line(m, total_steps, seconds_left));
  if (const std::string skipped = describe_skipped(m); !skipped.empty()) note(skipped);
  remember(hf_log_entry(m));
  if (output_ == nullptr) return;
  output_->append(to_json(m));
  exposition_.step = m;
  exposition_.planned = total_steps;
  exposition_.seconds_left = seconds_left;
  expose();
  std::vector<Number> numbers;
  const auto add = [&](const std::string& name, double value) { numbers.push_back(number("train", name, value)); };
  add("loss", m.loss);
  add("grad_norm", m.grad_norm);
  add("learning_rate", m.learning_rate);
  add("epoch", m.epoch);
  add("tokens_per_second", m.tokens_per_second);
  add("step_time_ms", m.step_time_ms);
  add("peak_memory_gib", static_cast<double>(m.peak_memory_bytes()) / (1 << 30));
  add("cpu_utilization", m.cpu_utilization);
  if (m.flops_utilization > 0) add("mfu", m.flops_utilization);
  for (const auto& [name, value] : named(m.preference)) add(name, value);
  for (const auto& [name, value] : named_predictions(m.predictions)) add(name, value);
  for (std::size_t i = 0; i < phase_count; ++i)
    numbers.push_back(number("time", std::string(phase_names[i]) + "_ms", 1000 * m.phases[i]));
  track(m.step, numbers);
}

void Journal::evaluated(const EvalMetrics& m) {
  remember(hf_log_entry(m));
  if (config_.log_format != LogFormat::plain)
    progress_.record(hf_line(m, config_.log_format == LogFormat::hf5));
  else
    progress_.note(describe(m));
  if (output_ == nullptr) return;
  output_->append(to_json(m));
  exposition_.evaluation = m;
  expose();
  std::vector<Number> numbers = {number("eval", "loss", m.loss), number("eval", "runtime", m.seconds)};
  if (m.has_perplexity()) numbers.push_back(number("eval", "perplexity", m.perplexity()));
  for (const auto& [name, value] : named(m.classes)) numbers.push_back(number("eval", name, value));
  for (const auto& [name, value] : named(m.preference)) numbers.push_back(number("eval", name, value));
  track(m.step, numbers);
}

void Journal::sampled(std::int64_t step, const std::string& prompt, const std::string& text) {
  if (events_ && !text.empty())
    events_->text(unix_seconds(), step, "sample/text_summary", as_code(concat(prompt, " |", text)));
}

void Journal::ended(const RunTotals& t) {
  remember(hf_log_entry(t));
  progress_.close();
  if (config_.log_format != LogFormat::plain) progress_.record(hf_line(t, config_.log_format == LogFormat::hf5));
  if (output_ == nullptr) return;
  output_->append(to_json(t));
  exposition_.running = false;
  expose();
  const Value entry = hf_log_entry(t);
  std::vector<Number> numbers;
  for (const char* name :
       {"train_loss", "train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos"})
    if (entry.at(name).is_number()) numbers.push_back(number("train", name, entry.at(name).as_real()));
  track(t.steps, numbers);
}

void Journal::expose() {
  exposition_.wall_time = unix_seconds();
  if (server_) server_->show(prometheus_text(exposition_));
  if (config_.metrics_file.empty()) return;
  expositions_.submit([this, text = prometheus_text(exposition_)] {
    try {
      write_file_atomically(config_.metrics_file, text);
    } catch (const std::exception& error) {  // a full disk on the metrics collector's side must not end the training
      if (!std::exchange(exposition_failed_, true)) log::warning("--metrics_file: ", error.what());
    }
  });
}

void Journal::close() {
  expositions_.finish();
  progress_.close();
}

void Journal::remember(Value entry) {
  const LogPoint point = log_point(entry);
  log_history_.add(point, std::move(entry));
}

Journal::Number Journal::number(const std::string& group, const std::string& name, double value) {
  return {concat(group, "/", name), group == "eval" ? "eval_" + name : name, value};
}

void Journal::track(std::int64_t step, const std::vector<Number>& numbers) {
  const double now = unix_seconds();
  std::vector<format::Scalar> by_tag;
  std::vector<std::pair<std::string, double>> by_name;
  for (const Number& n : numbers) {
    by_tag.emplace_back(n.tag, n.value);
    by_name.emplace_back(n.name, n.value);
  }
  if (events_) events_->scalars(now, step, by_tag);
  if (csv_) csv_->append(now, step, by_name);
}

}  // namespace tessera::train
