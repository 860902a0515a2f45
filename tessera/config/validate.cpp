// What must hold between settings, and what follows from them.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/resolve.h>

#include <algorithm>

namespace tessera::config {
namespace {

class Rules {
 public:
  Rules(Resolved& resolved, bool new_output) : resolved_(resolved), c_(resolved.values), new_output_(new_output) {}

  void check() {
    model();
    data();
    schedule();
    output();
    if (problems_.empty()) return;
    if (problems_.size() == 1) throw InputError(problems_[0]);
    throw InputError(concat(problems_.size(), " problems in the configuration:\n  ", join(problems_, "\n  ")));
  }

 private:
  template <class... Parts>
  void problem(const Parts&... parts) {
    problems_.push_back(concat(parts...));
  }
  bool given(const std::string& name) const { return resolved_.origins.at(name) != "default"; }
  void derived(const std::string& name, const std::string& why) { resolved_.origins[name] = concat("derived (", why, ")"); }

  void model() {
    const ModelConfig& m = c_.model;
    if (m.model_name_or_path.empty() && m.config_name.empty())
      problem("a model is missing: --model_name_or_path FOLDER to start from weights, or --config_name gpt2-tiny (or a config.json) from scratch");
    if (!m.model_name_or_path.empty() && !m.config_name.empty())
      problem("--model_name_or_path and --config_name exclude each other: the folder brings its own config.json");
    if (!m.config_overrides.empty() && m.config_name.empty())
      problem("--config_overrides only applies to --config_name (training from scratch)");
    if (!m.model_name_or_path.empty() && !is_directory(m.model_name_or_path))
      problem("--model_name_or_path: the folder '", m.model_name_or_path, "' does not exist (models are read from disk; nothing is downloaded)");
    if (m.config_name.ends_with(".json") && !path_exists(m.config_name)) problem("--config_name: the file '", m.config_name, "' does not exist");
    if (!m.tokenizer_name.empty() && m.tokenizer_name != "byte" && !path_exists(m.tokenizer_name))
      problem("--tokenizer_name: '", m.tokenizer_name, "' does not exist (expected a folder, a tokenizer.json, or the word byte)");
  }

  void data_file(const std::string& flag, const std::string& path) {
    if (path.empty()) return;
    if (!path_exists(path)) problem(flag, ": the file '", path, "' does not exist");
    else if (is_directory(path)) problem(flag, ": '", path, "' is a folder; expected a .txt or .bin file");
  }

  void data() {
    if (c_.data.train_file.empty()) problem("--train_file is missing: a .txt file, or a .bin with .idx beside it");
    data_file("--train_file", c_.data.train_file);
    data_file("--validation_file", c_.data.validation_file);
    if (!c_.data.validation_file.empty() && given("validation_split_percentage") && c_.data.validation_split_percentage != 0)
      problem("--validation_file and --validation_split_percentage exclude each other");
    if (c_.data.block_size == 1) problem("--block_size 1 scores no position: a block of T tokens scores T-1");
  }

  void schedule() {
    OptimizationConfig& o = c_.optimization;
    if (o.max_steps == 0) problem("--max_steps 0 trains nothing (-1: --num_train_epochs decides)");
    if (o.warmup_steps > 0 && o.warmup_ratio > 0) problem("--warmup_steps and --warmup_ratio exclude each other");
    if (o.max_steps > 0 && o.warmup_steps > o.max_steps)
      problem("--warmup_steps ", o.warmup_steps, " is more than --max_steps ", o.max_steps);
    if (o.optim == "adamw" && given("momentum")) problem("--momentum applies to --optim sgd; AdamW has --adam_beta1");
    if (o.lr_scheduler_type == "constant" && (o.warmup_steps > 0 || o.warmup_ratio > 0))
      problem("--lr_scheduler_type constant has no warm-up: use constant_with_warmup");
  }

  void output() {
    OutputConfig& o = c_.output;
    if (o.output_dir.empty()) problem("--output_dir is missing");
    if (new_output_ && !o.output_dir.empty() && path_exists(o.output_dir)) {
      if (!is_directory(o.output_dir)) problem("--output_dir: '", o.output_dir, "' is a file");
      else if (!o.overwrite_output_dir && o.resume_from_checkpoint.empty() && !list_folder(o.output_dir).empty())
        problem("--output_dir: '", o.output_dir, "' is not empty; give --overwrite_output_dir, --resume_from_checkpoint last, or another folder");
    }
    const std::string& resume = o.resume_from_checkpoint;
    if (!resume.empty() && resume != "true" && resume != "last" && !is_directory(resume))
      problem("--resume_from_checkpoint: the folder '", resume, "' does not exist (or say 'last')");
    if (o.eval_steps > 0 && o.eval_strategy == "no") {
      if (given("eval_strategy")) {
        problem("--eval_strategy no contradicts --eval_steps ", o.eval_steps);
      } else {
        o.eval_strategy = "steps";
        derived("eval_strategy", "eval_steps is given");
      }
    }
    if (o.eval_strategy == "steps" && o.eval_steps == 0) {
      o.eval_steps = o.logging_steps;
      derived("eval_steps", "logging_steps");
    }
    if (o.eval_strategy != "no" && c_.data.validation_file.empty() && c_.data.validation_split_percentage == 0)
      problem("evaluation needs data: --validation_file, or --validation_split_percentage above 0");
  }

  Resolved& resolved_;
  RunConfig& c_;
  bool new_output_;
  std::vector<std::string> problems_;
};

}  // namespace

void validate(Resolved& resolved, bool new_output) { Rules(resolved, new_output).check(); }

}  // namespace tessera::config
