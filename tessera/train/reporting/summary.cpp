#include <tessera/train/reporting/summary.h>

#include <ATen/Parallel.h>

#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <ctime>

#include <tessera/base/clock.h>
#include <tessera/base/plural.h>
#include <tessera/base/system/host_name.h>
#include <tessera/base/text.h>
#include <tessera/config/record/former_settings.h>
#include <tessera/models/frozen/quantize.h>
#include <tessera/parallel/tensor_parallel.h>
#include <tessera/text/chat_template.h>
#include <tessera/text/unicode/utf8.h>
#include <tessera/train/core/optimization.h>
#include <tessera/train/inference/generate.h>

namespace tessera::train {
namespace {

constexpr std::int64_t sample_prompt_tokens = 16;
constexpr std::int64_t sample_tokens = 80;
constexpr double sample_temperature = 0.8;
constexpr double sample_top_p = 0.95;

template <class... Numbers>
std::string numbers_text(const char* format, Numbers... numbers) {
  char buffer[128];
  std::snprintf(buffer, sizeof buffer, format, numbers...);
  return buffer;
}

std::string processes_text(const comm::World& world) {
  return concat(plural(world.size(), "process", "processes"), " x ", plural(at::get_num_threads(), "thread"),
                world.size() > 1 ? concat(" (", world.group().backend(), ")") : "");
}

std::string rows_text(const data::Dataset& dataset) {
  const bool blocks = !dataset.streamed() && dataset.tokens() == dataset.size() * dataset.max_length();
  return concat(blocks ? "blocks of " : "rows of at most ", dataset.max_length(), " tokens");
}

/// Number of ids of a row used as the sample's prompt: the unscored ones (a prompt, a question), otherwise the first
/// words.
std::int64_t prompt_length(const data::Row& row) {
  const auto scored =
      std::find_if(row.labels.begin(), row.labels.end(), [](std::int64_t label) { return label != -100; });
  const std::int64_t prompt = scored - row.labels.begin();
  const auto size = static_cast<std::int64_t>(row.ids.size());
  return prompt > 1 && prompt < size ? prompt : std::clamp<std::int64_t>(size / 2, 1, sample_prompt_tokens);
}

std::string batch_text(const Setup& setup) {
  const RunPlan& plan = setup.plan;
  if (plan.token_steps)
    return concat("about ", plan.rows_of_step(plan.resumed_step), " rows (",
                  plural(plan.data_ranks, "process", "processes"), " x ",
                  plural(plan.accumulation, "micro-batch", "micro-batches"), " of at most ",
                  setup.config.optimization.tokens_per_batch, " tokens, including padding)");
  const std::int64_t left = plan.train_blocks % plan.rows_per_step();
  const bool comes = plan.total_steps >= plan.steps_per_epoch();
  const bool partial = plan.steps_end_with_epochs && left > 0 && comes,
             whole_epoch = plan.train_blocks < plan.rows_per_step();
  const std::string before = partial && whole_epoch     ? concat(left, " rows, a whole epoch; of up to ")
                             : plan.segments.size() > 1 ? concat(plan.segments.front().rows, ", growing to ")
                                                        : std::string();
  return concat(before, plan.rows_per_step(), " rows (",
                setup.xla ? plural(setup.devices(), "device", "devices")
                          : plural(plan.data_ranks, setup.groups.cuts() ? "copy" : "process",
                                   setup.groups.cuts() ? "copies" : "processes"),
                " x ", plan.batch_size, " x ",
                plural(plan.accumulation / setup.devices(), "micro-batch", "micro-batches"), ")",
                partial && !whole_epoch ? concat(", ", left, " in the last step of an epoch") : "",
                left > 0 && !plan.steps_end_with_epochs && plan.epoch(plan.total_steps) > 1
                    ? concat("; steps cross the ends of epochs: ", why_steps_are_whole(setup.config, plan))
                    : "");
}

/// Shows control bytes, which a barely trained model often produces, as numbers: a log must remain text.
std::string one_line(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    char number[8];
    std::snprintf(number, sizeof number, "\\x%02x", byte);
    out += c == '\n' ? " " : byte < 0x20 || byte == 0x7f ? std::string(number) : std::string(1, c);
  }
  return out;
}

}  // namespace

std::int64_t parameter_count(const models::LanguageModel& model) {
  std::int64_t count = model.elsewhere_elements() + models::quantized_sizes(model).elements;
  for (const auto& parameter : model.parameters()) count += c10::multiply_integers(whole_shape(parameter));
  return count;
}

