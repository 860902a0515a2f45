#include "answerer.h"

#include <unistd.h>

#include <cstdio>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/comm/backend_plugin.h>
#include <tessera/models/load.h>
#include <tessera/train/loop/setup.h>

namespace tessera::tool {
namespace {

/// The tokens that end a text, from config.json and, if present, generation_config.json.
std::vector<std::int32_t> stops(const models::CausalLm& model, const std::string& folder,
                                const text::Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids = train::stop_ids(model.hf_config(), tokenizer);
  const std::string path = path_join(folder, "generation_config.json");
  if (path_exists(path))
    for (const std::int32_t id : train::stop_ids(read_json(path), tokenizer)) ids.push_back(id);
  if (text::has_chat_tokens(tokenizer)) ids.push_back(tokenizer.encode(text::chat_end).front());
  return ids;
}

}  // namespace

std::vector<std::string> answer_flags(std::vector<std::string> own) {
  for (const char* name : {"model_name_or_path", "tokenizer_name", "chat_template", "max_new_tokens", "temperature",
                           "top_k", "top_p", "seed", "threads_per_process", "device"})
    own.emplace_back(name);
  return own;
}

std::vector<std::string> answer_switches(std::vector<std::string> own) {
  for (const char* name : {"greedy", "do_sample", "bf16", "help"}) own.emplace_back(name);
  return own;
}

const char* const answer_help =
    "  --greedy                  always the most likely token (default: --do_sample)\n"
    "  --temperature T           below 1 sharpens, above 1 flattens the distribution [1]\n"
    "  --top_k K                 sample among the K most likely; 0: all [0]\n"
    "  --top_p P                 sample among the most likely that reach probability P [1]\n"
    "  --seed S                  random seed [42]\n"
    "  --bf16                    matrix products in bfloat16\n"
    "  --device cpu|cuda|auto    auto: a GPU if the CUDA plug-in finds one [auto]\n"
    "  --threads_per_process N   [all cores]\n";

c10::Device device_of(const Flags& flags) {
  const std::string word = to_lower(flags.text("device").value_or("auto"));
  std::string why;
  if (word == "auto") {
    const c10::Device found = comm::open_device(comm::found_device(why), 0);
    if (found.is_cuda()) log::info("on ", found.str(), " (--device cpu uses the processor)");
    return found;
  }
  if (word != "cpu" && word != "cuda") throw InputError(concat("--device is ", word, "; it must be cpu, cuda or auto"));
  return comm::open_device(word == "cpu" ? Device::cpu : Device::cuda, 0);
}

Answerer open_answerer(const Flags& flags, std::int64_t max_new_tokens) {
  const std::string folder = flags.required("model_name_or_path", "the folder of a trained model");
  if (flags.has("greedy") && flags.has("do_sample")) throw InputError("--greedy and --do_sample contradict each other");
  const std::int64_t threads = flags.integer("threads_per_process", 0);
  if (threads < 0) throw InputError(concat("--threads_per_process is ", threads, ", must be >= 0"));
  train::set_threads(threads, 1);

  ModelConfig config;
  config.model_name_or_path = folder;
  Answerer answerer;
  const c10::Device device = device_of(flags);
  answerer.model = models::load_model(config, 0);
  answerer.model->to(device);
  // A folder without a tokenizer was trained on bytes or on ready-made tokens.
  config.tokenizer_name = flags.text("tokenizer_name").value_or("");
  answerer.tokenizer_place = train::tokenizer_place(config);
  answerer.tokenizer = text::load_tokenizer(answerer.tokenizer_place);
  if (answerer.tokenizer->vocab_size() > answerer.model->vocab_size())
    throw InputError(concat("the tokenizer has ", answerer.tokenizer->vocab_size(),
                            " tokens but the model's embedding has ", answerer.model->vocab_size(), " rows"));

  train::GenerateOptions& options = answerer.options;
  options.max_new_tokens = flags.integer("max_new_tokens", max_new_tokens);
  options.do_sample = !flags.has("greedy");
  options.temperature = flags.real("temperature", 1);
  options.top_k = flags.integer("top_k", 0);
  options.top_p = flags.real("top_p", 1);
  options.seed = static_cast<std::uint64_t>(flags.integer("seed", 42));
  options.vocabulary = answerer.tokenizer->vocab_size();
  options.stop_ids = stops(*answerer.model, folder, *answerer.tokenizer);
  options.bf16 = flags.has("bf16");
  return answerer;
}

text::ChatTemplate Answerer::chat_template(const Flags& flags) const {
  return text::load_chat_template(*tokenizer, tokenizer_place, flags.text("chat_template").value_or(""));
}

Value chat_message(const std::string& role, const std::string& content) {
  return Value::make_object({{"role", Value::of(role)}, {"content", Value::of(content)}});
}

std::vector<std::int32_t> chat_prompt(const Answerer& answerer, const text::ChatTemplate& chat, const Value& messages,
                                      text::ChatOptions options) {
  options.add_generation_prompt = true;
  std::vector<std::int32_t> ids = chat.is_chatml() ? answerer.tokenizer->prefix() : std::vector<std::int32_t>();
  const text::ChatEncoder encoder(*answerer.tokenizer);
  for (const std::int32_t id : encoder.encode(chat.render(messages, options).text, true)) ids.push_back(id);
  return ids;
}

std::string without_controls(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f)
      out += {'^', static_cast<char>(byte ^ 0x40)};
    else
      out += c;
  }
  return out;
}

void print_said(const std::string& text) {
  static const bool terminal = isatty(STDOUT_FILENO) != 0;
  print(terminal ? without_controls(text) : text);
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace tessera::tool
