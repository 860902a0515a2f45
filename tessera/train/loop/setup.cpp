#include <tessera/train/loop/setup.h>

#include <tessera/train/loop/compiled_run.h>

#include <ATen/Parallel.h>

#include <sched.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>

#include <tessera/architectures/config_value.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/peft.h>
#include <tessera/checkpoint/weights_glance.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/long_phase.h>
#include <tessera/config/model/validate_model.h>
#include <tessera/config/model/vocabulary.h>
#include <tessera/config/resolve/validate_evaluations.h>
#include <tessera/config/rules/compression.h>
#include <tessera/config/rules/output_folder.h>
#include <tessera/corpus/data_list.h>
#include <tessera/models/frozen/quantize.h>
#include <tessera/models/load.h>
#include <tessera/models/vision/compose.h>
#include <tessera/text/companion_files.h>
#include <tessera/text/tokenizer.h>
#include <tessera/text/tokenizer_files.h>
#include <tessera/train/core/best_model.h>
#include <tessera/train/core/precision.h>
#include <tessera/train/loop/parallelize.h>
#include <tessera/train/loop/restart.h>
#include <tessera/train/loop/task.h>
#include <tessera/train/reporting/run_files.h>

namespace tessera::train {
namespace {

void check_vocabulary(const text::Tokenizer& tokenizer, const std::string& place, const models::LanguageModel& model) {
  if (tokenizer.vocab_size() <= model.vocab_size()) return;
  throw InputError(concat("the tokenizer '", place, "' has ", tokenizer.vocab_size(),
                          " tokens but the model's embedding has ", model.vocab_size(),
                          " rows: use the tokenizer of the model or its adapters; merge the adapters first "
                          "(--lora_merge) to add rows to the embedding"));
}

void say_rows_added(const text::Tokenizer& tokenizer, const std::string& place, std::int64_t before,
                    const ModelConfig& model) {
  const std::int64_t tokens = tokenizer.vocab_size();
  const bool loaded = !model.model_name_or_path.empty();
  log::info("the tokenizer '", place, "' has ", tokens, " tokens, but the model's embedding has ", before,
            " rows: ", tokens - before, tokens - before == 1 ? " row is added" : " rows are added",
            !loaded ? ""
            : model.lora_r == 0
                ? ", initialized to the mean of the existing rows"
                : ", initialized to the mean of the existing rows, and embeddings and head are saved with the "
                  "adapters; to train them as well, use --lora_modules_to_save embed_tokens,lm_head");
}

/// Loads the tokenizer and determines whether it matches the data (Setup::tokenizer_fits_data). Stores its location in
/// `place`.
std::shared_ptr<const text::Tokenizer> tokenizer_for(const RunConfig& config, bool speaks, std::string& place,
                                                     bool& fits_data) {
  place = tokenizer_place(config.model);
  const bool only_tokens = config.data.mock_data || corpus::holds_tokens_only(config.data.train_file);
  std::shared_ptr<const text::Tokenizer> tokenizer;
  try {
    tokenizer = text::load_tokenizer(place);
  } catch (const InputError& error) {
    if (!only_tokens || !config.model.tokenizer_name.empty()) throw;
    if (speaks)
      log::warning(
          "the model's tokenizer cannot be read, so none is saved and no sample is shown (training from "
          "tokens does not need one): ",
          error.what());
    place = "byte";
    tokenizer = text::load_tokenizer(place);
  }
  fits_data = !only_tokens || place != "byte" || config.model.tokenizer_name == "byte";
  return text::with_companion_files(std::move(tokenizer), place, config.data.chat_template);
}

bool lies_in(const std::string& path, const std::string& folder) {
  const auto inner = std::filesystem::weakly_canonical(path), outer = std::filesystem::weakly_canonical(folder);
  const auto [rest, unused] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return rest == outer.end();
}

/// Warns if adapters have at least as many parameters as the weights they adapt.
void warn_of_large_rank(const models::LanguageModel& model) {
  const auto state = models::lora_state(model);  // pairs of A [r, in] and B [out, r]
  for (std::size_t i = 0; i + 1 < state.size(); i += 2) {
    const std::int64_t r = state[i].second.size(0), in = state[i].second.size(1), out = state[i + 1].second.size(0);
    if (r < std::min(in, out)) continue;
    log::warning("--lora_r ", r, " is not below the sides of a weight it adapts (", state[i].first, ": ", in, " x ",
                 out, "): such adapters are larger than the weight and not low-rank");
    return;
  }
}

/// Freezes the model and adds adapters if the configuration asks for them; the adapters of an adapter folder are
/// already loaded.
std::optional<models::LoraConfig> set_up_adapters(models::LanguageModel& model, const RunConfig& config,
                                                  std::int64_t rank, bool rows_added) {
  const std::string& folder = config.model.model_name_or_path;
  const bool loaded = !folder.empty() && checkpoint::is_adapter_folder(folder);
  if (config.model.lora_r == 0 && !loaded) return std::nullopt;
  models::LoraConfig lora;
  if (loaded) {
    if (config.model.lora_r > 0)
      throw InputError(
          concat("--lora_r ", config.model.lora_r, ": ", folder,
                 " already contains adapters, which this run continues to train: remove --lora_r, or start "
                 "from a merged model (--lora_merge)"));
    lora = models::loaded_lora_config(model, folder);
  } else {
    lora = models::lora_config(config.model);
    lora.base_model = absolute_path(folder);
    lora.composition = models::describe_composition(model.hf_config(), config.model);
    lora = models::apply_lora(model, std::move(lora), static_cast<std::uint64_t>(config.optimization.seed));
    if (rows_added) models::keep_embeddings(model, lora);
    if (rank == 0) warn_of_large_rank(model);
  }
  if (lies_in(lora.base_model, config.output.output_dir))
    throw InputError(concat("--output_dir ", config.output.output_dir, " contains the base model (", lora.base_model,
                            "), which the adapters still need: choose another folder"));
  return lora;
}

/// Throws InputError if --mm_projector_lr has no parameters to act on.
void check_projector_rate(const models::LanguageModel& model, const OptimizationConfig& config) {
  if (config.mm_projector_lr < 0) return;
  for (const auto& item : model.named_parameters())
    if (models::is_of_projector(item.key()) && item.value().requires_grad()) return;
  throw InputError(
      "--mm_projector_lr: this run does not train a projector: remove it, or train one (--vision_tower; for a model "
      "that "
      "already has one, in addition to adapters: --lora_modules_to_save multi_modal_projector)");
}

/// Whether each rank holds and reads only its part of the weights. (On devices other than the CPU the model is first
/// built whole.)
bool keeps_parts_only(const RunConfig& config, const comm::World& world, const RunGroups& groups) {
  return groups.tensor_ranks() == 1 && world.size() > 1 && world.device().is_cpu() &&
         row_of(config.sharding.strategy).shard_parameters && config.sharding.cpu_ram_efficient_loading;
}

void check_checkpoint_kind(const Setup& setup) {
  const std::string& folder = setup.resume_folder;
  const bool adapters = checkpoint::is_adapter_folder(folder);
  if (setup.lora && !adapters)
    throw InputError(concat("--resume_from_checkpoint ", folder,
                            ": it is a checkpoint of a run that trained all weights; remove --lora_r"));
  if (!setup.lora && adapters)
    throw InputError(concat("--resume_from_checkpoint ", folder,
                            ": it contains LoRA adapters, but this run trains all "
                            "weights: set --lora_r and --lora_alpha as in the first run"));
}

/// Rows of an epoch; for a stream, whose length is unknown, the rows of the whole run (as in transformers).
std::int64_t rows_of_epoch(const Setup& setup) {
  if (!setup.datasets.stream) return setup.datasets.train->size();
  const OptimizationConfig& o = setup.config.optimization;
  if (o.max_steps <= 0) throw InputError("--streaming needs --max_steps: the number of steps in an epoch is unknown");
  return o.max_steps * setup.groups.data.size() * setup.devices() * o.per_device_train_batch_size *
         o.gradient_accumulation_steps;
}

std::string existing_ancestor(std::string path) {
  while (!path_exists(path)) {
    const std::size_t slash = path.find_last_of('/');
    path = slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
  }
  return path;
}

/// Number of tokens of each sample of the run, for --tokens_per_batch.
SampleLength lengths_in_order(const Setup& setup) {
  const OptimizationConfig& o = setup.config.optimization;
  if (o.tokens_per_batch == 0) return {};
  const auto rows = setup.datasets.train;
  const std::int64_t nominal = o.per_device_train_batch_size * o.gradient_accumulation_steps * setup.groups.data.size();
  const data::Sampler order(setup.config.data.train_sampling_strategy, *rows, sampling_seed(setup.config), nominal,
                            o.per_device_train_batch_size);
  return [rows, order](std::int64_t sample) { return rows->length(order(sample)); };
}

/// The coefficient c of attention's quadratic cost: a row of n tokens costs n + c n^2.
double attention_share(const models::LanguageModel& model) {
  const double linear = model.flops_per_token(0);
  return linear > 0 ? (model.flops_per_token(1024) - linear) / 1024 / linear : 0;
}

/// Also advances the heartbeat while this process or another one tokenizes, so that the watchdog sees progress.
data::ReadProgress heard_by_watchers(data::ReadProgress progress) {
  return [progress = std::move(progress), last = std::uint64_t{0}](const std::string& path, std::uint64_t done,
                                                                   std::uint64_t of) mutable {
    if (done != std::exchange(last, done)) comm::heartbeat().advance();
    progress(path, done, of);
  };
}

/// The facts behind this run's numbers, to be compared when it is resumed.
RunBasis basis_of(const Setup& setup, const comm::World& world) {
  return {.processes = world.size(),
          .rows_per_step = setup.plan.rows_per_step(),
          .training_data = setup.datasets.train_contents,
          .validation_data = setup.datasets.validation_contents,
          // Only rank 0 compares and saves, so other ranks need not read the base model.
          .base_model = setup.lora && !setup.config.model.model_name_or_path.empty() && world.rank() == 0
                            ? checkpoint::describe_weights(setup.lora->base_model)
                            : ""};
}

/// The layers of a folder that the model starts with (--compression_training, layer_reduction); empty: all.
std::optional<models::BlockChoice> chosen_layers(const OptimizationConfig& config) {
  const config::Compression settings = config::parse_compression(config.compression_training);
  if (!settings.layers) return std::nullopt;
  return models::BlockChoice{.prefix = settings.layers->module_name_prefix,
                             .blocks = settings.layers->teacher_layer,
                             .others = settings.layers->other_module_name};
}

/// How the model gets its weights.
struct ModelSource {
  std::string tokenizer_place;
  std::int64_t rows_before = 0;                ///< embedding rows before more are added; 0: none are added
  std::optional<models::BlockChoice> layers;   ///< layers that the model starts with; empty: all layers of the folder
  std::optional<nn::QuantizedForm> quantized;  ///< weights are read and quantized one by one
  bool parts_only = false;                     ///< each rank reads its parts of the weights
  bool cut_later = false;                      ///< cut parameters get their memory one by one when they are cut
  bool few_layers = false;                     ///< each rank keeps some of the layers, or some of their experts
  bool deferred = false;                       ///< the model has no memory for its parameters yet
  std::string weights_folder;  ///< folder with weights still to read; empty: already loaded, or set by initializers

