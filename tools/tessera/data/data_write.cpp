// tessera data shuffle, split and merge: write records to new files.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/corpus/bytes/byte_sink.h>
#include <tessera/corpus/rewrite.h>
#include <tessera/corpus/shuffle.h>
#include <tools/tessera/data/data_parts.h>
#include <tools/tessera/text_progress.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

namespace tessera::tool {
namespace {

constexpr const char* shuffle_help =
    "tessera data shuffle: the records in a random order, in bounded memory\n\n"
    "usage: tessera data shuffle PATH... --output FILE [arguments]\n\n"
    "  --output FILE              .jsonl or .txt, each also .gz .zst .xz\n"
    "  --seed N                   determines the order, together with the records [0]\n"
    "  --memory_mb N              larger data uses temporary files next to the output, as large as the data [256]\n"
    "  --overwrite                replaces an existing FILE\n";

constexpr const char* split_help =
    "tessera data split: two or three files out of one data set\n\n"
    "usage: tessera data split PATH... --validation N|P% --output FOLDER [arguments]\n\n"
    "  --validation N|P%          records drawn at random for FOLDER/validation.jsonl: a number, or a percentage\n"
    "  --test N|P%                likewise for FOLDER/test.jsonl\n"
    "  --output FOLDER            train.jsonl gets the rest; --train_file FOLDER and --validation_file FOLDER find "
    "them\n"
    "  --format EXTENSION         jsonl or txt, or jsonl.gz, ... [jsonl]\n"
    "  --seed N                   determines which records are drawn [0]\n"
    "  --overwrite                replaces existing files\n\n"
    "Records stay in their order; the files are read twice.\n";

constexpr const char* merge_help =
    "tessera data merge: several files, possibly of different kinds, into one\n\n"
    "usage: tessera data merge PATH... --output FILE [arguments]\n\n"
    "  --output FILE              .jsonl or .txt, each also .gz .zst .xz\n"
    "  --overwrite                replaces an existing FILE\n\n"
    "Records follow in the order of the paths; Parquet records become JSON (docs/data.md).\n";

bool wants_help(const Arguments& arguments, const char* help) {
  if (std::find(arguments.begin(), arguments.end(), "--help") == arguments.end()) return false;
  std::cout << help << data_flags_help;
  return true;
}

void make_folder_of(const std::string& path) { make_folders(std::filesystem::absolute(path).parent_path().string()); }

/// Rejects outputs that are also inputs, which would be replaced while they are read.
void require_new(const DataJob& job, const std::vector<std::string>& outputs) {
  std::error_code error;
  for (const std::string& output : outputs)
    for (const corpus::SourceFile& file : job.files)
      if (std::filesystem::equivalent(file.path, output, error))
        throw InputError(concat("--output ", output, ": is one of the input files; choose another name"));
  job.flags.require_new(outputs);
}

/// Lines of the job's records, with a progress display.
class ShownLines {
 public:
  ShownLines(const DataJob& job, corpus::FileKind kind, const char* what)
      : lines_(job.files, kind, job.columns), what_(what) {}
  std::optional<std::string> next() {
    auto line = lines_.next();
    progress_.show(what_, static_cast<std::int64_t>(lines_.bytes_read()), static_cast<std::int64_t>(lines_.bytes()),
                   true);
    return line;
  }

 private:
  corpus::LinesOfRecords lines_;
  TextProgress progress_;
  const char* what_;
};

void report(const char* command, std::uint64_t records, const std::string& path) {
  std::cerr << concat(command, ": ", records, " records -> ", path, " (",
                      format_bytes(std::filesystem::file_size(path)), ")\n");
}

/// Resolves "500" or "2.5%" of `count` records.
std::uint64_t share_of(const config::Flags& flags, const char* name, std::uint64_t count) {
  const auto text = flags.text(name);
  if (!text) return 0;
  const bool percent = text->ends_with('%');
  const auto number = parse_real(percent ? text->substr(0, text->size() - 1) : *text);
  if (!number || *number < 0 || (percent ? *number > 100 : std::floor(*number) != *number))
    throw InputError(concat("--", name, " ", *text, ": expected a number of records, or a percentage such as 5%"));
  const double share = percent ? std::floor(*number / 100 * static_cast<double>(count)) : *number;
  if (share > static_cast<double>(count))
    throw InputError(concat("--", name, " ", *text, ": there are only ", count, " records"));
  return static_cast<std::uint64_t>(share);
}

/// Draws exactly `wanted` of the remaining items, each subset equally likely, without an index (Knuth, The Art of
/// Computer Programming, volume 2, 3.4.2, algorithm S).
class Drawer {
 public:
  Drawer(std::uint64_t seed, std::uint64_t wanted) : seed_(seed), wanted_(wanted) {}
  /// Whether the item is drawn; `left`: number of items that can still be drawn, including this one.
  bool draws(std::uint64_t number, std::uint64_t left) {
    if (corpus::shuffle_key(seed_, number) % left >= wanted_) return false;
    --wanted_;
    return true;
  }
  std::uint64_t wanted() const { return wanted_; }

