#include <tessera/train/reporting/model_card.h>

#include <torch/version.h>

#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <span>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/processor.h>
#include <tessera/base/version.h>
#include <tessera/format/manifest/crc32c.h>
#include <tessera/train/reporting/summary.h>

namespace tessera::train {
namespace {

constexpr const char* kReadme = "README.md";
constexpr std::string_view kMarkBegins = "<!-- tessera train wrote this from the run's records (";
constexpr std::string_view kMarkEnds = "). A card that is changed by hand is not written over. -->\n";
constexpr std::size_t most_rows = 40;  // maximum rows of the table of losses

std::string plain_or_quoted(const std::string& text) {
  const bool plain = !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) &&
                     std::all_of(text.begin(), text.end(), [](unsigned char c) {
                       return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/';
                     });
  const std::string word = to_lower(text);
  const bool means_else = word == "true" || word == "false" || word == "null" || word == "no" || word == "yes" ||
                          word == "on" || word == "off" || word == "nan" || word == "y" || word == "n";  // special in
                                                                                                         // YAML 1.1
  return plain && !means_else ? text : dump_json(Value::of(text), -1);
}

/// Writes "key: value" lines; a list becomes one "- item" per line.
std::string yaml_lines(const std::string& key, const Value& value) {
  if (value.is_string()) return concat(key, ": ", plain_or_quoted(value.as_string()), "\n");
  if (!value.is_array()) return concat(key, ": ", dump_json(value, -1), "\n");
  std::string text = key + ":\n";
  for (const Value& item : value.items())
    text += concat("- ", item.is_string() ? plain_or_quoted(item.as_string()) : dump_json(item, -1), "\n");
  return text;
}

Value list_of(const std::vector<std::string>& words) {
  Value list = Value::make_array();
  for (const std::string& word : words) list.push_back(Value::of(word));
  return list;
}

const Value* evaluated(const CardFacts& facts) {
  const auto last = std::find_if(facts.history.rbegin(), facts.history.rend(),
                                 [](const Value& entry) { return entry.find("eval_loss") != nullptr; });
  return last == facts.history.rend() ? nullptr : &*last;
}

const Value* accuracy_in(const Value& evaluation) { return evaluation.find("eval_accuracy"); }

/// False for a loss of pairs of answers (train/loss/preference.h), whose evaluations have rewards, and for a loss of
/// classes.
bool has_perplexity(const Value& evaluation) {
  return evaluation.find("eval_rewards/chosen") == nullptr && accuracy_in(evaluation) == nullptr;
}

std::string head_of(const CardFacts& facts) {
  std::string head = yaml_lines("library_name", Value::of(facts.adapters ? "peft" : "transformers"));
  if (!facts.base_model.empty()) {
    head += yaml_lines("base_model", Value::of(facts.base_model));
    head += yaml_lines("base_model_relation", Value::of(facts.adapters ? "adapter" : "finetune"));
  }
  // the license and language of the base model still apply
  for (const char* key : {"license", "license_name", "license_link", "language"})
    if (const Value* value = facts.base_card.find(key); value != nullptr && !value->is_null() && !value->is_object())
      head += yaml_lines(key, *value);
  if (!facts.datasets.empty()) head += yaml_lines("datasets", list_of(facts.datasets));
  if (!facts.pipeline_tag.empty()) head += yaml_lines("pipeline_tag", Value::of(facts.pipeline_tag));
  if (const Value* evaluation = evaluated(facts); evaluation != nullptr && has_perplexity(*evaluation))
    head += yaml_lines("metrics", list_of({"perplexity"}));
  else if (evaluation != nullptr && accuracy_in(*evaluation) != nullptr)
    head += yaml_lines("metrics", list_of({"accuracy", "f1"}));
  std::vector<std::string> tags = {"tessera", "generated_from_trainer"};
  if (facts.adapters) tags.push_back("lora");
  return concat("---\n", head, yaml_lines("tags", list_of(tags)), "---\n");
}

std::string number(const Value& entry, const char* key, int digits) {
  const Value* value = entry.find(key);
  if (value == nullptr) return "";
  return value->is_number() ? format_real(value->as_real(), digits) : value->as_string();
}

/// One row per evaluation or, without evaluations, per log; evenly thinned out, but always including the last one.
std::string table_of(const std::vector<Value>& history) {
  struct Row {
    std::string training, validation, epoch, step;
  };
  std::vector<Row> evaluations, logs;
  std::string loss;
  for (const Value& entry : history) {
    if (entry.find("loss") != nullptr) {
      loss = number(entry, "loss", 5);
      logs.push_back({loss, "", number(entry, "epoch", 4), number(entry, "step", 17)});
    } else if (entry.find("eval_loss") != nullptr) {
      evaluations.push_back(
          {loss, number(entry, "eval_loss", 5), number(entry, "epoch", 4), number(entry, "step", 17)});
    }
  }
  const bool has_evaluations = !evaluations.empty();
  const std::vector<Row>& rows = has_evaluations ? evaluations : logs;
  if (rows.empty()) return "";
  std::string text = has_evaluations ? "| Step | Epoch | Training loss | Validation loss |\n|---|---|---|---|\n"
                                     : "| Step | Epoch | Training loss |\n|---|---|---|\n";
  const std::size_t shown = std::min(rows.size(), most_rows);
  for (std::size_t i = 0; i < shown; ++i) {
    const Row& row = rows[(i + 1) * rows.size() / shown - 1];
    text += concat("| ", row.step, " | ", row.epoch, " | ", row.training, has_evaluations ? " | " : " |\n");
    if (has_evaluations) text += concat(row.validation, " |\n");
  }
  return text;
}

/// Fences a text so that it cannot end its Markdown code block.
std::string code_block(const std::string& text) {
  std::string fence = "```";
  while (text.find(fence) != std::string::npos) fence += "`";
  return concat(fence, "yaml\n", text, fence, "\n");
}

std::string rounded(double value, const char* format) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

std::string results(const CardFacts& facts) {
  const Value* const evaluation = evaluated(facts);
  if (evaluation == nullptr) return "";
  const double loss = evaluation->at("eval_loss").is_number() ? evaluation->at("eval_loss").as_real() : std::nan("");
  return concat(
      "On the validation data, after step ", number(*evaluation, "step", 17), ": loss ", rounded(loss, "%.4f"),
      has_perplexity(*evaluation) ? concat(", perplexity ", rounded(std::exp(loss), "%.2f")) : "",
      accuracy_in(*evaluation) ? concat(", accuracy ", number(*evaluation, "eval_accuracy", 4)) : "", ".\n\n");
}

std::string where_from(const CardFacts& facts) {
  if (facts.base_folder.empty()) return "trained from scratch";
  const std::string base = facts.base_model.empty()
                               ? concat("`", facts.base_folder, "`")
                               : concat("[", facts.base_model, "](https://huggingface.co/", facts.base_model, ")");
  return facts.adapters ? "LoRA adapters for " + base : "trained further from " + base;
}

std::string how_long(const CardFacts& facts) {
  const RunTotals& t = facts.totals;
  const std::int64_t before = t.steps - t.steps_here;
  std::string text = concat("- ", format_duration(t.seconds), " for ", t.steps_here, " steps",
                            before > 0 ? concat(" (the ", before, " before them ran in earlier processes)") : "", ", ",
                            format_count(static_cast<double>(t.tokens)), " tokens, ", format_count(t.tokens_per_second),
                            " tokens per second\n");
  text += concat("- peak memory of a process: ", format_bytes(static_cast<std::uint64_t>(t.peak_memory_bytes)), "\n");
  if (t.total_flops > 0) text += concat("- arithmetic of the model: ", format_count(t.total_flops), "FLOP\n");
  return text;
}

std::uint32_t sum_of(std::string_view text) { return format::crc32c(std::as_bytes(std::span(text))); }

/// Position of the mark in a text, and the checksum it contains.
struct Mark {
  std::size_t begin = 0, end = 0;
  std::string sum;
};
std::optional<Mark> mark_in(const std::string& text) {
  const std::size_t begin = text.find(kMarkBegins);
  if (begin == std::string::npos) return std::nullopt;
  const std::size_t at = begin + kMarkBegins.size(), end = text.find(kMarkEnds, at);
  if (end == std::string::npos) return std::nullopt;
  return Mark{begin, end + kMarkEnds.size(), text.substr(at, end - at)};
}

std::string hex(std::uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

/// "ORG/NAME", the hub's form of model names.
bool is_hub_name(const std::string& text) {
  const std::size_t slash = text.find('/');
  return slash != std::string::npos && slash > 0 && slash + 1 < text.size() && text[0] != '.' &&
         text.find('/', slash + 1) == std::string::npos && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '/' || c == '-' || c == '_' || c == '.';
         });
}

