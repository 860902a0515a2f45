#pragma once
/// \file
/// `tessera config` without a subcommand: accelerate's questions in accelerate's order
/// (accelerate/commands/config/cluster.py), as plain text. An answer is an option's number or word, or empty for the
/// default in brackets.

#include <tessera/base/value.h>

#include <cstdint>
#include <iosfwd>
#include <limits>
#include <string>
#include <vector>

namespace tessera::config {

/// Asks questions on `out`; reads answers as lines of `in`.
class Dialog {
 public:
  /// `patient`: an invalid answer is explained and asked again (a person at a terminal). Otherwise it throws InputError
  /// (a pipe, where the next line answers the next question), and answers are echoed after their questions.
  Dialog(std::istream& in, std::ostream& out, bool patient) : in_(in), out_(out), patient_(patient) {}

  /// Returns the index of the chosen option. `refused`: for each option, why it cannot be chosen here; empty or
  /// missing: it can be chosen. `beside`: for each option, a text shown after it.
  std::size_t choose(const std::string& question, const std::vector<std::string>& options, std::size_t by_default = 0,
                     const std::vector<std::string>& refused = {}, const std::vector<std::string>& beside = {});
  bool yes(const std::string& question, bool by_default);
  /// A whole number; 1e8 is accepted.
  std::int64_t integer(const std::string& question, std::int64_t by_default, std::int64_t least = 1,
                       std::int64_t most = std::numeric_limits<std::int64_t>::max());
  /// The same without a default.
  std::int64_t integer_of(const std::string& question, std::int64_t least, std::int64_t most);
  double real(const std::string& question, double by_default, double least);
  /// The answer may be empty only if there is a default.
  std::string text(const std::string& question, const std::string& by_default = {});

 private:
  /// Throws InputError at the end of the answers.
  std::string line(const std::string& question);
  /// Explains the rule; throws if not patient.
  void wrong(const std::string& question, const std::string& answer, const std::string& rule);
  template <class Read>
  auto ask(const std::string& prompt, const std::string& question, const Read& read);

  std::istream& in_;
  std::ostream& out_;
  bool patient_;
};

/// Builds accelerate's file from the answers, with keys in alphabetical order. Throws InputError if the answers end
/// early or contradict one another. Writes nothing.
Value ask_configuration(Dialog& dialog);

}  // namespace tessera::config
