#pragma once
/// \file
/// Resolves the values of --train_file and similar settings to files.
///
/// A file's kind is given by its extension, its compression by a second one after it: .txt .text, .jsonl .ndjson,
/// .json, .csv, .tsv, each also .gz .zst .xz; .parquet, .arrow; .bin with an .idx next to it (tokens).
///
/// In a folder all files with known extensions are used, including those in subfolders; names that begin with '.' or
/// '_', and README, LICENSE and the like, are ignored. Data saved by `datasets` with save_to_disk (state.json,
/// dataset_dict.json) is read in the order listed there. Splits are recognized by name, as on the Hugging Face hub:
/// train or training; validation, valid, val or dev; test, testing, eval or evaluation; as a word of a file's name or
/// of a folder's ("data/train-00000-of-00005.parquet", "dev/a.jsonl").

#include <tessera/corpus/records.h>

#include <string>
#include <vector>

namespace tessera::corpus {

enum class Split { train, validation, test };
const char* name_of(Split split);
const char* name_of(FileKind kind);  ///< "text", "JSON Lines", "Parquet", ...

/// Returns the files of a path, a glob (`*`, `?`, `[a-z]`, and `**` for any folders) or a folder, sorted by path; all
/// of one kind. In a folder whose names indicate splits, only those of `split`; otherwise all files belong to train.
/// Throws InputError with the searched and the existing names when nothing is found, when an extension is unknown, and
/// when kinds are mixed.
std::vector<SourceFile> find_sources(const std::string& what, Split split = Split::train);

/// Whether a folder contains files that are known to belong to this split (for train, by their names as well).
bool has_split(const std::string& folder, Split split);

/// Returns one file with its detected kind. Throws InputError if it does not exist or its extension is unknown.
SourceFile source_file(const std::string& path);

}  // namespace tessera::corpus