std::string tag_of(const models::LanguageModel& model) {
  switch (model.objective()) {
    case data::Objective::Kind::next_token:
      return "text-generation";
    case data::Objective::Kind::masked_token:
      return "fill-mask";
    case data::Objective::Kind::row_class:
      return "text-classification";
  }
  return "";
}

}  // namespace

std::string hub_name(const std::string& path, const std::string& kind) {
  for (const std::string& part : split(path, '/')) {
    if (!part.starts_with(kind + "--")) continue;
    const std::string rest = part.substr(kind.size() + 2);
    const std::size_t dashes = rest.find("--");
    const std::string name =
        dashes == std::string::npos ? rest : concat(rest.substr(0, dashes), "/", rest.substr(dashes + 2));
    if (!name.empty()) return name;
  }
  return "";
}

Value front_matter(const std::string& card) {
  constexpr std::string_view dashes = "---\n";
  if (!card.starts_with(dashes)) return Value::make_object();
  const std::size_t end = card.find("\n---", dashes.size() - 1);
  if (end == std::string::npos) return Value::make_object();
  try {
    Value head = parse_yaml(card.substr(dashes.size(), end + 1 - dashes.size()), kReadme);
    if (head.is_object()) return head;
  } catch (const InputError& error) {
    log::warning("cannot read license and language from the base model's card: ", error.what());
  }
  return Value::make_object();
}

