#include <tests/plan/published_runs.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/plan/presets.h>

#include <algorithm>
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

/// Whose program it was, and of when.
Engine engine_of_source(const PublishedRun& run) {
  const std::string& s = run.source;
  Engine e = has(s, "BigScience") || has(s, "BLOOM") ? engine_of(EngineName::deepspeed, 2022)
             : has(s, "SC21")                        ? engine_of(EngineName::megatron, 2021)
             : has(s, "(2020)")                      ? engine_of(EngineName::megatron, 2020)
             : has(s, "MegaScale") ? engine_of(EngineName::megatron, has(run.model, "MegaScale") ? 2024 : 2023)
             : has(s, "FSDP arXiv")    ? engine_of(EngineName::fsdp2, 2022)
             : has(s, "llm-foundry")   ? engine_of(EngineName::fsdp2, 2023)
             : has(s, "fms-fsdp")      ? engine_of(EngineName::fsdp2, 2024)
             : has(s, "torchtitan")    ? engine_of(EngineName::torchtitan, 2024)
             : has(s, "Llama 3 arXiv") ? engine_of(EngineName::megatron, 2024)
             : has(s, "Megatron-LM README") ? engine_of(EngineName::megatron, 2024)
                                       : engine_of(EngineName::megatron, 2025);
  if (has(s, "no comm overlap")) e.tensor_hidden = e.data_hidden = 0;
  if (has(s, "CE fusion")) e.loss_bytes = 8;
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
    r.stages_per_rank = number("vpp", 1), r.cp = number("cp", 1), r.ep = number("ep", 1), r.zero = number("zero", -1);
    r.dp = number("dp", r.gpus / (r.tp * r.pp * r.cp));
    r.rows = number("micro_batch", 1), r.batch = number("global_batch", 0);
    r.tflops = figure("tflops_per_gpu"), r.mfu = figure("mfu"), r.seconds = figure("step_time_s");
    r.tokens_per_second = figure("tokens_per_s_per_gpu");
    all.push_back(r);
  }
  return all;
}

std::string left_out(const PublishedRun& run) {
  if (run.ep > 1 || has(run.model, "MoE") || has(run.model, "Qwen3_30B") || has(run.model, "Qwen3_235B") ||
      has(run.model, "GPT OSS") || has(run.model, "DeepSeek"))
    return "mixture";
  if (has(run.precision, "fp8") || has(run.precision, "fp4") || has(run.precision, "float8")) return "fp8 or fp4";
  if (run.batch == 0) return "no batch";
  if (run.batch % (run.dp * run.rows) != 0) return "batch does not divide";
  return "";
}

PublishedPrediction predict(const PublishedRun& run) {
  PublishedPrediction p;
  const bool llama = has(to_lower(run.model), "llama");
  p.model = model_of_numbers({.layers = run.layers,
                              .hidden = run.hidden,
                              .heads = run.heads,
                              .key_heads = run.key_heads,
                              .inner = run.inner,
                              .vocabulary = run.vocabulary,
                              .positions = run.sequence,
                              .gpt2 = !llama});
  if (!llama) p.model.key_heads = run.key_heads;
  if (has(run.model, "Nemotron")) p.model.tied = false;
  p.model.name = run.model;
  const std::string device = run.gpu.starts_with("A100-40") ? "A100-40"
                             : run.gpu.starts_with("A100")  ? "A100"
                             : run.gpu.ends_with("500W")    ? "H100-500W"
                                                            : run.gpu.substr(0, run.gpu.find('-'));
  p.cluster = parse_cluster(concat(run.gpus, "x", device));
  if (has(run.source, "BigScience") || has(run.source, "BLOOM")) p.cluster.across.bandwidth = 4 * 12.5e9 / 8;
  p.family = run.source.substr(0, run.source.find(' '));
  Plan& plan = p.plan;
  plan.strategy = run.zero == 3 ? Strategy::full_shard : run.zero == 2 ? Strategy::shard_grad_op : run.zero == 0 ? Strategy::ddp : Strategy::zero1;
  const bool shards = row_of(plan.strategy).shard_optimizer;
  plan.mesh = layout::parse_mesh(
      concat("pp=", run.pp, shards ? ",dp_shard=" : ",dp_replicate=", run.dp, ",cp=", run.cp, ",tp=", run.tp));
  plan.engine = engine_of_source(run);
  plan.numerics = engine_numerics(plan.engine);
  plan.precision = Precision::bf16;
  plan.sequence = run.sequence;
  plan.rows = run.rows;
  plan.micro_batches = run.batch / (run.dp * run.rows);
  plan.recompute = run.recompute == "full" ? 1 : run.recompute == "selective" ? 2 : 0;
  plan.stages_per_rank = run.stages_per_rank;
  plan.schedule = plan.stages_per_rank > 1 ? "interleaved_1f1b" : "1f1b";
  plan.sequence_parallel = run.tp > 1 && plan.engine.sequence_parallel;
  const bool whole = run.layers % (run.pp * run.stages_per_rank) == 0;
  cut_plan(p.model, plan, whole ? 0 : 1, whole ? 0 : 1);
  p.time = step_time(p.model, plan, elements_of(p.model, static_cast<int>(run.tp), 1), p.cluster, {});

  const double tokens = plan.tokens_per_step(), devices = static_cast<double>(run.gpus);
  const bool hardware = has(run.source, "hw-flops") || (!has(run.source, "model-flops") && run.tflops > 0 && run.mfu == 0);
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
