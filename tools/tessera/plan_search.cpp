/// \file
/// tessera plan --model M --gpus 64xH100 ...: the best plans for a cluster, their bottlenecks, and why alternatives
/// lose.

#include <tessera/architectures/presets.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/plan/presets.h>
#include <tessera/plan/recorded.h>
#include <tessera/plan/sure.h>
#include <tools/tessera/commands.h>
#include <tools/tessera/plan_output.h>
#include <tools/tessera/tuning/plan_page.h>

#include <algorithm>
#include <cstdio>
#include <thread>

namespace tessera::tool {
namespace {

using plan::Answer;
using plan::Candidate;
using plan::Question;

constexpr const char* search_help =
    "tessera plan --model MODEL --gpus 64xH100 --global_batch ROWS [options]\n\n"
    "Plans the training of a model: all meshes, strategies, schedules, degrees of\n"
    "recomputation and micro-batches that fit, fastest first, with the command that\n"
    "runs it. Nothing is started, no tensors are needed.\n\n"
    "  --model MODEL        a config.json, a folder with one, a known model (--models\n"
    "                       lists them), or a file of tessera::record_step() for\n"
    "                       your own module\n"
    "  --layers N --hidden N [--heads N --key_heads N --inner N --vocabulary N\n"
    "      --experts N --top_k N --expert_inner N --gpt2]\n"
    "                       a model by its dimensions instead\n"
    "  --gpus CLUSTER       64xH100, 16384xH100/8 (devices per node), 2xmine.json;\n"
    "                       `tessera plan hardware` lists known devices\n"
    "  --global_batch ROWS  rows of a step, over all devices\n"
    "  --batch_tokens N     the same in tokens: 4M, 16M\n"
    "  --seq N              tokens of a row [4096, or the model's positions]\n"
    "  --precision WORD     bf16, bf16_whole (parameters and gradients travel in\n"
    "                       bf16) or fp32 [bf16]\n"
    "  --memory GB          memory limit per device [94 % of its memory]\n"
    "  --engine NAME        the training program: tessera, megatron, deepspeed,\n"
    "                       torchtitan or fsdp2 [tessera]\n"
    "  --engine_year N      version of that program in year N [the newest known]\n\n"
    "Fixed instead of chosen:\n"
    "  --tp N --pp N --cp N --ep N   sizes of the axes\n"
    "  --strategy NAME      ddp, zero1, zero2, full_shard, hybrid_shard, ...\n"
    "  --schedule NAME      of the pipeline\n"
    "  --rows N             rows of a micro-batch\n"
    "  --recompute N        recomputes every N-th block; 0: none\n\n"
    "Output:\n"
    "  --max N              plans to show [10]\n"
    "  --explain            memory and time of the best by kind, and the effect of\n"
    "                       changing one setting\n"
    "  --json               prints JSON\n"
    "  --html FILE          writes a page: memory by rank and kind, the pipeline,\n"
    "                       other numbers of devices, cost\n"
    "  --overwrite          replaces an existing FILE\n"
    "  --train_tokens N     tokens to price on the page: 300G, 1T [20 per parameter]\n"
    "  --price DOLLARS      per device and hour, for the page\n"
    "  --threads N          [number of cores; no effect on the answer]\n";

std::int64_t tokens_of(const std::string& text) {
  const std::size_t end = text.find_first_not_of("0123456789.");
  const auto number = parse_real(text.substr(0, end));
  const std::string unit = end == std::string::npos ? "" : to_lower(text.substr(end));
  const double factor = unit.empty() ? 1 : unit == "k" ? 1 << 10 : unit == "m" ? 1 << 20 : 0;
  if (!number || factor == 0 || *number <= 0 || *number * factor > 1e12)
    throw InputError(concat("--batch_tokens ", text, ": expected a number of tokens such as 524288, 512k or 4M"));
  return static_cast<std::int64_t>(*number * factor);
}

class PlanSearch {
 public:
  explicit PlanSearch(const Arguments& arguments)
      : flags_("plan", arguments,
               {"model",        "layers",    "hidden",       "heads",        "key_heads",  "inner",   "vocabulary",
                "positions",    "experts",   "top_k",        "expert_inner", "gpus",       "cluster", "seq",
                "global_batch", "precision", "batch_tokens", "memory",       "tp",         "pp",      "cp",
                "ep",           "strategy",  "schedule",     "rows",         "recompute",  "max",     "threads",
                "html",         "price",     "train_tokens", "engine",       "engine_year"},
               {"explain", "json", "models", "gpt2", "overwrite"}) {}

