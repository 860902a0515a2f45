#pragma once
/// \file
/// The state in a checkpoint besides tensors, for `tessera train` and the faces: tessera_state.json and, for runs that
/// log and evaluate, Hugging Face's trainer_state.json.

#include <tessera/base/value.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::checkpoint {

/// State of fp16's loss scale (optim/loss_scale.h).
struct LossScaleState {
  double scale = 0;                ///< factor of losses
  std::int64_t good_steps = 0;     ///< steps since the last bad one, or (as in GradScaler) since the scale last changed
  std::int64_t skipped_steps = 0;  ///< counted over the whole run
  std::int64_t hysteresis = 0;     ///< bad steps left before the scale drops; 0: the full number
};

/// Progress of one model's optimizer.
struct ModelState {
  std::int64_t optimizer_steps = 0;  ///< updates made, without skipped ones
  std::int64_t schedule_steps = 0;   ///< steps taken by the learning rate's schedule
  Value schedule = {};               ///< state of a schedule that has one (reduce_lr_on_plateau), otherwise null
  std::optional<LossScaleState> loss_scale = {};  ///< empty: the run does not use fp16
  std::int64_t torch_scheduler_steps = 0;         ///< steps of a torch::optim scheduler, which has no other state
};

/// The ranks that trained, recorded for people and tools; any number of ranks and any strategy can resume.
struct Mesh {
  std::int64_t ranks = 1;                             ///< ranks that trained together
  std::string strategy = {};                          ///< a word of layout/strategy.h
  std::int64_t shard_ranks = 1, replicate_ranks = 1;  ///< ranks per shard group (S), number of replicas (R)
};

/// The state that resumes a run, besides the weights and the optimizer's tensors.
struct RunState {
  std::int64_t step = 0;     ///< optimizer steps done
  std::int64_t samples = 0;  ///< blocks consumed: the data position
  std::uint64_t seed = 0;    ///< the run's --seed, the source of all random numbers
  Value stream = {};         ///< position of the stream of --streaming (data/stream/row_stream.h); null: no stream
  Value fp8_history = {};    ///< maximum values of earlier steps (train/features/fp8.h); null: no scale depends on them
  Value input_ranges = {};   ///< running ranges of inputs (train/features/compression.h); null: none
  std::vector<ModelState> models = {ModelState()};  ///< at least one; Accelerator may have several
  std::string job = {};                             ///< id of the job that wrote it (TESSERA_JOB); empty: none
  bool model_only = false;  ///< only files for model users are written; such a checkpoint cannot be resumed

  bool evaluation_due = false;  ///< a stop interrupted the evaluation after `step`; a resumed run starts with it

  std::vector<double> seconds_per_row = {};  ///< by rank, when batches were last balanced; empty: not balanced

  // Counters of the faces.
  std::int64_t micro_steps = 0;                  ///< Accelerator: micro-batches since the last end of a loader
  std::vector<std::int64_t> loader_epochs = {};  ///< Accelerator: the pass of each prepared loader
  std::int64_t custom_objects = 0;               ///< Accelerator: registered objects, each with its own JSON file
  Value client_state = {};                       ///< DeepSpeed: the program's argument of save_checkpoint

  // Contents of Hugging Face's trainer_state.json.
  bool trainer_state = true;               ///< false: the file does not exist (Accelerator, DeepSpeed)
  std::vector<Value> log_history = {};     ///< entries of the file
  std::optional<double> best_metric = {};  ///< best of the evaluations so far; empty: none counted
  std::int64_t best_step = -1;             ///< step of the best evaluation
  std::string best_model_checkpoint = {};  ///< checkpoint of the best step, which is never pruned; empty: none
  std::int64_t num_input_tokens_seen = 0;  ///< as counted in log lines, since step 0
  // The remaining members are for other readers; read_run_state() leaves their defaults.
  double epoch = 0;
  std::int64_t max_steps = 0;                                      ///< steps of the whole run
  double num_train_epochs = 0;                                     ///< requested passes over the data
  std::int64_t train_batch_size = 0;                               ///< rows per rank and micro-batch; 0: unknown
  std::int64_t logging_steps = 0, eval_steps = 0, save_steps = 0;  ///< steps between two events; 0: not by steps
  double total_flos = 0;  ///< floating-point operations of the model since step 0

  // The run that wrote it, for people and tools; any configuration can resume it. Empty: unknown.
  Value configuration = {};       ///< config/record/former_settings.h
  Value basis = {};               ///< data, base model, rows per step (train/loop/run_basis.h)
  std::optional<Mesh> mesh = {};  ///< the ranks that trained
};

/// The state of a verified checkpoint; the optimizer's tensors stay in their files (stored_state.h). Throws InputError
/// with file and position.
RunState read_run_state(const std::string& folder);

}  // namespace tessera::checkpoint
