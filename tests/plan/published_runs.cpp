#include <tests/plan/published_runs.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/plan/presets.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace tessera::testing {

using namespace plan;

namespace {

/// The cells of the next row; quotes as in RFC 4180.
std::vector<std::string> next_row(const std::string& text, std::size_t& at) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted && c == '"' && at + 1 < text.size() && text[at + 1] == '"')
      cells.back() += text[at++];
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && c == ',')
      cells.emplace_back();
    else if (!quoted && c == '\n')
      break;
    else if (c != '\r')
      cells.back() += c;
  }
  ++at;
  return cells;
}

bool has(const std::string& text, std::string_view word) { return text.find(word) != std::string::npos; }

/// The year of a source, from its release ("NeMo 25.04", "NeMo24.07") or preprint ("arXiv:2104.04473"), else 2025.
int year_of(const std::string& source) {
  for (const std::string_view word : {"NeMo ", "NeMo", "arXiv:"}) {
    const std::size_t at = source.find(word);
    if (at == std::string::npos) continue;
    if (const auto year = parse_int(source.substr(at + word.size(), 2)); year && *year >= 19)
      return 2000 + static_cast<int>(*year);
  }
  return 2025;
}

/// The engine and its year, from the source if it names one, else Megatron-LM of that year.
Engine engine_of_source(const PublishedRun& run) {
  const std::string& s = run.source;
  struct Known {
    const char* word;
    EngineName name;
    int year;
  };
  static constexpr Known all[] = {{"BigScience", EngineName::deepspeed, 2022},
                                  {"BLOOM", EngineName::deepspeed, 2022},
                                  {"MT-NLG", EngineName::deepspeed, 2021},
                                  {"2201.11990", EngineName::deepspeed, 2021},
                                  {"DeepSpeed", EngineName::deepspeed, 2022},
                                  {"SC21", EngineName::megatron, 2021},
                                  {"(2020)", EngineName::megatron, 2020},
                                  {"MegaScale", EngineName::megatron, 2023},
                                  {"Megatron-LM README", EngineName::megatron, 2024},
                                  {"FSDP arXiv", EngineName::fsdp2, 2022},
                                  {"OPT ", EngineName::fsdp2, 2022},
                                  {"llm-foundry", EngineName::fsdp2, 2023},
                                  {"fms-fsdp", EngineName::fsdp2, 2024},
                                  {"torchtitan", EngineName::torchtitan, 2024},
                                  {"Llama 3 arXiv", EngineName::torchtitan, 2024}};
  const auto* const known =
      std::find_if(std::begin(all), std::end(all), [&](const Known& k) { return has(s, k.word); });
  Engine e = known != std::end(all) ? engine_of(known->name, known->year) : engine_of(EngineName::megatron, year_of(s));
  if (has(run.model,
          "(MegaScale)")) {  // the paper adds overlap and avoids slow hosts (sections 3, 5)
    e.tensor_hidden = 0.5;
    e.waits_for_messages = false;
    e.slow_nodes = 0;
  }
  if (has(s, "no comm overlap")) e.tensor_hidden = e.data_hidden = 0;
  if (has(s, "CE fusion")) e.loss_bytes = 8;
  if (has(s, "AsyncTP")) e.tensor_hidden = 0.5;
  if (has(s, "compile")) e.pass_bytes = std::min(e.pass_bytes, 1.3);
  return e;
}

}  // namespace

std::vector<PublishedRun> read_published(const std::string& path) {
  const std::string text = read_file(path);
  std::size_t at = 0;
  const std::vector<std::string> names = next_row(text, at);
  std::vector<PublishedRun> all;
  for (int line = 2; at < text.size(); ++line) {
    const std::vector<std::string> cells = next_row(text, at);
    if (cells.size() != names.size())
      throw InputError(concat(path, ":", line, ": ", cells.size(), " columns; the first row has ", names.size()));
    std::map<std::string, std::string> row;
    for (std::size_t i = 0; i < names.size(); ++i) row[names[i]] = cells[i];
    const auto number = [&](const char* name, std::int64_t otherwise) {
      return parse_int(row[name]).value_or(otherwise);
    };
    const auto figure = [&](const char* name) { return parse_real(row[name]).value_or(0); };
    PublishedRun r;
    r.line = line;
    r.source = row["source"], r.model = row["model"], r.gpu = row["gpu"], r.recompute = row["recompute"];
    r.precision = row["precision"], r.verified = row["verified"];
    r.layers = number("layers", 0), r.hidden = number("hidden", 0), r.heads = number("heads", 0);
    r.key_heads = number("kv_heads", r.heads), r.inner = number("ffn", 0), r.vocabulary = number("vocab", 0);
    r.sequence = number("seq", 0), r.gpus = number("n_gpus", 1), r.tp = number("tp", 1), r.pp = number("pp", 1);
    r.stages_per_rank = number("vpp", 0), r.cp = number("cp", 1), r.ep = number("ep", 1), r.zero = number("zero", -1);
    r.dp = number("dp", r.gpus / (r.tp * r.pp * r.cp));
    r.rows = number("micro_batch", 1), r.batch = number("global_batch", 0);
    r.tflops = figure("tflops_per_gpu"), r.mfu = figure("mfu"), r.seconds = figure("step_time_s");
    r.tokens_per_second = figure("tokens_per_s_per_gpu");
    all.push_back(r);
  }
  return all;
}

