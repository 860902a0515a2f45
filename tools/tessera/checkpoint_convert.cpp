/// \file
/// tessera checkpoint convert: converts a GGUF file, or weights saved by PyTorch, to a Hugging Face folder, which
/// appears complete or not at all.

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/format/deepspeed/deepspeed_checkpoint.h>
#include <tessera/format/gguf/gguf_to_hf.h>
#include <tessera/format/torch/torch_to_hf.h>
#include <tools/tessera/checkpoint_tools.h>
#include <tools/tessera/new_folder.h>
#include <tools/tessera/text_progress.h>

#include <algorithm>
#include <iostream>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera checkpoint convert: weights of other programs to a Hugging Face folder\n\n"
    "usage: tessera checkpoint convert SOURCE OUT_DIR [flags]\n\n"
    "SOURCE is one of\n"
    "  FILE.gguf                  llama.cpp\n"
    "  FILE.bin|.pt|.pth          torch.save: weights by name (read as data: no code runs)\n"
    "  DIR                        pytorch_model.bin or its index, or a folder of\n"
    "                             torch.distributed.checkpoint (.metadata and *.distcp:\n"
    "                             FSDP's SHARDED_STATE_DICT, accelerate's pytorch_model_fsdp_0),\n"
    "                             or a checkpoint of DeepSpeed's ZeRO-1, -2 or -3 (the folder\n"
    "                             with 'latest', or the one of a tag in it): its fp32 weights\n\n"
    "  --dtype TYPE       GGUF: float32, float16 or bfloat16 [float32]\n"
    "  --no_tokenizer     GGUF: weights and configuration only\n"
    "  --group NAME       PyTorch's files with nested dicts: the one with the weights\n"
    "                     [model, module, state_dict or model_state_dict]\n"
    "  --config DIR       PyTorch's files: copies config.json and tokenizer from there\n"
    "                     [SOURCE]\n"
    "  --overwrite        replaces OUT_DIR if it is a model folder\n\n"
    "Weights are converted, optimizer states are not: training from the result starts\n"
    "with a new optimizer.\n\n"
    "GGUF: llama (Mistral too), qwen2, qwen3, gpt2; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0,\n"
    "Q5_1, Q4_K, Q5_K, Q6_K; byte-level BPE tokenizers (gpt-2, smollm, llama-bpe, qwen2).\n";

format::DType parse_output_dtype(const std::string& name) {
  if (name == "float32") return format::DType::f32;
  if (name == "float16") return format::DType::f16;
  if (name == "bfloat16") return format::DType::bf16;
  throw InputError(concat("--dtype ", name, ": expected float32, float16 or bfloat16"));
}

/// Whether tied weights are stored only once, which holds if the configuration ties them or does not specify it.
bool ties_words(const std::string& folder) {
  const std::string path = path_join(folder, "config.json");
  if (!path_exists(path)) return true;
  const Value config = read_json(path);
  const Value* tie = config.find("tie_word_embeddings");
  return tie == nullptr || tie->kind() != Value::Kind::boolean || tie->as_bool();
}

