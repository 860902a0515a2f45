#include <tessera/config/hf/sharding.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/names/pattern.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/resolved.h>
#include <tessera/config/hf/fsdp_config.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <sstream>

namespace tessera::config {
namespace {

/// The value that one source gives to a setting.
template <class T>
struct Claim {
  T value;
  std::string source;  ///< "--fsdp full_shard", "fsdp.json:3 sharding_strategy 2"
};

class Sharding {
 public:
  Sharding(Resolved& resolved, Problems& problems)
      : resolved_(resolved), sharding_(resolved.values.sharding), problems_(problems) {}

  void resolve() {
    if (!config_is_off()) read_file();
    read_words();
    const std::string automatic = take_automatic();
    if (!is_default("zero_stage"))
      strategies_.push_back(
          {zero_strategy(sharding_.zero_stage), concat(source("zero_stage"), " ", sharding_.zero_stage)});
    if (!is_default("strategy"))
      strategies_.push_back({sharding_.strategy, concat(source("strategy"), " ", sharding_.strategy)});
    if (!is_default("cpu_offload"))
      offloads_.push_back({sharding_.cpu_offload, concat(source("cpu_offload"), " ", sharding_.cpu_offload)});

    if (!automatic.empty() && !strategies_.empty() && problems_.doubtful.insert("strategy").second) {
      std::vector<std::string> sources = {automatic};
      for (const Claim<Strategy>& claim : strategies_) sources.push_back(claim.source);
      problems_.lines.push_back(concat(join(sources, ", "),
                                       ": either the planner or you choose the strategy; keep one of them (with "
                                       "--auto_strategy and a strategy, the planner chooses the rest)"));
    }
    settle("strategy", sharding_.strategy, strategies_, "strategies", same_strategy);
    settle("cpu_offload", sharding_.cpu_offload, offloads_, "places", std::equal_to{});
    offload_whole_parameters();
    if (strategies_.empty() && !sharding_.fsdp_config.empty() && !config_is_off_ && !doubtful("fsdp_config") &&
        !doubtful("fsdp") && !doubtful("strategy"))
      derive("strategy", sharding_.strategy, Strategy::full_shard, "fsdp_config is given");
    wrap();
    bucket_size();
    if (sharding_.grad_compression == "no") sharding_.grad_compression = "none";  // accelerate's name for DDP's hooks
    if (sharding_.grad_compression.starts_with("power_sgd")) sharding_.grad_compression.erase(5, 1);
  }

 private:
  const Origin& origin(const char* name) const { return resolved_.origin(name); }
  /// The setting's origin, with its name unless it is obvious: "--zero_stage", "ds.json:4 zero_stage".
  std::string source(const char* name) const {
    const Origin& from = origin(name);
    return from.is_flag() || from.kind == Origin::Kind::environment ? from.str() : concat(from, " ", name);
  }
  bool is_default(const char* name) const { return resolved_.is_default(name); }
  std::optional<Compat> compat() const {
    return is_default("compat") ? std::nullopt : std::optional(resolved_.values.files.compat);
  }
  bool doubtful(const char* name) const { return problems_.doubtful.contains(name); }
  template <class T>
  void derive(const char* name, T& place, T value, const std::string& why) {
    place = std::move(value);
    resolved_.origins[name] = Origin::derived(why);
  }

  /// Replaces the word `auto` by the setting auto_strategy. Returns its origin, or "".
  std::string take_automatic() {
    if (is_default("strategy") || static_cast<std::size_t>(sharding_.strategy) < words_of(Strategy{}).words.size())
      return "";
    const std::string from = concat(source("strategy"), " auto");
    sharding_.strategy = Strategy::ddp;
    sharding_.auto_strategy = true;
    resolved_.origins["auto_strategy"] = origin("strategy");
    resolved_.origins.erase("strategy");
    return from;
  }

