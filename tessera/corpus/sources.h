#pragma once
/// \file
/// Which files are meant: what people write behind --train_file to a list of files.
///
/// The kind of a file is that of its extension, a compression that of the one behind it: .txt .text, .jsonl .ndjson,
/// .json, .csv, .tsv, each also .gz .zst .xz; .parquet, .arrow; .bin with .idx beside it (tokens).
///
/// In a folder all files of known extensions are taken, those in its folders too; names that begin with '.' or '_',
/// and README, LICENSE and the like, are passed over. What `datasets` wrote with save_to_disk (state.json,
/// dataset_dict.json) is read in the order that it says. Names tell the split as on the hub: train or training;
/// validation, valid, val or dev; test, testing, eval or evaluation; as a word of a file's name or of a folder's
/// ("data/train-00000-of-00005.parquet", "dev/a.jsonl").

#include <tessera/corpus/records.h>

#include <string>
#include <vector>

namespace tessera::corpus {

enum class Split { train, validation, test };
const char* name_of(Split split);
const char* name_of(FileKind kind);  ///< "text", "JSON Lines", "Parquet", ...

/// The files of a path, a glob (`*`, `?`, `[a-z]`, and `**` for any folders) or a folder, sorted by path; all of one
/// kind. Of a folder whose names tell splits, those of `split`; of one whose names do not, all are train. Throws
/// InputError saying what was looked for and what is there, when nothing is found, when an extension is not known, and
/// when kinds are mixed.
std::vector<SourceFile> find_sources(const std::string& what, Split split = Split::train);

/// Whether a folder has files that are known to be of this split (for train: by their names, too).
bool has_split(const std::string& folder, Split split);

/// One file, recognised. Throws InputError when there is none, or its extension is not known.
SourceFile source_file(const std::string& path);

}  // namespace tessera::corpus