  int run() {
    if (flags_.has("models")) {
      for (const std::string& name : architectures::published_names())
        std::printf("%-18s %10s parameters\n", name.c_str(),
                    format_count(plan::parameter_count(plan::find_model(name))).c_str());
      return 0;
    }
    const Question question = asked();
    const double price = flags_.real("price", 0), tokens = train_tokens();
    if (!(price >= 0 && price <= 1e6))
      throw InputError(concat("--price ", price, ": expected dollars per device and hour"));
    const auto page = flags_.text("html");
    if (page) flags_.require_new({*page});
    if (!page && (price > 0 || tokens > 0))
      throw InputError("--price and --train_tokens are for the page: --html FILE");
    const Answer answer = search(question);
    if (page && !answer.best.empty()) {
      const std::string command = command_of(question, answer.best.front().plan);
      write_file_atomically(*page, plan_page(question, answer, {.tokens = tokens, .price = price, .command = command}));
      std::fprintf(stderr, "written: %s\n", page->c_str());
    }
    if (flags_.has("json"))
      print_json(question, answer);
    else
      print(question, answer);
    return answer.best.empty() ? 1 : 0;
  }

 private:
  std::int64_t number(const char* name, std::int64_t otherwise, std::int64_t least, std::int64_t most) const {
    const std::int64_t n = flags_.integer(name, otherwise);
    if (flags_.text(name) && (n < least || n > most))
      throw InputError(concat("--", name, " ", n, ": expected a whole number from ", least, " to ", most));
    return n;
  }

  double train_tokens() const {
    const auto text = flags_.text("train_tokens");
    if (!text) return 0;
    const std::size_t end = text->find_first_not_of("0123456789.");
    const auto number = parse_real(text->substr(0, end));
    const std::string unit = end == std::string::npos ? "" : to_lower(text->substr(end));
    const double factor = unit.empty()                 ? 1
                          : unit == "m"                ? 1e6
                          : unit == "g" || unit == "b" ? 1e9
                          : unit == "t"                ? 1e12
                                                       : 0;
    if (!number || !(*number * factor > 0 && *number * factor <= 1e18))
      throw InputError(concat("--train_tokens ", *text, ": expected a number of tokens such as 300G or 1.5T"));
    return *number * factor;
  }

  plan::Model model() const {
    constexpr std::int64_t most = std::int64_t{1} << 24;
    const auto name = flags_.text("model");
    if (name && flags_.text("layers")) throw InputError("--model and --layers both set the model; remove one of them");
    if (name) return plan::find_model(*name);
    if (!flags_.text("layers")) throw InputError("no model: add --model NAME|FILE, or --layers N --hidden N ...");
    return plan::model_of_numbers({.layers = number("layers", 0, 1, 65536),
                                   .hidden = number("hidden", 0, 1, most),
                                   .heads = number("heads", 0, 1, most),
                                   .key_heads = number("key_heads", 0, 1, most),
                                   .inner = number("inner", 0, 1, most),
                                   .vocabulary = number("vocabulary", 0, 1, most),
                                   .positions = number("positions", 0, 1, most),
                                   .experts = number("experts", 0, 1, 65536),
                                   .top_k = number("top_k", 0, 1, 65536),
                                   .expert_inner = number("expert_inner", 0, 1, most),
                                   .gpt2 = flags_.has("gpt2")});
  }

  template <class Word>
  std::optional<Word> word(const char* name) const {
    const auto text = flags_.text(name);
    if (!text) return std::nullopt;
    const auto found = parse_word<Word>(*text);
    if (found) return found;
    const std::vector<std::string>& words = words_of(Word{}).words;
    const auto near = nearest(*text, words);
    throw InputError(concat("--", name, " ", *text, ": expected one of ", join(words),
                            near ? concat("; did you mean ", *near, "?") : ""));
  }