  /// Whether fsdp_config has no effect: fsdp is false, or it is absent and --compat selects transformers' rules.
  bool config_is_off() {
    if (sharding_.fsdp_config.empty()) return false;
    const auto flag = parse_bool(trim(sharding_.fsdp));
    const bool strict =
        !is_default("compat") && is_default("fsdp") && is_default("strategy") && is_default("zero_stage");
    if (flag != false && !strict) return false;
    Problems unheard;
    if (flag != false || !read_fsdp_config(sharding_.fsdp_config, unheard).settings.empty())
      resolved_.notes.push_back(concat(
          origin("fsdp_config"), " has no effect: ",
          flag == false ? concat(origin("fsdp"), " is ", trim(sharding_.fsdp))
                        : concat("--fsdp is not given (", origin("compat"), " ", resolved_.values.files.compat, ")")));
    return config_is_off_ = true;
  }

  /// A flag or variable of the same name overrides the file; the strategy has many names, which must agree.
  void read_file() {
    if (sharding_.fsdp_config.empty()) return;
    const std::size_t before = problems_.lines.size();
    Translation file = read_fsdp_config(sharding_.fsdp_config, problems_, compat());
    if (problems_.lines.size() > before) problems_.doubtful.insert("fsdp_config");
    for (std::string& note : file.notes) resolved_.notes.push_back(std::move(note));
    for (const FileSetting& setting : file.settings) {
      const Field& field = *find_field(setting.name);
      const std::string source = concat(file_and_line(setting.where), " ", setting.key, " ", setting.text);
      if (setting.name == "strategy") {
        RunConfig scratch;
        field.set(scratch, setting.text);
        strategies_.push_back({scratch.sharding.strategy, source});
        continue;
      }
      if (is_default(setting.name.c_str())) {
        field.set(resolved_.values, setting.text);
        resolved_.origins[setting.name] = Origin::at(setting.where);
      } else if (origin(setting.name.c_str()).kind == Origin::Kind::file) {
        must_agree(field, setting, source);
      }
    }
  }

  /// Two files that set the same setting have equal precedence.
  void must_agree(const Field& field, const FileSetting& setting, const std::string& source) {
    RunConfig theirs;
    field.set(theirs, setting.text);
    const Value here = field.get(resolved_.values);
    if (dump_json(field.get(theirs)) == dump_json(here) || doubtful(setting.name.c_str())) return;
    problems_.doubtful.insert(setting.name);
    problems_.lines.push_back(concat(source, " contradicts ", origin(setting.name.c_str()), " ", setting.name, " ",
                                     as_text(here, false).value_or(dump_json(here)), "; keep one of them"));
  }

  void read_words() {
    std::string text = to_lower(sharding_.fsdp);
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == ',' || c == '[' || c == ']' || c == '\'' || c == '"'; },
        ' ');
    std::vector<std::string> words;
    for (std::istringstream in(text); in >> text;) words.push_back(text);
    bool offload = false;
    for (std::size_t i = 0; i < words.size(); ++i) {
      std::string word = words[i];
      // Hugging Face's guide writes "full shard"
      if (i + 1 < words.size() && known(concat(word, "_", words[i + 1]))) word = concat(word, "_", words[++i]);
      const std::string from = concat(source("fsdp"), " ", word);
      if (word == "true" || word == "false" || (words.size() == 1 && parse_bool(word))) {  // transformers v5: a boolean
        if (parse_bool(word) == false) continue;
        word = "full_shard";
      }
      if (const auto strategy = strategy_of_fsdp(word)) {
        strategies_.push_back({*strategy, from});
      } else if (word == "offload") {
        offload = true;
        offloads_.push_back({Offload::all, from});
      } else if (word == "auto_wrap") {
        auto_wrap_ = from;
      } else if (word == "size_based_auto_wrap") {
        wraps_.push_back({AutoWrap::size_based, from});
      } else if (word == "transformer_based_auto_wrap") {
        wraps_.push_back({AutoWrap::transformer_based, from});
      } else {
        const auto near = nearest(word, words_of_fsdp());
        problems_.doubtful.insert({"fsdp", "strategy"});
        problems_.lines.push_back(concat(source("fsdp"), ": unknown word '", word, "'",
                                         near ? concat("; did you mean ", *near, "?") : "", " (the words are ",
                                         join(words_of_fsdp()), ")"));
      }
    }
    if (!words.empty() && !strategies_.empty() && auto_wrap_.empty() && wraps_.empty() && compat() == Compat::v4 &&
        is_default("auto_wrap_policy"))
      resolved_.notes.push_back(concat(origin("fsdp"),
                                       ": blocks are wrapped even without the word auto_wrap, unlike in transformers "
                                       "4; --auto_wrap_policy no_wrap turns that off"));
    if (offload && strategies_.empty() && !doubtful("fsdp") && problems_.doubtful.insert("cpu_offload").second)
      problems_.lines.push_back(
          concat(source("fsdp"), " offload is not a strategy: write --fsdp \"full_shard offload\""));
  }