std::string describe_model(const models::LanguageModel& model) {
  const Value* type = model.hf_config().find("model_type");
  return concat(type != nullptr && type->is_string() ? type->as_string() : "model", ", ",
                format_count(static_cast<double>(parameter_count(model))), " parameters");
}

std::vector<std::string> describe_start(const Setup& setup, const comm::World& world) {
  const RunPlan& plan = setup.plan;
  const auto& train = *setup.datasets.train;
  std::vector<std::string> lines = {
      concat("model: ", describe_model(*setup.model), "; ", processes_text(world), " on ", world.device().str()),
      concat("data: ",
             train.streamed() ? concat("a stream of ", rows_text(train))
                              : concat(train.size(), " ", rows_text(train), " (",
                                       format_count(static_cast<double>(train.tokens())), " tokens)"),
             setup.datasets.validation ? concat(", ", setup.datasets.validation->size(), " for validation") : ""),
      concat("steps: ", plan.total_steps, " of ", batch_text(setup),
             train.streamed() ? "" : concat(", ", numbers_text("%.2f", plan.epoch(plan.total_steps)), " epochs"))};
  const auto& parallel = setup.config.parallel;
  if (parallel.deterministic_reduce)
    lines.push_back(concat("fixed order: ", plural(parallel.logical_shards, "logical shard", "logical shards"), " of ",
                           plan.batch_size,
                           " rows, 1 thread per process; the same bits for any number of "
                           "processes that divides ",
                           parallel.logical_shards));
  if (const std::string rate = describe_learning_rate(setup.config.optimization, plan.rows_per_step()); !rate.empty())
    lines.push_back(rate);
  lines.insert(lines.end(), setup.parts.facts.begin(), setup.parts.facts.end());
  if (setup.lora) lines.insert(lines.begin() + 1, "LoRA:  " + models::describe_trainable(*setup.model));
  if (const std::string quantized = models::describe_quantized(*setup.model); !quantized.empty())
    lines.insert(lines.begin() + 2, "frozen weights: " + quantized);
  if (setup.resume) {
    lines.push_back(concat("resumed from ", setup.resume_folder, " at step ", plan.resumed_step));
    if (const auto changed = config::changed_since(setup.resume->configuration, setup.config); !changed.empty())
      lines.push_back(concat("settings that differ from before: ", join(changed)));
    if (const auto changed = changed_since(setup.resume->basis, setup.basis); !changed.empty())
      lines.push_back(concat("warning: this run's inputs differ from those of the checkpoint: ", join(changed, "; "),
                             ". Its results differ from those of an uninterrupted run"));
    if (plan.repeated_rows > 0)
      lines.push_back(concat("--ignore_data_skip: the ", plan.repeated_rows,
                             " rows that this epoch has already used are repeated"));
  }
  return lines;
}

std::string describe(const EvalMetrics& m) {
  return concat("step ", m.step, numbers_text("  eval loss %.4f", m.loss),
                m.has_perplexity() ? numbers_text("  perplexity %.2f", m.perplexity()) : "",
                m.classes.measured ? numbers_text("  accuracy %.4f", m.classes.accuracy) : "",
                numbers_text("  (%.1f s)", m.seconds));
}

std::string describe_skipped(const StepMetrics& m) {
  if (m.loss_scale <= 0 || m.skipped_steps <= 0) return "";
  return concat("step ", m.step, ": ", plural(m.skipped_steps, "step"), " since the previous log ",
                m.skipped_steps == 1 ? "was" : "were", " skipped because fp16 gradients were not finite (loss scale ",
                format_real(m.loss_scale), " now)");
}

std::string describe_skipped(const RunTotals& t) {
  if (t.skipped_steps <= 0) return "";
  return concat("skipped: ", t.skipped_steps, " of ", plural(t.steps_here, "step"),
                ", because gradients were not finite; weights and optimizer were left unchanged",
                t.loss_scale > 0 ? concat(" (--fp16: loss scale ", format_real(t.loss_scale), ")") : "");
}