  Question asked() const {
    Question q;
    q.model = model();
    const auto cluster = flags_.text("gpus") ? flags_.text("gpus") : flags_.text("cluster");
    if (!cluster)
      throw InputError(
          "no devices: add --gpus, for example --gpus 64xH100 (tessera plan hardware lists known devices)");
    q.cluster = plan::parse_cluster(*cluster);
    const std::int64_t devices = q.cluster.devices;
    const std::int64_t usual = q.model.recorded ? q.model.positions : std::min<std::int64_t>(4096, q.model.positions);
    q.sequence = number("seq", usual, 1, std::int64_t{1} << 24);
    if (const auto tokens = flags_.text("batch_tokens")) {
      if (flags_.text("global_batch"))
        throw InputError("--batch_tokens and --global_batch both set the batch; remove one of them");
      q.global_batch = std::max<std::int64_t>(1, tokens_of(*tokens) / q.sequence);
    } else {
      flags_.required("global_batch", "rows of a step, or --batch_tokens 4M");
      q.global_batch = number("global_batch", 0, 1, 1 << 24);
    }
    const bool narrow = q.model.recorded ? q.model.recorded->product_bytes < 4 : !q.cluster.on_cpu;
    q.precision = word<plan::Precision>("precision").value_or(narrow ? plan::Precision::bf16 : plan::Precision::fp32);
    if (flags_.text("memory")) {
      const double gb = flags_.real("memory", 0);
      if (!(gb > 0 && gb <= 1e6)) throw InputError(concat("--memory ", gb, ": expected gigabytes per device, above 0"));
      q.memory_limit = gb * 1e9;
    } else {
      q.memory_limit = 0.94 * q.cluster.device.memory;
    }
    q.engine = engine_of_words(flags_.text("engine"), flags_.text("engine_year"));
    const auto axis = [&](const char* name) { return static_cast<int>(number(name, 0, 1, devices)); };
    q.tp = axis("tp"), q.pp = axis("pp"), q.cp = axis("cp"), q.ep = axis("ep");
    for (const auto& [name, size] : {std::pair{"tp", q.tp}, {"pp", q.pp}, {"cp", q.cp}, {"ep", q.ep}})
      if (size > 0 && devices % size != 0)
        throw InputError(concat("--", name, " ", size, " does not divide the ", devices, " devices of ", *cluster));
    q.rows = number("rows", 0, 1, 1 << 20);
    if (flags_.text("recompute")) q.recompute = number("recompute", 0, 0, 65536);
    q.strategy = word<Strategy>("strategy");
    q.schedule = flags_.text("schedule");
    q.keep = static_cast<std::size_t>(number("max", 10, 1, 64));
    q.threads = static_cast<int>(number("threads", std::max(1u, std::thread::hardware_concurrency()), 1, 1024));
    return q;
  }

  void print(const Question& q, const Answer& answer) const {
    const std::string whose = q.engine.name == plan::EngineName::tessera ? "" : ", " + text_of(q.engine);
    std::printf("%s, %s parameters, on %s: %lld rows of %lld tokens a step, %s%s\n", q.model.name.c_str(),
                format_count(plan::parameter_count(q.model)).c_str(), q.cluster.text.c_str(),
                static_cast<long long>(q.global_batch), static_cast<long long>(q.sequence),
                word_of(q.precision).c_str(), whose.c_str());
    std::printf("%s plans in %.2f s; %s do not fit in %s\n\n", format_count(static_cast<double>(answer.points)).c_str(),
                answer.seconds, format_count(static_cast<double>(answer.too_large)).c_str(),
                gigabytes(q.memory_limit).c_str());
    if (answer.best.empty()) return print_nothing_fits(q, answer);
    std::printf("   tokens/s   MFU   step s  memory  plan\n");
    for (const Candidate& c : answer.best) {
      const plan::Plan& p = c.plan;
      std::string settings = concat(p.rows, p.rows == 1 ? " row" : " rows", " x ", p.micro_batches);
      if (p.pp() > 1)
        settings += concat(", ", p.schedule, p.stages_per_rank > 1 ? concat(" v", p.stages_per_rank) : "");
      if (p.recompute == 1) settings += ", recompute";
      if (p.recompute > 1) settings += concat(", recompute 1/", p.recompute);
      std::printf("%11s %4.1f %% %7.3g %7s  %s\n    %s; %s\n", format_count(c.tokens_per_second).c_str(),
                  100 * c.utilization, c.seconds, gigabytes(c.memory.total()).c_str(), text_of(p).c_str(),
                  settings.c_str(), limit_of(q, c).c_str());
    }
    const Candidate& best = answer.best.front();
    const plan::Sureness sure = plan::sureness(q.cluster, q.engine);
    std::printf("\nTimes are accurate within %.3g %% in the median, %.3g %% in nine of ten cases:\n  %s\n",
                100 * sure.median, 100 * sure.most, sure.source.c_str());
    if (answer.equal > 1)
      std::printf("Plans 1 to %zu are equal within that accuracy; the first is chosen for\n  %s\n", answer.equal,
                  answer.decided_by.c_str());
    if (q.engine.name != plan::EngineName::tessera) std::printf("%s\n", against_ours(q, best).c_str());
    if (flags_.has("explain")) {
      std::printf("\nThe best one: %s\n", text_of(best.plan).c_str());
      print_parts(best);
      std::printf("\nChanged in one setting\n");
      for (const plan::Neighbour& n : neighbours(q, best))
        std::printf("  %-27s %s\n", n.change.c_str(), n.verdict.c_str());
      const plan::Goodput good = plan::goodput(q.cluster, 30);
      if (q.cluster.devices > 64)
        std::printf(
            "\n%.1f failures a day: with a checkpoint (30 s) every %.0f min, %.1f %% of the time goes into training\n",
            good.failures_per_day, good.interval_seconds / 60, 100 * good.share);
    }
    std::printf(q.engine.name == plan::EngineName::tessera ? "\nRun it\n" : "\nIn tessera\n");
    for (const std::string& line : run_lines(q, best.plan)) std::printf("  %s\n", line.c_str());
  }

