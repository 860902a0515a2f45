#include <tessera/train/reporting/journal.h>

#include <time.h>
#include <cmath>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/train/reporting/log_format.h>
#include <tessera/train/reporting/summary.h>

namespace tessera::train {
namespace {

double unix_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Markdown that shows a text as it is.
std::string as_code(const std::string& text) {
  std::string out;
  for (const std::string& line : split(text, '\n')) out += "    " + line + "\n";
  return out;
}

/// A name that may be a path (transformers' default is output_dir) as one name of a folder.
std::string file_name_of(std::string name) {
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  name = name.substr(name.find_last_of('/') + 1);
  return name.empty() || name == "." || name == ".." ? "run" : name;
}

}  // namespace

Journal::Journal(const Setup& setup, const comm::World& world)
    : config_(setup.config.output),
      resumed_step_(setup.plan.resumed_step),
      model_config_(setup.model->hf_config()),
      progress_(world.rank() != 0, setup.config.output.disable_tqdm) {
  exposition_.job = config_.run_name.empty() ? file_name_of(config_.output_dir) : config_.run_name;
  if (config_.metrics_port > 0 && world.rank() == 0) {
    server_.emplace(static_cast<int>(config_.metrics_port));
    server_->show(prometheus_text(exposition_));
  }
  if (setup.resume) log_history_ = setup.resume->log_history;
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
  if (config_.report_to != ReportTo::tensorboard) return;
  const double now = unix_seconds();
  try {
    std::string folder = config_.logging_dir.empty() ? output.path("runs") : config_.logging_dir;
    if (!config_.run_name.empty())
      folder = path_join(folder, file_name_of(config_.run_name));  // TensorBoard shows the folder's name
    events_.emplace(folder, now, resumed_step_ + 1);
  } catch (const Error& error) {
    throw InputError(concat("--logging_dir: ", error.what()));
  }
  events_->text(now, resumed_step_, "args/text_summary", as_code(dump_json(configuration)));
  events_->text(now, resumed_step_, "model_config/text_summary", as_code(dump_json(model_config_)));
}

void Journal::logged(const StepMetrics& m, std::int64_t total_steps, double seconds_left) {
  progress_.set_loss(m.loss);
  if (config_.log_format != LogFormat::plain)
    progress_.record(hf_line(m, config_.log_format == LogFormat::hf5));
  else if (progress_.mode() == Progress::Mode::plain)
    progress_.note(plain_line(m, total_steps, seconds_left));
  log_history_.push_back(hf_log_entry(m));
  if (output_ == nullptr) return;
  output_->metrics().append(to_json(m));
  exposition_.step = m;
  exposition_.planned = total_steps;
  exposition_.seconds_left = seconds_left;
  expose();
  write_events(m.step, "train/",
               {{"loss", m.loss},
                {"grad_norm", m.grad_norm},
                {"learning_rate", m.learning_rate},
                {"epoch", m.epoch},
                {"tokens_per_second", m.tokens_per_second},
                {"step_time_ms", m.step_time_ms},
                {"peak_memory_gib", static_cast<double>(m.peak_memory_bytes()) / (1 << 30)},
                {"cpu_utilization", m.cpu_utilization}});
  if (m.flops_utilization > 0) write_events(m.step, "train/", {{"mfu", m.flops_utilization}});
  std::vector<std::pair<std::string, double>> phases;
  for (std::size_t i = 0; i < phase_count; ++i)
    phases.emplace_back(std::string(phase_names[i]) + "_ms", 1000 * m.phases[i]);
  write_events(m.step, "time/", phases);
}

void Journal::evaluated(const EvalMetrics& m) {
  log_history_.push_back(hf_log_entry(m));
  if (config_.log_format != LogFormat::plain)
    progress_.record(hf_line(m, config_.log_format == LogFormat::hf5));
  else
    progress_.note(describe(m));
  if (output_ == nullptr) return;
  output_->metrics().append(to_json(m));
  exposition_.evaluation = m;
  expose();
  write_events(m.step, "eval/", {{"loss", m.loss}, {"perplexity", m.perplexity()}, {"runtime", m.seconds}});
}

void Journal::sampled(std::int64_t step, const std::string& prompt, const std::string& text) {
  if (events_ && !text.empty())
    events_->text(unix_seconds(), step, "sample/text_summary", as_code(concat(prompt, " |", text)));
}

void Journal::ended(const RunTotals& t) {
  log_history_.push_back(hf_log_entry(t));
  progress_.close();
  if (config_.log_format != LogFormat::plain) progress_.record(hf_line(t, config_.log_format == LogFormat::hf5));
  if (output_ == nullptr) return;
  output_->metrics().append(to_json(t));
  exposition_.running = false;
  expose();
  const Value entry = hf_log_entry(t);
  std::vector<std::pair<std::string, double>> scalars;
  for (const char* name :
       {"train_loss", "train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos"})
    if (entry.at(name).is_number()) scalars.emplace_back(name, entry.at(name).as_real());
  write_events(t.steps, "train/", scalars);
}

void Journal::expose() {
  exposition_.wall_time = unix_seconds();
  if (server_) server_->show(prometheus_text(exposition_));
  if (config_.metrics_file.empty()) return;
  try {
    write_file_atomically(config_.metrics_file, prometheus_text(exposition_));
  } catch (const Error& error) {  // a full disk of the collector ends no training
    if (!exposition_failed_) note(concat("warning: --metrics_file: ", error.what()));
    exposition_failed_ = true;
  }
}

void Journal::write_events(std::int64_t step, const std::string& prefix,
                           const std::vector<std::pair<std::string, double>>& scalars) {
  if (!events_) return;
  std::vector<std::string> tags;
  for (const auto& [name, value] : scalars) tags.push_back(prefix + name);
  std::vector<format::Scalar> values;
  for (std::size_t i = 0; i < scalars.size(); ++i) values.emplace_back(tags[i], scalars[i].second);
  events_->scalars(unix_seconds(), step, values);
}

}  // namespace tessera::train
