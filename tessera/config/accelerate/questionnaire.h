#pragma once
/// \file
/// `tessera config` without a subcommand: accelerate's questions in accelerate's order
/// (accelerate/commands/config/cluster.py), as plain text. An answer is a number of the list, a word of it, or nothing
/// for what stands in brackets.

#include <tessera/base/value.h>

#include <cstdint>
#include <iosfwd>
#include <limits>
#include <string>
#include <vector>

namespace tessera::config {

/// Questions on `out`, answers as lines of `in`.
class Dialog {
 public:
  /// `patient`: what is no answer is explained and asked again (a person at a terminal); else it throws InputError (a
  /// pipe, where the next line answers the next question), and answers are shown behind their questions.
  Dialog(std::istream& in, std::ostream& out, bool patient) : in_(in), out_(out), patient_(patient) {}

  /// The index of the option. `refused`: by option, why it cannot be chosen here; empty or missing: it can. `beside`:
  /// shown behind each option.
  std::size_t choose(const std::string& question, const std::vector<std::string>& options, std::size_t by_default = 0,
                     const std::vector<std::string>& refused = {}, const std::vector<std::string>& beside = {});
  bool yes(const std::string& question, bool by_default);
  /// Whole numbers; 1e8 is one, too.
  std::int64_t integer(const std::string& question, std::int64_t by_default, std::int64_t least = 1,
                       std::int64_t most = std::numeric_limits<std::int64_t>::max());
  /// The same without a default.
  std::int64_t integer_of(const std::string& question, std::int64_t least, std::int64_t most);
  double real(const std::string& question, double by_default, double least);
  /// May be empty only when there is a default.
  std::string text(const std::string& question, const std::string& by_default = {});

 private:
  /// Throws InputError when the answers have ended.
  std::string line(const std::string& question);
  /// Explains; throws when not patient.
  void wrong(const std::string& question, const std::string& answer, const std::string& rule);
  template <class Read>
  auto ask(const std::string& prompt, const std::string& question, const Read& read);

  std::istream& in_;
  std::ostream& out_;
  bool patient_;
};

/// accelerate's file from the answers, keys in alphabetical order. Throws InputError when the answers end early or
/// contradict one another; nothing is written.
Value ask_configuration(Dialog& dialog);

}  // namespace tessera::config