namespace {

/// The device's name in the planner's table.
std::string device_of(const PublishedRun& run) {
  if (run.gpu.starts_with("A100-40")) return "A100-40";
  if (run.gpu.ends_with("500W")) return "H100-500W";
  return run.gpu.substr(0, run.gpu.find('-'));
}

/// Stages per rank of a run that does not report them: one without a pipeline; otherwise interleaved with two blocks
/// per stage, the usual choice, if each rank has an even number of blocks (the embedding and the head may count as one
/// block each).
std::int64_t stages_per_rank_of(const PublishedRun& run) {
  if (run.stages_per_rank > 0) return run.stages_per_rank;
  if (run.pp == 1) return 1;
  for (const std::int64_t blocks : {run.layers, run.layers + 2})
    if (blocks % (2 * run.pp) == 0) return blocks / (2 * run.pp);
  return 1;
}

/// Devices per node: 8, or 64 in a rack (GB200, GB300), or the largest smaller number that gives whole nodes.
std::int64_t per_node_of(const PublishedRun& run) {
  std::int64_t node = std::min<std::int64_t>(run.gpus, run.gpu.starts_with("GB") ? 64 : 8);
  while (run.gpus % node != 0) --node;
  return node;
}

}  // namespace

std::string left_out(const PublishedRun& run) {
  if (has(run.model, "GPT OSS") && !has(run.precision, "fp")) return "";
  if (run.ep > 1 || has(run.model, "MoE") || has(run.model, "Qwen3_30B") || has(run.model, "Qwen3_235B") ||
      has(run.model, "GPT OSS") || has(run.model, "DeepSeek"))
    return "mixture";
  if (has(run.precision, "fp8") || has(run.precision, "fp4") || has(run.precision, "float8")) return "fp8 or fp4";
  const std::vector<std::string> known = hardware_names();
  if (std::find(known.begin(), known.end(), device_of(run)) == known.end()) return "device not known";
  if (run.layers == 0 || run.hidden == 0 || run.heads == 0 || run.sequence == 0 || run.vocabulary == 0)
    return "no sizes of the model";
  if (run.tp * run.pp * run.cp * run.dp != run.gpus) return "its axes are not its devices";
  if (run.batch == 0) return "no batch";
  if (run.batch % (run.dp * run.rows) != 0) return "batch does not divide";
  return "";
}

namespace {

/// The table has no columns for experts: 128, of which a token uses 4, heads of 64 columns, and a window of 128 tokens
/// in every second layer (openai/gpt-oss-120b, config.json).
Model gpt_oss(const PublishedRun& r) {
  const auto n = [](std::int64_t number) { return Value::of(number); };
  Model model = read_model(Value::make_object({{"model_type", Value::of(std::string("mixtral"))},
                                               {"num_hidden_layers", n(r.layers)},
                                               {"hidden_size", n(r.hidden)},
                                               {"num_attention_heads", n(r.heads)},
                                               {"num_key_value_heads", n(r.key_heads)},
                                               {"head_dim", n(64)},
                                               {"intermediate_size", n(r.inner)},
                                               {"num_local_experts", n(128)},
                                               {"num_experts_per_tok", n(4)},
                                               {"vocab_size", n(r.vocabulary)},
                                               {"max_position_embeddings", n(r.sequence)}}));
  for (std::int64_t layer = 0; layer < r.layers; ++layer) model.windows.push_back(layer % 2 == 0 ? 128 : 0);
  return model;
}

Engine without_trait(Engine e, const std::string& trait) {
  const Engine ours;
  if (trait == "attention") e.attention = ours.attention;
  if (trait == "passes") e.pass_bytes = ours.pass_bytes;
  if (trait == "loss") e.loss_bytes = ours.loss_bytes;
  if (trait == "host") e.pipeline_host_seconds = ours.pipeline_host_seconds;
  if (trait == "slow_nodes") e.slow_nodes = ours.slow_nodes;
  if (trait == "messages")
    e.waits_for_messages = ours.waits_for_messages, e.scattered_messages = ours.scattered_messages;
  if (trait == "sequence_parallel") e.sequence_parallel = ours.sequence_parallel;
  if (trait == "tensor_hidden") e.tensor_hidden = ours.tensor_hidden;
  if (trait == "data_hidden") e.data_hidden = ours.data_hidden;
  return e;
}

}  // namespace

