#pragma once
/// \file
/// The subcommands of `tessera data` (data_command.cpp).

#include <tessera/base/error.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/corpus/columns.h>
#include <tessera/corpus/records.h>
#include <tools/tessera/commands.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::tool {

int data_stats(const Arguments& arguments);
int data_check(const Arguments& arguments);
int data_shuffle(const Arguments& arguments);
int data_split(const Arguments& arguments);
int data_merge(const Arguments& arguments);

/// The input of a command: its files, in order, and its flags.
struct DataJob {
  std::vector<corpus::SourceFile> files;
  corpus::ColumnOptions columns;
  config::Flags flags;
  std::uint64_t bytes() const;  ///< total size of the files
};

/// Parses paths, and --split, --dataset_text_field, --column_map in addition to the command's own flags. Throws
/// InputError when no path is given, for tokens (which have no records), and like find_sources().
DataJob data_job(const std::string& command, const Arguments& arguments, std::vector<std::string> with_value,
                 const std::vector<std::string>& switches = {});

/// Determines the meaning of the columns; nullopt, with the reason in `why`, when it is unknown. Throws InputError when
/// the options are wrong.
std::optional<corpus::Columns> means_of(const Value& first_record, const corpus::ColumnOptions& options,
                                        std::string& why);

inline constexpr const char* data_flags_help =
    "  --split NAME               which files of a folder: train, validation or test [train]\n"
    "  --dataset_text_field NAME  the column with the text\n"
    "  --column_map MAP           meaning of columns: prompt=question,completion=answer\n";

/// Calls visit(record) for all records of a file, and complain(text) for unreadable ones, continuing after them where
/// possible. done(bytes of the file so far) is called periodically.
template <class Visit, class Complain, class Done>
void for_each_record(const corpus::SourceFile& file, Visit visit, Complain complain, Done done) {
  constexpr std::uint64_t piece_bytes = std::uint64_t{64} << 20;
  std::uint64_t before = 0;
  std::string last;  // if the same complaint comes again, the reader cannot continue
  const auto attempt = [&](auto act) {
    try {
      return act();
    } catch (const InputError& error) {
      if (error.what() == last) return false;
      last = error.what();
      complain(last);
      return true;
    }
  };
  std::vector<corpus::Piece> pieces;
  attempt([&] {
    pieces = corpus::pieces_of(file, piece_bytes);
    return true;
  });
  for (const corpus::Piece& piece : pieces) {
    std::unique_ptr<corpus::RecordReader> reader;
    attempt([&] {
      reader = corpus::read_records(file, piece);
      return true;
    });
    if (!reader) break;
    while (attempt([&] {
      const auto record = reader->next();
      if (!record) return false;
      visit(*record);
      done(before + reader->bytes_read());
      return true;
    })) {
    }
    before += piece.bytes;
  }
}

}  // namespace tessera::tool