void convert_torch(const std::string& source, const std::string& out, const config::Flags& flags) {
  const std::int64_t begin_ns = monotonic_ns();
  for (const char* name : {"dtype", "no_tokenizer"})
    if (flags.has(name)) throw InputError(concat("--", name, " is for GGUF files; PyTorch's weights keep their types"));
  const std::string config = flags.text("config").value_or(source);
  if (flags.has("config") && !path_exists(path_join(config, "config.json")))
    throw InputError(concat("--config ", config, ": it contains no config.json"));
  const bool keep_tied = !ties_words(config), of_files = format::is_torch_weights(source);
  if (!of_files && flags.has("group"))
    throw InputError(
        "--group is for files of torch.save and of torch.distributed.checkpoint; a ZeRO checkpoint has one set of "
        "weights");
  format::TorchWeights weights = of_files
                                     ? format::read_torch_weights(source, flags.text("group").value_or(""), keep_tied)
                                     : format::read_deepspeed_checkpoint(source, keep_tied);
  const std::size_t count = weights.tensors.size();
  {
    const StopOnSignal signals;
    NewFolder folder(out);
    TextProgress progress;
    std::uint64_t done = 0;
    for (format::TensorSource& tensor : weights.tensors)
      tensor.bytes = [&, inner = std::move(tensor.bytes)] {
        StopOnSignal::check();
        const auto bytes = inner();
        done += bytes.size();
        progress.show("converting", static_cast<std::int64_t>(done), static_cast<std::int64_t>(weights.bytes), true);
        return bytes;
      };
    copy_model_files(config, folder.path());
    format::write_safetensors(path_join(folder.path(), "model.safetensors"), std::move(weights.tensors));
    StopOnSignal::check();
    folder.publish();
  }
  std::cerr << concat("convert: ", count, " tensors", weights.group.empty() ? "" : concat(" of '", weights.group, "'"),
                      ", ", format_count(static_cast<double>(weights.parameters)), " parameters, ",
                      format_bytes(weights.bytes), " in ", format_real(seconds_since(begin_ns), 3), " s -> ", out,
                      "\n");
  for (const auto& [name, other] : weights.tied)
    std::cerr << concat("convert: ", name, " shares the memory of ", other, " and is stored once\n");
  if (!weights.left_aside.empty())
    std::cerr << concat("convert: skipped: ",
                        join(std::span(weights.left_aside).first(std::min<std::size_t>(weights.left_aside.size(), 5))),
                        weights.left_aside.size() > 5 ? concat(", ... (", weights.left_aside.size(), ")") : "", "\n");
  if (!path_exists(path_join(out, "config.json")))
    std::cerr << "convert: the result has no config.json; --config DIR copies one\n";
}

}  // namespace

int checkpoint_convert(const Arguments& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::cout << help;
    return 0;
  }
  const auto [paths, rest] = split_positional(arguments, {"dtype", "group", "config"});
  const config::Flags flags("checkpoint convert", rest, {"dtype", "group", "config"}, {"no_tokenizer", "overwrite"});
  if (paths.size() != 2)
    throw InputError(concat("tessera checkpoint convert takes SOURCE and OUT_DIR, found ", paths.size(),
                            paths.size() == 1 ? " path" : " paths"));
  const std::string &source = paths[0], &out = paths[1];
  const std::int64_t begin_ns = monotonic_ns();
  if (format::is_torch_weights(source) || format::is_deepspeed_checkpoint(source)) {
    check_output(out, source, flags.has("overwrite"));
    convert_torch(source, out, flags);
    return 0;
  }
  for (const char* name : {"group", "config"})
    if (flags.has(name)) throw InputError(concat("--", name, " is for PyTorch's weights"));
  format::GgufToHfOptions options;
  options.dtype = parse_output_dtype(flags.text("dtype").value_or("float32"));
  options.tokenizer = !flags.has("no_tokenizer");
  if (is_directory(source))
    throw InputError(concat("'", source,
                            "' is a folder without pytorch_model.bin, its index, .metadata or DeepSpeed's 'latest'; "
                            "expected one of these or a .gguf file"));
  check_output(out, source, flags.has("overwrite"));

  const format::GgufFile file(source);
  const format::GgufToHf plan = format::plan_gguf_to_hf(file, options);
  for (const std::string& note : plan.tokenizer.notes) log::warning(source, ": ", note);
  {
    const StopOnSignal signals;
    NewFolder folder(out);
    TextProgress progress;
    options.progress = [&](std::uint64_t done, std::uint64_t of) {
      StopOnSignal::check();
      progress.show("converting", static_cast<std::int64_t>(done), static_cast<std::int64_t>(of), true);
    };
    format::write_gguf_to_hf(file, plan, folder.path(), options);
    StopOnSignal::check();
    folder.publish();
  }
  std::cerr << concat("convert: ", plan.tensors.size(), " tensors, ",
                      format_count(static_cast<double>(plan.parameters)), " parameters, ",
                      format_bytes(file.file_bytes()), " -> ", format_bytes(plan.weight_bytes), " in ",
                      format_real(seconds_since(begin_ns), 3), " s -> ", out, "\n",
                      plan.tokenizer.kind.empty() ? "convert: no tokenizer\n"
                                                  : concat("convert: tokenizer: ", plan.tokenizer.kind, "\n"));
  return 0;
}

}  // namespace tessera::tool
