#pragma once
/// \file
/// What a run trains a model for: the next token, hidden tokens (BERT's masked language modelling), or classes of
/// texts. Follows from the model and from the training file.

#include <tessera/data/dataset.h>
#include <tessera/models/load.h>
#include <tessera/text/tokenizer.h>

#include <cstdint>

namespace tessera {
struct DataConfig;
struct RunConfig;
}  // namespace tessera

namespace tessera::train {

/// For the model to be made: an encoder gets the head that the training file asks for, with the file's classes: where
/// its lines have labels that of a classifier (unless it is one that knows them all), else that of masked language
/// modelling. Reads the labels of the file.
models::ConfigEdit task_edit(const DataConfig& config);

/// A model's config.json with all probabilities of dropout 0, those that it leaves to its family among them.
Value without_dropout(Value config);
/// A configuration that without_dropout() has changed, with the probabilities of `before` again.
Value with_dropout_of(const Value& config, const Value& before);

/// The data as the model wants them, which make_batch() turns into batches of its objective. `block_size`: see
/// open_datasets. Throws InputError when tokenizer or file do not fit the task.
data::Datasets open_task_datasets(const RunConfig& config, const models::LanguageModel& model,
                                  const std::shared_ptr<const text::Tokenizer>& tokenizer, std::int64_t block_size,
                                  bool want_validation, const data::ReadProgress& progress);

}  // namespace tessera::train