  /// The strategy that a word of --fsdp names; nullopt for stages and numbers.
  static std::optional<Strategy> strategy_of_fsdp(const std::string& word) {
    return known(word) || word == "ddp" ? parse_word<Strategy>(word) : std::nullopt;
  }

  static const std::vector<std::string>& words_of_fsdp() {
    static const std::vector<std::string> words = {
        "full_shard", "shard_grad_op", "hybrid_shard",         "hybrid_shard_zero2",
        "no_shard",   "auto_wrap",     "size_based_auto_wrap", "transformer_based_auto_wrap",
        "offload"};
    return words;
  }
  static bool known(const std::string& word) {
    return std::find(words_of_fsdp().begin(), words_of_fsdp().end(), word) != words_of_fsdp().end();
  }

  /// Checks that all claims agree. If the setting itself was not given, derives it from the first claim.
  template <class T, class Same>
  void settle(const char* name, T& place, const std::vector<Claim<T>>& claims, const char* what, Same same) {
    if (claims.empty()) return;
    const bool run_on_all_ranks = std::all_of(
        claims.begin(), claims.end(), [&](const Claim<T>& claim) { return same(claim.value, claims.front().value); });
    if (!run_on_all_ranks) {
      std::vector<std::string> sources;
      for (const Claim<T>& claim : claims) sources.push_back(claim.source);
      problems_.doubtful.insert(name);
      problems_.lines.push_back(concat(join(sources, ", "), ": these specify different ", what, "; keep one of them"));
      return;
    }
    if (is_default(name)) derive(name, place, claims.front().value, claims.front().source);
  }

  /// FSDP also offloads the parameters of NO_SHARD. Here whole parameters stay in memory, and only their optimizer
  /// states are offloaded.
  void offload_whole_parameters() {
    if (offloads_.empty() || strategies_.empty()) return;
    const Origin from = origin("cpu_offload");
    const bool of_fsdp = from.kind == Origin::Kind::file || from.kind == Origin::Kind::derived ||
                         offloads_.front().source.starts_with("--fsdp");
    if (sharding_.cpu_offload != Offload::all || sharding_.strategy != Strategy::ddp || !of_fsdp ||
        !resolved_.values.files.deepspeed.empty())
      return;
    resolved_.notes.push_back(concat(offloads_.front().source, ": NO_SHARD (", strategies_.front().source,
                                     ") keeps whole parameters in memory: only the optimizer's states and its step are "
                                     "offloaded; FULL_SHARD shards and offloads parameters"));
    derive("cpu_offload", sharding_.cpu_offload, Offload::optimizer,
           concat(offloads_.front().source, " with NO_SHARD"));
  }

  /// The given settings determine the kind of policy; two kinds contradict unless the kind itself is given.
  void wrap() {
    const bool kind_given = !is_default("auto_wrap_policy");
    std::vector<Claim<AutoWrap>> claims = wraps_;
    const auto given = [&](const char* name, AutoWrap kind) {
      const Origin& from = origin(name);
      if (!is_default(name)) claims.push_back({kind, from.is_flag() ? from.str() : concat(from, " ", name)});
    };
    if (kind_given) {
      claims.push_back(
          {sharding_.auto_wrap_policy, concat(source("auto_wrap_policy"), " ", sharding_.auto_wrap_policy)});
      if (!auto_wrap_.empty() && sharding_.auto_wrap_policy == AutoWrap::none)
        claims.push_back({AutoWrap::transformer_based, auto_wrap_});
    } else {
      given("transformer_layer_cls_to_wrap", AutoWrap::transformer_based);
      const bool sized = sharding_.min_num_params > 0 && !is_default("min_num_params");
      if (sized && is_default("transformer_layer_cls_to_wrap"))
        given("min_num_params", AutoWrap::size_based);
      else if (sized)
        classes_beat_size();
      given("wrap_pattern", AutoWrap::regex);
    }
    settle("auto_wrap_policy", sharding_.auto_wrap_policy, claims, "wrap policies", std::equal_to{});
  }