PublishedPrediction predict(const PublishedRun& run, const std::string& without) {
  PublishedPrediction p;
  const bool oss = has(run.model, "GPT OSS"), llama = has(to_lower(run.model), "llama");
  p.model = oss ? gpt_oss(run)
                : model_of_numbers({.layers = run.layers,
                                    .hidden = run.hidden,
                                    .heads = run.heads,
                                    .key_heads = run.key_heads,
                                    .inner = run.inner,
                                    .vocabulary = run.vocabulary,
                                    .positions = run.sequence,
                                    .gpt2 = !llama});
  if (!llama && !oss) p.model.key_heads = run.key_heads;
  if (has(run.model, "Nemotron")) p.model.tied = false;
  p.model.name = run.model;
  p.cluster = parse_cluster(concat(run.gpus, "x", device_of(run), "/", per_node_of(run)));
  if (has(run.source, "BigScience") || has(run.source, "BLOOM")) p.cluster.across.bandwidth = 4 * 12.5e9 / 8;
  p.family = run.source.substr(0, run.source.find(' '));
  Plan& plan = p.plan;
  plan.strategy = run.zero == 3   ? Strategy::full_shard
                  : run.zero == 2 ? Strategy::shard_grad_op
                  : run.zero == 0 ? Strategy::ddp
                                  : Strategy::zero1;
  const bool shards = row_of(plan.strategy).shard_optimizer;
  plan.mesh = layout::parse_mesh(concat("pp=", run.pp, shards ? ",dp_shard=" : ",dp_replicate=", run.dp, ",cp=", run.cp,
                                        ",tp=", run.tp, ",ep=", run.ep, ",etp=1"));
  plan.engine = without_trait(engine_of_source(run), without);
  plan.numerics = without == "numerics" ? numerics_of(Precision::bf16, false) : engine_numerics(plan.engine);
  plan.precision = Precision::bf16;
  plan.sequence = run.sequence;
  plan.rows = run.rows;
  plan.micro_batches = run.batch / (run.dp * run.rows);
  // "selective" means every second block for FSDP users, and the scores for Megatron-LM users.
  const bool by_block = plan.engine.name == EngineName::fsdp2 || plan.engine.name == EngineName::torchtitan;
  plan.recompute = run.recompute == "full" ? 1 : run.recompute == "selective" && by_block ? 2 : 0;
  plan.scores_again = run.recompute == "selective" && !by_block;
  plan.stages_per_rank = stages_per_rank_of(run);
  plan.schedule = plan.stages_per_rank > 1 ? "interleaved_1f1b" : "1f1b";
  plan.sequence_parallel = run.tp > 1 && plan.engine.sequence_parallel;
  const bool whole = run.layers % (run.pp * plan.stages_per_rank) == 0;
  cut_plan(p.model, plan, whole ? 0 : 1, whole ? 0 : 1);
  p.time =
      step_time(p.model, plan, elements_of(p.model, static_cast<int>(run.tp), static_cast<int>(run.ep)), p.cluster, {});

  const double tokens = plan.tokens_per_step(), devices = static_cast<double>(run.gpus);
  const bool hardware =
      has(run.source, "hw-flops") || (!has(run.source, "model-flops") && run.tflops > 0 && run.mfu == 0);
  double flops = model_flops_per_token(p.model, real(run.sequence), has(run.source, "causal attention"));
  if (hardware && plan.recompute == 1) {
    const double l = real(run.layers), h = real(run.hidden), s = real(run.sequence), words = real(run.vocabulary);
    flops = 96 * l * h * h * (1 + s / (6 * h) + words / (16 * l * h));
  }
  std::vector<double> figures;
  if (run.seconds > 0) figures.push_back(run.seconds);
  if (run.tokens_per_second > 0) figures.push_back(tokens / devices / run.tokens_per_second);
  if (run.tflops > 0) figures.push_back(flops * tokens / devices / (run.tflops * 1e12));
  if (run.mfu > 0) figures.push_back(flops * tokens / devices / (run.mfu * p.cluster.device.bf16));
  if (figures.empty()) throw InputError(concat("line ", run.line, ": no figure"));
  p.published = figures[0];
  p.other_figure = figures.size() > 1 ? figures[1] : 0;
  return p;
}

}  // namespace tessera::testing