 private:
  std::uint64_t seed_, wanted_;
};

std::uint64_t seed_of(const config::Flags& flags) { return static_cast<std::uint64_t>(flags.integer("seed", 0)); }

}  // namespace

int data_shuffle(const Arguments& arguments) {
  if (wants_help(arguments, shuffle_help)) return 0;
  const DataJob job = data_job("shuffle", arguments, {"output", "seed", "memory_mb"}, {"overwrite"});
  const std::string output = job.flags.required("output", "file to write");
  const corpus::OutputFormat format = corpus::output_format(output);
  require_new(job, {output});
  const std::int64_t memory_mb = job.flags.integer("memory_mb", 256);
  if (memory_mb < 1 || memory_mb > (std::int64_t{1} << 30))
    throw InputError(concat("--memory_mb ", memory_mb, ": expected at least 1"));
  make_folder_of(output);
  const corpus::ShuffleOptions options{seed_of(job.flags), static_cast<std::uint64_t>(memory_mb) << 20,
                                       std::filesystem::absolute(output).parent_path().string()};
  std::uint64_t count = 0;
  const auto sink = corpus::create_file(output, format.compression);
  {
    ShownLines lines(job, format.kind, "shuffling");
    corpus::shuffle([&] { return lines.next(); },
                    [&](std::string_view line) {
                      sink->write(line);
                      ++count;
                    },
                    options);
  }
  sink->finish();
  report("shuffle", count, output);
  return 0;
}

int data_split(const Arguments& arguments) {
  if (wants_help(arguments, split_help)) return 0;
  const DataJob job = data_job("split", arguments, {"output", "seed", "validation", "test", "format"}, {"overwrite"});
  const std::string folder = job.flags.required("output", "folder to write");
  if (!job.flags.has("validation") && !job.flags.has("test"))
    throw InputError("tessera data split needs --validation N or P%, or --test: how many records are drawn");
  const std::string extension = job.flags.text("format").value_or("jsonl");
  const auto path_of = [&](const char* split) { return path_join(folder, concat(split, ".", extension)); };
  const corpus::OutputFormat format = corpus::output_format(path_of("train"));
  std::vector<std::string> outputs = {path_of("train")};
  for (const char* split : {"validation", "test"})
    if (job.flags.has(split)) outputs.push_back(path_of(split));
  require_new(job, outputs);

  std::uint64_t count = 0;
  for (ShownLines lines(job, format.kind, "counting"); lines.next();) ++count;
  Drawer validation(seed_of(job.flags), share_of(job.flags, "validation", count));
  Drawer test(seed_of(job.flags) + 1, share_of(job.flags, "test", count));
  if (validation.wanted() + test.wanted() > count)
    throw InputError(
        concat("--validation and --test ask for ", validation.wanted() + test.wanted(), " of ", count, " records"));

  make_folders(folder);
  struct Part {
    const char* name;
    std::unique_ptr<corpus::ByteSink> sink;
    std::uint64_t count = 0;
  };
  Part train{"train", corpus::create_file(path_of("train"), format.compression)};
  Part held{"validation",
            job.flags.has("validation") ? corpus::create_file(path_of("validation"), format.compression) : nullptr};
  Part tested{"test", job.flags.has("test") ? corpus::create_file(path_of("test"), format.compression) : nullptr};
  {
    ShownLines lines(job, format.kind, "splitting");
    std::uint64_t left_for_test = count - validation.wanted();  // records that were not drawn for validation
    for (std::uint64_t number = 0; number < count; ++number) {
      const auto line = lines.next();
      if (!line) throw InputError("the files changed while they were read: run it again");
      Part* part = &train;
      if (validation.draws(number, count - number)) {
        part = &held;
      } else if (test.draws(number, left_for_test--)) {
        part = &tested;
      }
      part->sink->write(*line);
      ++part->count;
    }
  }
  for (Part* part : {&train, &held, &tested}) {
    if (!part->sink) continue;
    part->sink->finish();
    report("split", part->count, path_of(part->name));
  }
  return 0;
}

int data_merge(const Arguments& arguments) {
  if (wants_help(arguments, merge_help)) return 0;
  const DataJob job = data_job("merge", arguments, {"output"}, {"overwrite"});
  const std::string output = job.flags.required("output", "file to write");
  const corpus::OutputFormat format = corpus::output_format(output);
  require_new(job, {output});
  make_folder_of(output);
  const auto sink = corpus::create_file(output, format.compression);
  std::uint64_t count = 0;
  {
    ShownLines lines(job, format.kind, "merging");
    for (; const auto line = lines.next(); ++count) sink->write(*line);
  }
  sink->finish();
  report("merge", count, output);
  return 0;
}

}  // namespace tessera::tool
