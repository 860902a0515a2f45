#pragma once
/// \file
/// The task of a run: predicting the next token, masked tokens (BERT's masked language modelling), or classes of texts.
/// The model and the training file determine it.

#include <tessera/data/dataset.h>
#include <tessera/models/load.h>
#include <tessera/text/tokenizer.h>

#include <cstdint>

namespace tessera {
struct DataConfig;
struct RunConfig;
}  // namespace tessera

namespace tessera::train {

/// Edits the config of a new model: an encoder gets the head that the training file requires. If the lines have labels,
/// that is a classifier with the file's classes (unless the model already is one that knows them all); otherwise it is
/// the head of masked language modelling. Reads the file's labels.
models::ConfigEdit task_edit(const DataConfig& config);

/// Returns a model's config.json with all dropout probabilities set to 0, including the family's defaults.
Value without_dropout(Value config);
/// Returns a configuration from without_dropout() with the probabilities of `before` restored.
Value with_dropout_of(const Value& config, const Value& before);

/// Opens the data in the form that the model needs; make_batch() turns it into batches of its objective. `block_size`:
/// see open_datasets. Throws InputError if the tokenizer or the file does not match the task.
data::Datasets open_task_datasets(const RunConfig& config, const models::LanguageModel& model,
                                  const std::shared_ptr<const text::Tokenizer>& tokenizer, std::int64_t block_size,
                                  bool want_validation, const data::ReadProgress& progress);

}  // namespace tessera::train
