// tessera data: inspects, checks, shuffles, splits and merges data sets (docs/data.md).

#include <tessera/base/error.h>
#include <tessera/corpus/sources.h>
#include <tools/tessera/checkpoint_tools.h>
#include <tools/tessera/data/data_parts.h>

#include <array>
#include <cstdio>
#include <iostream>
#include <utility>

namespace tessera::tool {
namespace {

constexpr const char* data_help =
    "tessera data: inspects, checks and rearranges data sets\n\n"
    "usage: tessera data COMMAND PATH... [arguments]\n\n"
    "  stats    files, records, columns, lengths of the texts; with --tokenizer_name also tokens\n"
    "  check    reads everything and lists the location of each invalid record\n"
    "  shuffle  the records in a random order, in bounded memory\n"
    "  split    two or three files: train, validation, test\n"
    "  merge    several files, possibly of different kinds, into one\n\n"
    "PATH: a file (.txt .jsonl .json .csv .tsv, also .gz .zst .xz; .parquet .arrow), a glob in quotes, or a folder.\n"
    "See tessera data COMMAND --help.\n";

constexpr std::array<std::pair<const char*, int (*)(const Arguments&)>, 5> data_commands = {{
    {"stats", data_stats},
    {"check", data_check},
    {"shuffle", data_shuffle},
    {"split", data_split},
    {"merge", data_merge},
}};

corpus::Split split_named(const std::string& name) {
  for (const auto split : {corpus::Split::train, corpus::Split::validation, corpus::Split::test})
    if (name == corpus::name_of(split)) return split;
  throw InputError(concat("--split ", name, ": expected train, validation or test"));
}

}  // namespace

std::uint64_t DataJob::bytes() const {
  std::uint64_t sum = 0;
  for (const corpus::SourceFile& file : files) sum += file.bytes;
  return sum;
}

DataJob data_job(const std::string& command, const Arguments& arguments, std::vector<std::string> with_value,
                 const std::vector<std::string>& switches) {
  for (const char* common : {"split", "dataset_text_field", "column_map"}) with_value.emplace_back(common);
  const auto [paths, rest] = split_positional(arguments, with_value);
  DataJob job{{}, {}, config::Flags("data " + command, rest, with_value, switches)};
  if (paths.empty())
    throw InputError(concat("tessera data ", command, " needs a PATH: a file, a glob in quotes, or a folder"));
  const corpus::Split split = split_named(job.flags.text("split").value_or("train"));
  for (const std::string& path : paths) {
    const auto found = corpus::find_sources(path, split);
    job.files.insert(job.files.end(), found.begin(), found.end());
  }
  for (const corpus::SourceFile& file : job.files)
    if (file.kind == corpus::FileKind::tokens)
      throw InputError(concat(file.path, ": contains tokens, which have no records"));
  job.columns.text_field = job.flags.text("dataset_text_field").value_or("");
  if (const auto map = job.flags.text("column_map")) job.columns.map = corpus::parse_column_map(*map);
  return job;
}

std::optional<corpus::Columns> means_of(const Value& first_record, const corpus::ColumnOptions& options,
                                        std::string& why) {
  try {
    return corpus::Columns(first_record, options);
  } catch (const InputError& error) {
    if (!options.text_field.empty() || !options.map.empty()) throw;
    why = error.what();
    return std::nullopt;
  }
}

int data_command(const Arguments& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    (arguments.empty() ? std::cerr : std::cout) << data_help;
    return arguments.empty() ? static_cast<int>(ExitCode::bad_input) : 0;
  }
  std::vector<std::string> names;
  for (const auto& [name, command] : data_commands) {
    if (arguments[0] == name) return command(Arguments(arguments.begin() + 1, arguments.end()));
    names.emplace_back(name);
  }
  const auto near = nearest(arguments[0], names);
  throw InputError(concat("tessera data has no command '", arguments[0], "'; ",
                          near ? concat("did you mean '", *near, "'?") : concat("the commands are ", join(names))));
}

}  // namespace tessera::tool