  void print_nothing_fits(const Question& q, const Answer& answer) const {
    const Candidate& c = *answer.smallest;
    std::printf("Nothing fits. The plan that needs least, %s: %s of %s\n", text_of(c.plan).c_str(),
                gigabytes(c.memory.total()).c_str(), gigabytes(q.memory_limit).c_str());
    print_parts(c);
    std::printf("\nMore devices divide the states further; --precision bf16_whole and a shorter --seq need less.\n");
  }

  void print_json(const Question& q, const Answer& answer) const {
    std::vector<Value> plans, others;
    for (const Candidate& c : answer.best) plans.push_back(value_of(c, q));
    if (flags_.has("explain") && !answer.best.empty())
      for (const plan::Neighbour& n : neighbours(q, answer.best.front()))
        others.push_back(Value::make_object({{"change", Value::of(n.change)}, {"verdict", Value::of(n.verdict)}}));
    Value all = Value::make_object({{"model", Value::of(q.model.name)},
                                    {"cluster", Value::of(q.cluster.text)},
                                    {"points", Value::of(static_cast<std::int64_t>(answer.points))},
                                    {"too_large", Value::of(static_cast<std::int64_t>(answer.too_large))},
                                    {"engine", Value::of(word_of(q.engine.name))},
                                    {"engine_year", q.engine.year > 0 ? Value::of(q.engine.year) : Value()},
                                    {"median_error", Value::of(plan::sureness(q.cluster, q.engine).median)},
                                    {"equal", Value::of(static_cast<std::int64_t>(answer.equal))},
                                    {"decided_by", Value::of(answer.decided_by)},
                                    {"memory_limit", Value::of(q.memory_limit)},
                                    {"plans", Value::make_array(std::move(plans))}});
    if (q.engine.name != plan::EngineName::tessera && !answer.best.empty())
      all.set("against_tessera", Value::of(against_ours(q, answer.best.front())));
    if (!others.empty()) all.set("neighbours", Value::make_array(std::move(others)));
    if (answer.smallest) all.set("smallest", value_of(*answer.smallest, q));
    std::printf("%s\n", dump_json(all, 2, 6).c_str());
  }

  config::Flags flags_;
};

}  // namespace

int plan_search_command(const Arguments& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::fputs(search_help, stdout);
    return 0;
  }
  return PlanSearch(arguments).run();
}

int plan_hardware_command(const Arguments& arguments) {
  if (!arguments.empty() && arguments[0] != "--help") {
    std::printf("%s\n", dump_json(hardware_value(plan::parse_cluster(arguments[0])), 2, 6).c_str());
    return 0;
  }
  std::printf("tessera plan hardware NAME prints one as JSON: edit it, and use --gpus 64xFILE.json\n\n");
  std::printf("%-8s %9s %15s %10s %10s %10s\n", "name", "memory", "bf16 TFLOP/s", "GB/s", "node GB/s", "net GB/s");
  for (const std::string& name : plan::hardware_names()) {
    const plan::Cluster c = plan::parse_cluster(name);
    std::printf("%-8s %9s %7.4g x %.2f %10.0f %10.4g %10.4g\n", name.c_str(), gigabytes(c.device.memory).c_str(),
                c.device.bf16 / 1e12, c.device.products, c.device.bandwidth / 1e9, c.inside.bandwidth / 1e9,
                c.across.bandwidth / 1e9);
  }
  return 0;
}

}  // namespace tessera::tool