  const models::BlockChoice* choice() const { return layers ? &*layers : nullptr; }
};

Setup begin_setup(const RunConfig& config, const RunGroups& groups, const Start& start) {
  Setup setup;
  setup.config = config;
  setup.groups = groups;
  setup.resume_folder = start.checkpoint;
  setup.resume_sums = start.sums;
  if (start.overwrite) setup.config.output.overwrite_output_dir = true;
  if (config.data.train_file.empty() && !config.data.mock_data)
    throw InputError("--train_file is missing: set it to files of text, examples or tokens");
  return setup;
}

ModelSource source_of(const Setup& setup, const comm::World& world) {
  const RunConfig& config = setup.config;
  ModelSource source;
  // A model composed of several folders is read whole by every rank.
  const bool composed = models::is_composed(config.model);
  source.parts_only = !composed && keeps_parts_only(config, world, setup.groups);
  source.cut_later = setup.groups.tensor_ranks() > 1 && world.device().is_cpu();
  source.quantized = models::quantized_form(config.model);
  source.layers = chosen_layers(config.optimization);
  source.few_layers = setup.groups.pipeline_ranks() > 1 || setup.groups.expert_ranks() > 1;
  source.deferred = !composed && (source.parts_only || source.few_layers || source.cut_later || source.quantized);
  return source;
}

/// Builds the tokenizer and the whole model, with adapters if they are trained.
ModelSource build_model(Setup& setup, const comm::World& world) {
  const RunConfig& config = setup.config;
  ModelSource source = source_of(setup, world);
  const auto seed = static_cast<std::uint64_t>(config.optimization.seed);
  const bool drops = !config.optimization.disable_dropout;
  setup.tokenizer = tokenizer_for(config, world.rank() == 0, source.tokenizer_place, setup.tokenizer_fits_data);
  Value with_dropout;
  const models::ConfigEdit edit = [&, drops, task = task_edit(config.data)](Value json) {
    json = task(std::move(json));
    const std::int64_t rows = config::vocabulary_of(json), tokens = setup.tokenizer->vocab_size();
    if (setup.tokenizer_fits_data && rows > 0 && rows < tokens) {
      source.rows_before = rows;
      json = config::with_vocabulary(std::move(json), tokens);
    }
    if (drops) return json;
    with_dropout = json;
    return without_dropout(std::move(json));
  };
  setup.model = source.deferred
                    ? models::load_model_deferred(config.model, seed, source.weights_folder, edit, source.choice())
                    : models::load_language_model(config.model, seed, edit, source.choice());
  setup.saved_config =
      with_dropout.is_null() ? setup.model->hf_config() : with_dropout_of(setup.model->hf_config(), with_dropout);
  models::choose_trained_parts(*setup.model, config.model);
  // set up on the whole model; each rank keeps its own part later
  setup.lora = set_up_adapters(*setup.model, config, world.rank(), source.rows_before > 0);
  if (const std::string& base = setup.lora ? setup.lora->base_model : config.model.model_name_or_path; !base.empty())
    if (const std::string file = path_join(base, checkpoint::kGenerationConfigFile); path_exists(file))
      setup.generation_config = read_file(file);
  if (!drops)
    for (const auto& module : setup.model->modules())
      if (auto* linear = dynamic_cast<models::Linear*>(module.get())) linear->lora_dropout = 0;
  check_projector_rate(*setup.model, config.optimization);
  setup.model->set_label_smoothing(config.optimization.label_smoothing_factor);
  setup.model->set_embedding_noise(config.optimization.neftune_noise_alpha);
  return source;
}

/// Throws unless the model has the metric that the settings name.
void check_metric(Setup& setup, const comm::World& world) {
  const RunConfig& config = setup.config;
  const std::string why = why_no_metric(config.output.metric_for_best_model, setup.model->num_labels() > 0);
  if (why.empty()) return;
  if (!config::what_follows_evaluations(config).empty()) throw InputError(why);
  if (world.rank() == 0) log::warning(why, "; nothing depends on it, so it has no effect");
  setup.config.output.metric_for_best_model.clear();
}

void check_model(Setup& setup, const ModelSource& source, const comm::World& world) {
  check_metric(setup, world);
  setup.block_size = config::choose_block_size(setup.config.data, setup.model->max_positions());
  check_model_fits(setup.groups, setup.config, *setup.model, setup.block_size);
  if (setup.tokenizer_fits_data) check_vocabulary(*setup.tokenizer, source.tokenizer_place, *setup.model);
  if (source.rows_before > 0)
    say_rows_added(*setup.tokenizer, source.tokenizer_place, source.rows_before, setup.config.model);
}

void open_data(Setup& setup, const comm::World& world) {
  const RunConfig& config = setup.config;
  std::optional<comm::LongPhase> tokens(std::in_place, "making tokens");
  const bool want_validation =
      config.output.eval_strategy != Interval::no || config.output.do_eval || !config.data.validation_file.empty();
  setup.datasets =
      open_task_datasets(config, *setup.model, setup.tokenizer, setup.block_size, want_validation,
                         world.rank() == 0 ? heard_by_watchers(data::logged_progress()) : data::ReadProgress());
  tokens.reset();
  if (world.rank() != 0) return;
  for (const std::string& warning : setup.datasets.warnings) log::warning(warning);
  for (const std::string& note : setup.datasets.notes) log::info(note);
}

void note_numerics(const Setup& setup, const comm::World& world) {
  if (world.rank() != 0) return;
  if (architectures::flag(setup.model->hf_config(), "use_mup", false))
    log::info(
        "use_mup: the factors of scores, embeddings and logits are stored in the model's config.json, and transformers "
        "ignores them: it computes different logits from this model's folder");
  if (const std::string slow = precision_warning(setup.config, world.device().type()); !slow.empty())
    log::warning(slow);
}

/// Hands the features their state from the checkpoint.
void begin_features(Setup& setup, const comm::World& world) {
  if (!setup.resume_folder.empty()) {
    setup.resume = checkpoint::read_run_state(setup.resume_folder);
    check_checkpoint_kind(setup);
  }
  RunBegin begin{setup.resume ? &*setup.resume : nullptr, setup.resume_folder, world, setup.datasets, setup.first_rows};
  setup.features.each(&RunFeature::begin_run, begin);
}

/// Reads the weights, or records where each rank reads its own.
void load_weights(Setup& setup, ModelSource& source, const comm::World& world) {
  const std::string& folder = setup.config.model.model_name_or_path;
  std::string adapters =  // folder to read them from
      source.deferred && !folder.empty() && checkpoint::is_adapter_folder(folder) ? folder : std::string();
  if (setup.resume) {
    if (setup.lora)
      adapters = setup.resume_folder;
    else if (source.deferred)
      source.weights_folder = setup.resume_folder;
    else
      models::load_weights(*setup.model, setup.resume_folder, setup.resume_sums);
    const auto seed = static_cast<std::uint64_t>(setup.config.optimization.seed);
    if (setup.resume->seed != seed && world.rank() == 0)
      log::warning("the checkpoint was made with --seed ", setup.resume->seed, ", but this run uses ", seed,
                   ": the order of the data changes at step ", setup.resume->step);
  }
  if (!adapters.empty()) models::load_adapters(*setup.model, *setup.lora, adapters);
  if (!source.weights_folder.empty()) {
    std::set<std::string> read;  // read together with the adapters
    if (!adapters.empty())
      for (const std::string& name : checkpoint::adapter_names(adapters)) read.insert(name);
    const auto skip = [&](const std::string& name) { return checkpoint::is_adapter_name(name) || read.contains(name); };
    setup.weights = std::make_shared<models::WeightSource>(*setup.model, source.weights_folder, skip, setup.resume_sums,
                                                           setup.resume ? nullptr : source.choice());
  }
  if (source.quantized) models::quantize(*setup.model, *source.quantized, setup.weights.get());
}

void plan_steps(Setup& setup, const comm::World& world) {
  const ResumePoint from = setup.resume ? ResumePoint{setup.resume->step, setup.resume->samples} : ResumePoint();
  RunConfig config = setup.config;  // this rank computes the micro-batches of all its devices
  config.optimization.gradient_accumulation_steps *= setup.devices();
  setup.plan =
      make_run_plan(config, setup.groups.data.size(), rows_of_epoch(setup), setup.datasets.validation != nullptr, from,
                    lengths_in_order(setup), setup.datasets.train->max_length(), attention_share(*setup.model));
  setup.basis = basis_of(setup, world);
}

/// Allocates the parameters that this rank now has, and fills them with weights.
void make_memory(Setup& setup, const ModelSource& source, const comm::World& world) {
  if (source.parts_only || source.cut_later) return;
  if (source.few_layers || source.quantized) {
    models::fill_parameters(*setup.model, setup.weights.get());
    setup.weights.reset();
  }
  setup.model->to(world.device());
}

}  // namespace

std::string tokenizer_place(const ModelConfig& config) {
  if (!config.tokenizer_name.empty()) return config.tokenizer_name;
  const std::string& folder = config.model_name_or_path;
  if (text::holds_tokenizer(folder)) return folder;
  if (!folder.empty() && checkpoint::is_adapter_folder(folder)) {
    const std::string base = checkpoint::base_model_folder(folder, checkpoint::read_adapter_config(folder));
    if (text::holds_tokenizer(base)) return base;
  }
  return text::holds_tokenizer(config.config_name) ? config.config_name : "byte";
}

void check_output_folder(const OutputConfig& output) {
  const std::string& folder = output.output_dir;
  if (folder.empty()) throw InputError("--output_dir is missing: set it to a folder for model, metrics and report");
  if (path_exists(folder)) {
    if (!is_directory(folder)) throw InputError(concat("--output_dir ", folder, " is a file, not a folder"));
    if (output.resume_from_checkpoint.empty()) {
      const std::string why = output.overwrite_output_dir ? "" : config::why_not_empty(folder);
      if (!why.empty()) throw InputError(concat("--output_dir ", folder, " ", why));
      require_nothing_in_the_way(output, "", this_restart().generation == 0, false);
    }
  }
  const std::string parent = existing_ancestor(absolute_path(folder));
  if (!is_directory(parent))
    throw InputError(concat("--output_dir ", folder, ": ", parent, " is a file, not a folder"));
  if (access(parent.c_str(), W_OK) != 0)
    throw InputError(concat("--output_dir ", folder, ": ", parent, " is not writable"));
}

Setup prepare(const RunConfig& config, const comm::World& world, const RunGroups& groups, const Start& start) {
  std::optional<log::Quiet> quiet;  // every rank reads the same files; only rank 0 logs about them
  if (world.rank() != 0) quiet.emplace(log::Level::error);
  Setup setup = begin_setup(config, groups, start);
  setup.xla = open_xla(config, world);
  setup.features = Features::of(config);
  ModelSource source = build_model(setup, world);
  ModelBuild build{setup.config, setup.groups, world, *setup.model, setup.lora.has_value(), setup.parts};
  setup.features.each(&RunFeature::prepare_model, build);
  keep_own_parts(setup);
  check_model(setup, source, world);
  open_data(setup, world);
  note_numerics(setup, world);
  begin_features(setup, world);
  if (setup.xla) {
    setup.features.require_none_within_step(*setup.model);
    check_compilable(*setup.model, setup.datasets.train.get());
  }
  load_weights(setup, source, world);
  plan_steps(setup, world);
  make_memory(setup, source, world);
  return setup;
}

void set_threads(std::int64_t threads, int local_ranks) {
  if (threads == 0 && std::getenv("OMP_NUM_THREADS") != nullptr) return;  // already applied by init()
  if (threads == 0) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    const int cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    threads = std::max(1, cores / std::max(1, local_ranks));
  }
  at::set_num_threads(static_cast<int>(threads));
}

}  // namespace tessera::train
