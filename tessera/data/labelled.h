#pragma once
/// \file
/// Texts that each have one class, for sequence classification, from record files of any kind (corpus/records.h):
///
///   {"text": "...", "label": 1}      or      {"text": "...", "text_pair": "...", "label": "positive"}
///
/// A label is a class number, true or false, or a class name. In a .csv, whose cells are text, a label that looks like
/// a number is a number. Texts are encoded with their special tokens and truncated to the maximum length. Other fields
/// are ignored.

#include <tessera/data/dataset.h>
#include <tessera/text/wordpiece/wordpiece_tokenizer.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::data {

/// The class names of the labels in a list of files (corpus/data_list.h), in order: sorted names, or "LABEL_0" ... up
/// to the largest number, as in transformers. Returns nullopt for text and token files and if the first record has no
/// text or label. Reads all records. Throws InputError with the position if some labels are numbers and others names,
/// or a number is negative or above 10,000.
std::optional<std::vector<std::string>> label_names(const std::string& list, const std::string& text_field);

/// Opens train_file and validation_file (otherwise the last share of train_file, see open_datasets) as rows: labels[0]
/// is the class, looked up in `classes` (name -> number) or a number below `class_count`; the other labels are -100.
/// Throws InputError with file:line:column for records without text or label and for classes that the model does not
/// have.
Datasets open_labelled(const DataConfig& config, const text::WordPieceTokenizer& tokenizer, std::int64_t max_length,
                       const std::map<std::string, std::int64_t>& classes, std::int64_t class_count,
                       bool want_validation);

}  // namespace tessera::data
