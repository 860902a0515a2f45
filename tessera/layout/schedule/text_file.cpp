#include <algorithm>

#include <tessera/base/error.h>
#include <tessera/layout/schedule/files.h>
#include <tessera/layout/schedule/scanner.h>

namespace tessera::layout::schedule {
namespace {

/// Removes the first word, up to a blank, from a line.
Piece take_word(Piece& line) {
  line = line.trimmed();
  const std::size_t end = std::min(line.text.find_first_of(" \t"), line.text.size());
  const Piece word = line.from(0, end);
  line = line.from(end).trimmed();
  return word;
}

class TextReader {
 public:
  TextReader(std::string_view text, const std::string& file) : lines_(text), file_(file) {}

  Schedule read() {
    while (auto line = lines_.next()) {
      line->text = line->text.substr(0, line->text.find('#'));
      Piece rest = line->trimmed();
      if (rest.text.empty()) continue;
      read_line(take_word(rest), rest);
      last_ = *line;
    }
    last_.column += last_.text.size();
    if (!has_version_) fail(file_, last_, "the file is empty: it must begin with 'tessera-schedule 1'");
    if (schedule_.rank_of.empty()) fail(file_, last_, "the line 'stages' with the rank of every stage is missing");
    if (schedule_.micro_batches == 0) fail(file_, last_, "the line 'micro_batches' with their number is missing");
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank)
      if (schedule_.ranks[rank].empty()) fail(file_, last_, concat("rank ", rank, " has no action"));
    return std::move(schedule_);
  }

 private:
  void read_line(const Piece& word, Piece rest) {
    if (!has_version_) {
      if (word.text != "tessera-schedule") fail(file_, word, "the file must begin with 'tessera-schedule 1'");
      const Piece version = take_word(rest);
      if (version.text != "1") fail(file_, version, concat("version ", quoted(version.text), "; only 1 is supported"));
      schedule_.name = quoted(rest.text).substr(1, std::min<std::size_t>(rest.text.size(), 40));
      has_version_ = true;
    } else if (word.text == "micro_batches") {
      if (schedule_.micro_batches != 0) fail(file_, word, "'micro_batches' occurs a second time");
      schedule_.micro_batches = parse_number(file_, rest, most_in_files, "number of micro-batches");
      if (schedule_.micro_batches == 0) fail(file_, rest, "0 micro-batches: there must be at least one");
    } else if (word.text == "stages") {
      if (!schedule_.rank_of.empty()) fail(file_, word, "'stages' occurs a second time");
      read_stages(rest);
    } else if (word.text == "rank") {
      read_actions(word, rest);
    } else {
      const auto near = nearest(word.text.substr(0, 20), std::vector<std::string>{"micro_batches", "stages", "rank"});
      fail(file_, word,
           concat(quoted(word.text), ": ",
                  near ? concat("did you mean ", *near, "?") : "a line must begin with micro_batches, stages or rank"));
    }
  }

  void read_stages(Piece rest) {
    if (rest.text.empty()) fail(file_, rest, "no stages: the rank of every stage must follow");
    std::size_t ranks = 0;
    while (!rest.text.empty()) {
      const Piece word = take_word(rest);
      schedule_.rank_of.push_back(parse_number(file_, word, most_in_files - 1, "rank"));
      ranks = std::max(ranks, static_cast<std::size_t>(schedule_.rank_of.back()) + 1);
      if (schedule_.rank_of.size() > most_in_files) fail(file_, word, concat("more than ", most_in_files, " stages"));
    }
    if (ranks > schedule_.rank_of.size())
      fail(file_, rest, concat(ranks, " ranks for ", schedule_.rank_of.size(), " stages: every rank needs a stage"));
    schedule_.ranks.resize(ranks);
  }

  void read_actions(const Piece& word, Piece rest) {
    if (schedule_.rank_of.empty()) fail(file_, word, "the line 'stages' must precede it");
    const std::size_t colon = rest.text.find(':');
    if (colon == std::string_view::npos) fail(file_, rest, "a ':' must follow the number of the rank");
    const Piece number = rest.from(0, colon).trimmed();
    const int most = static_cast<int>(schedule_.ranks.size()) - 1;
    auto& actions = schedule_.ranks[static_cast<std::size_t>(parse_number(file_, number, most, "rank"))];
    rest = rest.from(colon + 1).trimmed();
    while (!rest.text.empty()) {
      Piece cell = take_word(rest);
      const std::size_t plus = cell.text.find('+');
      if (plus != std::string_view::npos) {
        actions.push_back(parse_action(file_, cell.from(0, plus)));
        actions.back().with_next = true;
        cell = cell.from(plus + 1);
      }
      actions.push_back(parse_action(file_, cell));
    }
  }

  Lines lines_;
  const std::string& file_;
  Schedule schedule_;
  bool has_version_ = false;
  Piece last_;
};

}  // namespace

Schedule parse_text(std::string_view text, const std::string& name_for_errors) {
  return TextReader(text, name_for_errors).read();
}

std::string to_text(const Schedule& schedule) {
  std::string text = "tessera-schedule 1";
  if (!schedule.name.empty()) text += " " + schedule.name;
  text += concat("\nmicro_batches ", schedule.micro_batches, "\nstages");
  for (const int rank : schedule.rank_of) text += " " + std::to_string(rank);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    text += concat("\nrank ", rank, ":");
    bool joined = false;
    for (const Action& action : schedule.ranks[rank]) {
      text += joined ? "+" : " ";
      text += text_of(action);
      joined = action.with_next;
    }
  }
  return text + "\n";
}

}  // namespace tessera::layout::schedule