std::string model_card(const CardFacts& facts) {
  std::string body =
      concat("\n# ", facts.name, "\n\n", facts.model, "; ", where_from(facts), " with Tessera.\n\n", results(facts));
  body += "## Training\n\n";
  for (const std::string& fact : facts.facts) body += concat("- ", fact, "\n");
  std::string settings;
  for (const auto& [name, value] : facts.settings) settings += concat(name, ": ", value, "\n");
  if (!settings.empty()) body += concat("\nSettings (all others have their defaults):\n\n", code_block(settings));
  if (const std::string table = table_of(facts.history); !table.empty()) body += concat("\n## Losses\n\n", table);
  body += "\n## Hardware and duration\n\n";
  for (const std::string& line : facts.hardware) body += concat("- ", line, "\n");
  body += how_long(facts);
  const std::string rest = head_of(facts) + body;
  const std::size_t at = rest.find("---\n\n", 4) + 4;
  return concat(rest.substr(0, at), kMarkBegins, hex(sum_of(rest)), kMarkEnds, rest.substr(at));
}

bool is_own_card(const std::string& text) {
  const auto mark = mark_in(text);
  return mark && hex(sum_of(text.substr(0, mark->begin) + text.substr(mark->end))) == mark->sum;
}

bool write_model_card(const std::string& folder, const std::string& card) {
  const std::string path = path_join(folder, kReadme);
  if (path_exists(path) && !is_own_card(read_file(path))) return false;
  write_file_atomically(path, card);
  return true;
}

CardFacts card_facts(const Setup& setup, const comm::World& world, const Value& configuration, const RunTotals& totals,
                     const std::vector<Value>& history) {
  const RunConfig& config = setup.config;
  CardFacts facts;
  const std::string& run_name = config.output.run_name;
  const std::string folder = absolute_path(config.output.output_dir);
  facts.name = run_name.empty() ? folder.substr(folder.find_last_of('/') + 1) : run_name;
  facts.model = describe_model(*setup.model);
  facts.adapters = setup.lora.has_value();
  facts.pipeline_tag = tag_of(*setup.model);
  facts.base_folder = config.model.model_name_or_path;
  if (!facts.base_folder.empty()) {
    facts.base_model = hub_name(facts.base_folder, "models");
    const Value* named = setup.model->hf_config().find("_name_or_path");
    if (facts.base_model.empty() && named != nullptr && named->is_string() && is_hub_name(named->as_string()))
      facts.base_model = named->as_string();
    if (const std::string card = path_join(facts.base_folder, kReadme); path_exists(card))
      facts.base_card = front_matter(read_file(card));
  }
  if (const std::string name = hub_name(config.data.train_file, "datasets"); !name.empty()) facts.datasets = {name};
  facts.facts = describe_start(setup, world);
  facts.facts.insert(
      facts.facts.begin() + 1,
      concat("files: ", config.data.mock_data ? "none, tokens generated by --mock_data" : config.data.train_file,
             config.data.validation_file.empty() ? "" : concat("; validation: ", config.data.validation_file)));
  const std::int64_t hosts = (world.size() + world.local_size() - 1) / world.local_size();
  facts.hardware = {
      concat(hosts > 1 ? concat(hosts, " hosts, the first one: ") : "", processor_name(), ", ",
             format_bytes(static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                          static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))),
             " of memory"),
      concat("Tessera ", version_major, ".", version_minor, ".", version_patch, ", LibTorch ", TORCH_VERSION)};
  for (const auto& [section, members] : configuration.members())
    for (const auto& [name, setting] : members.members()) {
      const Value& value = setting.at("value");
      if (setting.at("origin").as_string() == "default") continue;
      facts.settings.emplace_back(name, value.is_string() ? plain_or_quoted(value.as_string()) : dump_json(value, -1));
    }
  facts.history = history;
  facts.totals = totals;
  return facts;
}

}  // namespace tessera::train
