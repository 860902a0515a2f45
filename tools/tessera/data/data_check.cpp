// tessera data check: reads every record and lists the invalid ones with their location.

#include <tessera/base/error.h>
#include <tessera/corpus/left_out.h>
#include <tools/tessera/data/data_parts.h>
#include <tools/tessera/text_progress.h>

#include <algorithm>
#include <iostream>
#include <optional>

namespace tessera::tool {
namespace {

constexpr const char* check_help =
    "tessera data check: reads every record and lists the location of each invalid one\n\n"
    "usage: tessera data check PATH... [arguments]\n\n"
    "A record is valid when it can be read and has the fields that training uses. The list goes to\n"
    "standard output, one per line (a.jsonl:13094:7: ...). Exit code 2 if any is invalid.\n\n";

}  // namespace

int data_check(const Arguments& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::cout << check_help << data_flags_help;
    return 0;
  }
  const DataJob job = data_job("check", arguments, {});
  std::uint64_t good = 0, empty = 0, bad = 0, before = 0;
  std::optional<corpus::Columns> columns;
  std::string unknown;
  {
    TextProgress progress;
    for (const corpus::SourceFile& file : job.files) {
      const auto complain = [&](const std::string& text) {
        ++bad;
        std::cout << text << "\n";
      };
      const auto check = [&](const Value& record) {
        if (good + empty + bad == 0) columns = means_of(record, job.columns, unknown);
        try {
          if (columns) columns->normal(record);
          ++good;
        } catch (const corpus::LeftOut&) {
          ++empty;
        }
      };
      for_each_record(file, check, complain, [&](std::uint64_t done) {
        progress.show("checking", static_cast<std::int64_t>(before + done), static_cast<std::int64_t>(job.bytes()),
                      true);
      });
      before += file.bytes;
    }
  }
  std::cout << std::flush;
  if (good > 0) std::cerr << "check: " << (columns ? columns->note() : unknown) << "\n";
  std::cerr << concat(
      "check: ", good, " records of ", job.files.size(), job.files.size() == 1 ? " file" : " files", " are valid",
      empty == 0 ? "" : concat(", ", empty, empty == 1 ? " is" : " are", " empty and left out by training"),
      bad == 0 ? "" : concat(", ", bad, bad == 1 ? " problem" : " problems"), "\n");
  return static_cast<int>(bad == 0 ? ExitCode::done : ExitCode::bad_input);
}

}  // namespace tessera::tool
