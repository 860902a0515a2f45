#pragma once
/// \file
/// What a checkpoint keeps besides tensors, of `tessera train` and of the faces alike: tessera_state.json, and, of runs
/// that log and evaluate, Hugging Face's trainer_state.json.

#include <tessera/base/value.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::checkpoint {

/// State of fp16's loss scale (optim/loss_scale.h).
struct LossScaleState {
  double scale = 0;                ///< what losses are multiplied by
  std::int64_t good_steps = 0;     ///< since the last bad one, or (GradScaler's way) since the scale last changed
  std::int64_t skipped_steps = 0;  ///< counted over the whole run
  std::int64_t hysteresis = 0;     ///< what is left of it; 0: all
};

/// Where the optimizer of one model stands.
struct ModelState {
  std::int64_t optimizer_steps = 0;  ///< updates made; those that were skipped do not count
  std::int64_t schedule_steps = 0;   ///< how many steps the learning rate's schedule has taken
  Value schedule = {};               ///< the state of a schedule that has one (reduce_lr_on_plateau), else null
  std::optional<LossScaleState> loss_scale = {};  ///< empty: not in fp16
  std::int64_t torch_scheduler_steps = 0;  ///< those of a scheduler of torch::optim, which has no state of its own
};

/// The ranks that trained, for people and tools; any number of ranks and any strategy resumes.
struct Mesh {
  std::int64_t ranks = 1;                             ///< all that trained together
  std::string strategy = {};                          ///< a word of layout/strategy.h
  std::int64_t shard_ranks = 1, replicate_ranks = 1;  ///< S and R: those that divide a copy, and copies
};

/// What resumes a run besides the weights and the optimizer's tensors.
struct RunState {
  std::int64_t step = 0;     ///< optimizer steps done
  std::int64_t samples = 0;  ///< blocks consumed: the data position
  std::uint64_t seed = 0;    ///< the run's --seed, on which all random numbers depend
  Value stream = {};       ///< where the stream of --streaming goes on (data/stream/row_stream.h); null: there was none
  Value fp8_history = {};  ///< largest values of earlier steps (train/features/fp8.h); null: no scale depends on them
  Value input_ranges = {};  ///< ranges of inputs that run on (train/features/compression.h); null: there are none
  std::vector<ModelState> models = {ModelState()};  ///< at least one; Accelerator may have several
  std::string job = {};     ///< the id of the job that wrote it (TESSERA_JOB); empty: it had none
  bool model_only = false;  ///< only what a model user needs is written; such a checkpoint cannot be resumed

  bool evaluation_due = false;  ///< a stop left out the evaluation after `step`: who goes on begins with it

  std::vector<double> seconds_per_row = {};  ///< by rank, as batches were balanced last; empty: they were not

  // What the faces count besides.
  std::int64_t micro_steps = 0;                  ///< Accelerator's: micro-batches since the last end of a loader
  std::vector<std::int64_t> loader_epochs = {};  ///< Accelerator's: the pass of each prepared loader
  std::int64_t custom_objects = 0;  ///< Accelerator's: registered objects, each with a JSON file of its own
  Value client_state = {};          ///< DeepSpeed's: what the program gave to save_checkpoint

  // What trainer_state.json of Hugging Face tells.
  bool trainer_state = true;               ///< false: there is no such file (Accelerator, DeepSpeed)
  std::vector<Value> log_history = {};     ///< as it stands there
  std::optional<double> best_metric = {};  ///< the best of the evaluations so far; empty: none counted
  std::int64_t best_step = -1;             ///< where it was reached
  std::string best_model_checkpoint = {};  ///< the checkpoint of a best step, which is never pruned; empty: none
  std::int64_t num_input_tokens_seen = 0;  ///< that the log lines count, since step 0
  // The rest is for other readers; read_run_state() leaves it as it is here.
  double epoch = 0;
  std::int64_t max_steps = 0;                                      ///< steps of the whole run
  double num_train_epochs = 0;                                     ///< passes over the data that were asked for
  std::int64_t train_batch_size = 0;                               ///< rows per rank and micro-batch; 0: not said
  std::int64_t logging_steps = 0, eval_steps = 0, save_steps = 0;  ///< steps between two; 0: not by steps
  double total_flos = 0;  ///< floating-point operations of the model since step 0

  // Who wrote it, for people and tools; any configuration resumes it. Empty: not said.
  Value configuration = {};       ///< config/record/former_settings.h
  Value basis = {};               ///< what numbers depend on besides: data, base model, rows (train/loop/run_basis.h)
  std::optional<Mesh> mesh = {};  ///< the ranks that trained
};

/// The state of a verified checkpoint; the optimizer's tensors stay in their files (stored_state.h). Throws InputError
/// naming file and place.
RunState read_run_state(const std::string& folder);

}  // namespace tessera::checkpoint
