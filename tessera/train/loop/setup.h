#pragma once
/// \file
/// From a configuration to everything a run needs: model, tokenizer, data, where to resume. All of it is checked before
/// anything is written, and the ranks agree on the outcome.

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
  Features features;                             ///< what is optional in this run
  FeatureParts parts;                            ///< what they have put into it
  std::shared_ptr<const text::Tokenizer> tokenizer;
  bool tokenizer_fits_data = true;  ///< false: .bin tokens and no tokenizer named, so ids cannot be turned into text
  Value saved_config;               ///< config.json as it is saved: what this run alone does without is in it
  std::string generation_config;    ///< text of the model's generation_config.json; empty: it has none
  data::Datasets datasets;
  std::shared_ptr<const data::Dataset> first_rows;  ///< those of a stream, which gives its rows once only; else null
  std::int64_t block_size = 0;
  std::string resume_folder;                      ///< empty: from the start
  std::optional<checkpoint::RunState> resume;     ///< what it held, without the optimizer's tensors
  std::shared_ptr<format::ReadSums> resume_sums;  ///< where the checksums of its tensors are noted
  /// The model has no memory for its parameters yet: the engine reads its parts of them from here, or, where this is
  /// null, from their initialisers.
  std::shared_ptr<const models::WeightSource> weights;
  RunPlan plan;
  RunBasis basis;                        ///< what a resumed run is told of changes of
  std::optional<PipelinePlan> pipeline;  ///< --pp_size; the model holds this rank's stages
  std::shared_ptr<xla::Devices> xla;     ///< --device xla; null elsewhere

  /// Devices that take micro-batches of a step beside each other, each as many as accumulation says.
  std::int64_t devices() const { return xla ? xla->count() : 1; }
  /// Rows of the training data that may be read at any time.
  const std::shared_ptr<const data::Dataset>& rows_to_show() const { return first_rows ? first_rows : datasets.train; }
};

/// Where a run begins.
struct Start {
  std::string checkpoint;                       ///< to resume from; empty: at step 0
  std::shared_ptr<format::ReadSums> sums = {};  ///< where the checksums of its tensors are noted
  bool named = false;                           ///< by the user: this one and no other
  bool restarted = false;                       ///< the job has written something before
  bool overwrite = false;                       ///< what a failed generation of this very job wrote may be replaced
};

/// The checkpoint that --resume_from_checkpoint means, or, after a restart by our agent, the newest one of the job; and
/// whether the output folder may be used at all. Its small files are whole; its tensors are to be examined while they
/// are loaded (checkpoint/choose.h), and when they are not whole, reject_start() comes next. `rejected`: folders that
/// are not to be chosen. Collective. Throws InputError on one rank, FailedElsewhere on the others.
Start choose_start(const RunConfig& config, const comm::World& world, const std::set<std::string>& rejected = {});

/// The checkpoint of `start` is not whole: sets a damaged one aside, and returns, so that choose_start() can find
/// another. Throws as choose_start() when the user has named the folder. Collective.
void reject_start(const comm::World& world, const Start& start, const checkpoint::Finding& finding);

/// Loads and checks. Throws InputError. Not collective: each rank reads for itself.
Setup prepare(const RunConfig& config, const comm::World& world, const RunGroups& groups, const Start& start);

/// The tokenizer that a model's settings mean, for text::load_tokenizer: tokenizer_name, else the model's folder (of
/// adapters without one: their base model's), else config_name's folder, else "byte".
std::string tokenizer_place(const ModelConfig& config);

/// The folder must be absent or empty unless the run may overwrite it or resumes. Throws InputError.
void check_output_folder(const OutputConfig& output);

/// Uses `threads` for tensor operations, or, for 0, what OMP_NUM_THREADS says, else cores / local ranks (at least 1).
void set_threads(std::int64_t threads, int local_ranks);

}  // namespace tessera::train