std::vector<std::string> describe_end(const Setup& setup, const RunTotals& t, const Sample& before, const Sample& after,
                                      const std::string& report_path) {
  std::vector<std::string> lines;
  const bool twice = !before.text.empty() && !after.text.empty();
  if (twice) lines.push_back(concat("before: ", one_line(before.prompt), " |", one_line(before.text)));
  if (twice) lines.push_back(concat("after:  ", one_line(after.prompt), " |", one_line(after.text)));
  const std::string head = concat(t.reason, " after step ", t.steps);
  lines.push_back(t.steps_here == 0
                      ? concat(head, ", where it started", t.reason == "done" ? ": no steps were left to do" : "")
                      : concat(head, " (", format_duration(t.seconds), "): ", numbers_text("loss %.4f", t.loss),
                               t.has_eval ? numbers_text(", eval loss %.4f", t.eval_loss) : "",
                               numbers_text("; unigram entropy %.4f", t.unigram_entropy)));
  if (t.steps_here > 0)
    lines.push_back(
        concat(format_count(t.tokens_per_second), " tok/s, ", format_count(t.flops_per_second), "FLOP/s",
               t.peak_flops_per_second > 0
                   ? numbers_text(" (%.0f %% of the measured peak)", 100 * t.flops_per_second / t.peak_flops_per_second)
                   : "",
               ", peak memory ", format_bytes(static_cast<std::uint64_t>(t.peak_memory_bytes)), " per process (",
               format_bytes(static_cast<std::uint64_t>(t.peak_allocated_bytes)), " in tensors)"));
  if (std::string skipped = describe_skipped(t); !skipped.empty()) lines.push_back(std::move(skipped));
  if (t.steps_here > 0) lines.push_back(t.advice);
  // the lifetime of the process, because the waits include those at startup
  const double seconds = seconds_since_start(getpid()).value_or(t.seconds);
  for (std::string& line : communication_lines(t.communication, seconds)) lines.push_back(std::move(line));
  if (t.reason == "done") {
    const std::string& output = setup.config.output.output_dir;
    lines.push_back((setup.lora ? "LoRA adapters: " : "model:  ") + output);
    if (setup.lora && setup.config.model.lora_merge) lines.push_back("merged model:  " + output + "/merged");
  }
  lines.push_back("report: " + report_path);
  return lines;
}

Report describe_run(const Setup& setup, const comm::World& world) {
  Report report;
  const std::string& name = setup.config.output.run_name;
  report.title = name.empty() ? describe_model(*setup.model) : concat(name, ": ", describe_model(*setup.model));
  report.facts = {processes_text(world), batch_text(setup) + " a step", rows_text(*setup.datasets.train),
                  setup.config.data.mock_data ? "tokens generated by --mock_data" : setup.config.data.train_file};
  char time[64] = {};
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  std::strftime(time, sizeof time, "%Y-%m-%d %H:%M", localtime_r(&now, &local));
  report.footer = concat("written ", time, " on ", host_name("?"));
  report.sample_note = concat("the prompt is shown in a lighter color; temperature ", format_real(sample_temperature),
                              ", top-p ", format_real(sample_top_p));
  return report;
}

Sample sample_text(const Setup& setup) {
  const auto model = std::dynamic_pointer_cast<models::CausalLm>(setup.model);
  if (!setup.tokenizer_fits_data || !model) return {};  // only causal models generate text
  const data::Dataset& dataset = setup.datasets.validation ? *setup.datasets.validation : *setup.rows_to_show();
  const data::Row row = dataset.read(0);
  if (!row.images.empty()) return {};  // generation does not support images
  const std::vector<std::int32_t> prompt(row.ids.begin(), row.ids.begin() + prompt_length(row));
  // the .bin file was made with a tokenizer other than the named one: the run is valid, but its text cannot be shown
  if (std::any_of(prompt.begin(), prompt.end(), [&](std::int32_t id) { return id >= setup.tokenizer->vocab_size(); }))
    return {};
  GenerateOptions options;
  options.max_new_tokens = sample_tokens;
  options.temperature = sample_temperature;
  options.top_p = sample_top_p;
  options.seed = static_cast<std::uint64_t>(setup.config.optimization.seed);
  options.vocabulary = setup.tokenizer->vocab_size();
  options.stop_ids = stop_ids(setup.model->hf_config(), *setup.tokenizer);
  if (text::has_chat_tokens(*setup.tokenizer))
    options.stop_ids.push_back(setup.tokenizer->encode(text::chat_end).front());
  // On the CPU a token's products cost less than rounding the weights, and oneDNN would keep a kernel for every text
  // length (110 MB of them for a small model).
  options.bf16 = setup.config.optimization.bf16 && setup.config.device != Device::cpu;
  const std::vector<std::int32_t> ids = generate(*model, prompt, options);
  return {text::replace_ill_formed(setup.tokenizer->decode(prompt)),
          text::replace_ill_formed(setup.tokenizer->decode_after(prompt, ids))};
}

}  // namespace tessera::train
