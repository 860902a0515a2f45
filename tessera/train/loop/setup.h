#pragma once
/// \file
/// Builds everything that a run needs from a configuration: model, tokenizer, data, resume point. Everything is checked
/// before anything is written, and the ranks agree on the outcome.

#include <tessera/base/error.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/checkpoint/choose.h>
#include <tessera/checkpoint/file_reader.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/comm/world.h>
#include <tessera/config/core/run_config.h>
#include <tessera/data/dataset.h>
#include <tessera/models/causal_lm.h>
#include <tessera/models/load.h>
#include <tessera/models/lora.h>
#include <tessera/train/core/run_groups.h>
#include <tessera/train/core/run_plan.h>
#include <tessera/train/features/features.h>
#include <tessera/train/loop/pipeline.h>
#include <tessera/train/loop/run_basis.h>
#include <tessera/xla/compiled_step.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace tessera::train {

using comm::FailedElsewhere;
using comm::run_on_all_ranks;

struct Setup {
  RunConfig config;
  RunGroups groups;
  std::shared_ptr<models::LanguageModel> model;  ///< on the world's device
  std::optional<models::LoraConfig> lora;        ///< only adapters are trained; the model's own weights are frozen
  Features features;                             ///< optional features of this run
  FeatureParts parts;                            ///< additions made by the features
  std::shared_ptr<const text::Tokenizer> tokenizer;
  /// false: the data is .bin tokens without a named tokenizer, so ids cannot be converted to text
  bool tokenizer_fits_data = true;
  Value saved_config;             ///< config.json as saved, without changes that apply only during this run
  std::string generation_config;  ///< text of the model's generation_config.json; empty: absent
  data::Datasets datasets;
  std::shared_ptr<const data::Dataset>
      first_rows;  ///< first rows of a stream, which yields its rows only once; otherwise null
  std::int64_t block_size = 0;
  std::string resume_folder;                      ///< empty: starts at step 0
  std::optional<checkpoint::RunState> resume;     ///< contents of the checkpoint, without the optimizer's tensors
  std::shared_ptr<format::ReadSums> resume_sums;  ///< records the checksums of its tensors
  /// Set if the model's parameters have not been allocated yet: the engine reads its parts from here or, if this is
  /// null, from their initializers.
  std::shared_ptr<const models::WeightSource> weights;
  RunPlan plan;
  RunBasis basis;                        ///< facts whose changes a resumed run reports
  std::optional<PipelinePlan> pipeline;  ///< --pp_size; the model holds this rank's stages
  std::shared_ptr<xla::Devices> xla;     ///< --device xla; otherwise null

  /// Devices that compute a step's micro-batches in parallel, `accumulation` micro-batches each.
  std::int64_t devices() const { return xla ? xla->count() : 1; }
  /// Rows of the training data that can be read repeatedly.
  const std::shared_ptr<const data::Dataset>& rows_to_show() const { return first_rows ? first_rows : datasets.train; }
};

/// The starting point of a run.
struct Start {
  std::string checkpoint;                       ///< checkpoint to resume from; empty: starts at step 0
  std::shared_ptr<format::ReadSums> sums = {};  ///< records the checksums of its tensors
  bool named = false;                           ///< the user named the checkpoint, so no other may be used
  bool restarted = false;                       ///< the job has already written output
  bool overwrite = false;                       ///< files that a failed generation of this job wrote may be replaced
};

/// Chooses the checkpoint that --resume_from_checkpoint selects or, after a restart by our agent, the newest one of the
/// job, and checks that the output folder may be used. The checkpoint's small files are verified here; its tensors are
/// verified while they are loaded (checkpoint/choose.h), and if they are damaged, call reject_start(). `rejected`:
/// folders to skip. Collective. Throws InputError on one rank, FailedElsewhere on the others.
Start choose_start(const RunConfig& config, const comm::World& world, const std::set<std::string>& rejected = {});

/// The checkpoint of `start` is damaged: sets it aside and returns, so that choose_start() can find another. Throws
/// like choose_start() if the user named the folder. Collective.
void reject_start(const comm::World& world, const Start& start, const checkpoint::Finding& finding);

/// Loads and checks everything. Throws InputError. Not collective: each rank reads on its own.
Setup prepare(const RunConfig& config, const comm::World& world, const RunGroups& groups, const Start& start);

/// The argument of text::load_tokenizer for the model's settings: tokenizer_name, else the model's folder (for adapters
/// without a tokenizer, their base model's), else config_name's folder, else "byte".
std::string tokenizer_place(const ModelConfig& config);

/// Throws InputError unless the folder is absent or empty, the run may overwrite it, or the run resumes.
void check_output_folder(const OutputConfig& output);

/// Uses `threads` threads for tensor operations; for 0, OMP_NUM_THREADS if set, else cores / local ranks (at least 1).
void set_threads(std::int64_t threads, int local_ranks);

}  // namespace tessera::train
