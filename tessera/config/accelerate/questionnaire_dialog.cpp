#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/accelerate/questionnaire.h>

#include <cmath>
#include <istream>
#include <optional>
#include <ostream>

namespace tessera::config {

std::string Dialog::line(const std::string& question) {
  std::string answer;
  out_.flush();
  if (!std::getline(in_, answer)) {
    out_ << '\n' << std::flush;
    throw InputError(concat("the answers end at the question \"", question, "\"; nothing was written"));
  }
  if (!patient_) out_ << trim(answer) << '\n';
  return trim(answer);
}

void Dialog::wrong(const std::string& question, const std::string& answer, const std::string& rule) {
  const std::string said = concat("'", answer, "' is not an answer to \"", question, "\": ", rule);
  if (!patient_) throw InputError(concat(said, "; nothing was written"));
  out_ << "  " << rule << '\n';
}

/// Prompts until `read`, called with the answer and a string for the rule, returns a value.
template <class Read>
auto Dialog::ask(const std::string& prompt, const std::string& question, const Read& read) {
  while (true) {
    out_ << prompt;
    const std::string answer = line(question);
    std::string rule;
    if (const auto value = read(answer, rule)) return *value;
    wrong(question, answer, rule);
  }
}

std::size_t Dialog::choose(const std::string& question, const std::vector<std::string>& options, std::size_t by_default,
                           const std::vector<std::string>& refused, const std::vector<std::string>& beside) {
  out_ << '\n' << question << '\n';
  for (std::size_t i = 0; i < options.size(); ++i) {
    const bool possible = i >= refused.size() || refused[i].empty();
    out_ << "  " << i << "  " << options[i] << (possible ? "" : "  (not supported)")
         << (i < beside.size() ? concat("  (", beside[i], ")") : "") << '\n';
  }
  return ask(concat("Please select a choice [", by_default, "]: "), question,
             [&](const std::string& answer, std::string& rule) -> std::optional<std::size_t> {
               std::optional<std::size_t> chosen;
               const auto number = parse_int(answer);
               if (answer.empty()) chosen = by_default;
               for (std::size_t i = 0; i < options.size() && !chosen; ++i)
                 if (to_lower(options[i]) == to_lower(answer) && !number) chosen = i;
               if (number && *number >= 0 && static_cast<std::size_t>(*number) < options.size())
                 chosen = static_cast<std::size_t>(*number);
               if (!chosen) {
                 rule = concat("enter a number from 0 to ", options.size() - 1, " or one of ", join(options));
               } else if (*chosen < refused.size() && !refused[*chosen].empty()) {
                 rule = refused[*chosen];
                 chosen.reset();
               }
               return chosen;
             });
}

bool Dialog::yes(const std::string& question, bool by_default) {
  return ask(concat(question, by_default ? " [YES/no]: " : " [yes/NO]: "), question,
             [&](const std::string& answer, std::string& rule) -> std::optional<bool> {
               const std::string word = to_lower(answer);
               if (word.empty()) return by_default;
               if (word == "yes" || word == "y" || word == "true") return true;
               if (word == "no" || word == "n" || word == "false") return false;
               rule = "please enter yes or no";
               return std::nullopt;
             });
}

namespace {

std::optional<std::int64_t> whole(const std::string& answer) {
  if (const auto integer = parse_int(answer)) return integer;
  const auto real = parse_real(answer);
  if (!real || std::abs(*real) > 9e15 || *real != std::floor(*real)) return std::nullopt;
  return static_cast<std::int64_t>(*real);
}

}  // namespace

std::int64_t Dialog::integer(const std::string& question, std::int64_t by_default, std::int64_t least,
                             std::int64_t most) {
  return ask(concat(question, " [", by_default, "]: "), question,
             [&](const std::string& answer, std::string& rule) -> std::optional<std::int64_t> {
               const auto value = answer.empty() ? by_default : whole(answer);
               if (value && *value >= least && *value <= most) return value;
               rule = most == std::numeric_limits<std::int64_t>::max()
                          ? concat("please enter an integer of at least ", least)
                          : concat("please enter an integer from ", least, " to ", most);
               return std::nullopt;
             });
}

std::int64_t Dialog::integer_of(const std::string& question, std::int64_t least, std::int64_t most) {
  return ask(concat(question, question.ends_with("?") ? " " : ": "), question,
             [&](const std::string& answer, std::string& rule) -> std::optional<std::int64_t> {
               const auto value = whole(answer);
               if (value && *value >= least && *value <= most) return value;
               rule = concat("please enter an integer from ", least, " to ", most);
               return std::nullopt;
             });
}

double Dialog::real(const std::string& question, double by_default, double least) {
  return ask(concat(question, " [", format_real(by_default), "]: "), question,
             [&](const std::string& answer, std::string& rule) -> std::optional<double> {
               const auto value = answer.empty() ? by_default : parse_real(answer);
               if (value && std::isfinite(*value) && *value >= least) return value;
               rule = concat("please enter a number of at least ", format_real(least));
               return std::nullopt;
             });
}

std::string Dialog::text(const std::string& question, const std::string& by_default) {
  const std::string end = !by_default.empty() ? concat(" [", by_default, "]: ") : question.ends_with("?") ? " " : ": ";
  return ask(concat(question, end), question,
             [&](const std::string& answer, std::string& rule) -> std::optional<std::string> {
               if (!answer.empty() || !by_default.empty()) return answer.empty() ? by_default : answer;
               rule = "please enter a text";
               return std::nullopt;
             });
}

}  // namespace tessera::config