  /// Hugging Face's distributed-training guide sets both. transformers 4 refuses that; 5 wraps the classes, and so do
  /// we.
  void classes_beat_size() {
    if (!origin("min_num_params").is_flag())  // otherwise unused_settings reports it
      resolved_.notes.push_back(concat(origin("min_num_params"), ": min_num_params ", sharding_.min_num_params,
                                       " has no effect: transformer_layer_cls_to_wrap (",
                                       origin("transformer_layer_cls_to_wrap"), ") selects the blocks"));
  }

  /// Compares bucket sizes: DeepSpeed counts elements, DDP MiB.
  void bucket_size() {
    if (is_default("reduce_bucket_size") || doubtful("reduce_bucket_size")) return;
    const double mib = static_cast<double>(sharding_.reduce_bucket_size) * 4 / (1 << 20);
    ParallelConfig& parallel = resolved_.values.parallel;
    if (is_default("ddp_bucket_cap_mb")) {
      parallel.ddp_bucket_cap_mb = mib;
      resolved_.origins["ddp_bucket_cap_mb"] =
          Origin::derived(concat(source("reduce_bucket_size"), " ", sharding_.reduce_bucket_size));
    } else if (std::abs(parallel.ddp_bucket_cap_mb - mib) > 1e-3 * mib && !doubtful("ddp_bucket_cap_mb")) {
      problems_.lines.push_back(concat(source("reduce_bucket_size"), " ", sharding_.reduce_bucket_size, " (",
                                       format_real(mib, 4), " MiB of fp32), ", origin("ddp_bucket_cap_mb"), " ",
                                       format_real(parallel.ddp_bucket_cap_mb),
                                       ": these specify different bucket sizes; keep one of them"));
    }
  }

  Resolved& resolved_;
  ShardingConfig& sharding_;
  Problems& problems_;
  std::vector<Claim<Strategy>> strategies_;
  std::vector<Claim<Offload>> offloads_;
  std::vector<Claim<AutoWrap>> wraps_;
  std::string auto_wrap_;
  bool config_is_off_ = false;
};

}  // namespace

void resolve_sharding(Resolved& resolved, Problems& problems) { Sharding(resolved, problems).resolve(); }

layout::WrapPolicy wrap_policy(const ShardingConfig& config, const std::vector<std::string>& model_blocks,
                               const std::vector<std::string>& modules) {
  using Kind = layout::WrapPolicy::Kind;
  layout::WrapPolicy policy;
  if (config.auto_wrap_policy == AutoWrap::size_based) {
    policy.kind = config.min_num_params > 0 ? Kind::by_size : Kind::none;
    policy.min_num_params = config.min_num_params;
  } else if (config.auto_wrap_policy == AutoWrap::regex) {
    policy.kind = Kind::by_regex;
    policy.pattern = config.wrap_pattern;
  } else if (config.auto_wrap_policy == AutoWrap::transformer_based) {
    policy.classes = model_blocks;
    if (!config.transformer_layer_cls_to_wrap.empty()) {
      policy.classes.clear();
      for (const std::string& name : split(config.transformer_layer_cls_to_wrap, ','))
        if (!trim(name).empty()) policy.classes.push_back(trim(name));
    }
    policy.kind = policy.classes.empty() ? Kind::none : Kind::by_class;
  }
  if (!config.ignored_modules.empty()) {
    const Pattern pattern("--ignored_modules", config.ignored_modules);
    for (const std::string& name : modules)
      if (pattern.fits(name)) policy.ignored_modules.push_back(name);
    if (policy.ignored_modules.empty())
      throw InputError(concat("--ignored_modules '", config.ignored_modules,
                              "' does not match any module name (a whole name such as ",
                              modules.empty() ? std::string("h.0.mlp") : modules.back(), ")"));
  }
  return policy;
}

}  // namespace tessera::config
