#include <algorithm>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/layout/schedule/files.h>
#include <tessera/layout/schedule/scanner.h>

namespace tessera::layout::schedule {
namespace {

constexpr std::string_view overlapped = "OVERLAP_F_B";
constexpr std::string_view first_word = "tessera-schedule";

/// The actions of one cell: none, one, or a pair.
void read_cell(const std::string& file, Piece cell, std::vector<Action>& actions) {
  cell = cell.trimmed();
  // Python quotes an empty cell that is alone in its line.
  if (cell.text.size() >= 2 && cell.text.front() == '"' && cell.text.back() == '"')
    cell = cell.from(1, cell.text.size() - 2).trimmed();
  if (cell.text.empty()) return;
  if (cell.text.front() != '(') {
    actions.push_back(parse_action(file, cell));
    return;
  }
  const std::size_t close = cell.text.find(')'), middle = cell.text.find(';');
  if (close == std::string_view::npos || middle == std::string_view::npos || middle > close ||
      cell.text.substr(close + 1) != overlapped)
    fail(file, cell, concat(quoted(cell.text), " is not an overlapped pair: (0F4;7B1)", overlapped));
  actions.push_back(parse_action(file, cell.from(1, middle - 1).trimmed()));
  actions.back().with_next = true;
  actions.push_back(parse_action(file, cell.from(middle + 1, close - middle - 1).trimmed()));
}

/// Derives the numbers of stages and micro-batches, and the placement, from the actions. Every stage and every
/// micro-batch has an action, so neither number can exceed the number of actions, and a single action cannot cause a
/// large allocation.
void derive_shape(const std::string& file, Schedule& schedule) {
  const auto refuse = [&](const std::string& reason) { throw InputError(concat(file, ": ", reason)); };
  const std::int64_t count = count_actions(schedule);
  if (count == 0) refuse("it has no actions");
  std::int32_t stages = 0, micro_batches = 0;
  for (const auto& actions : schedule.ranks)
    for (const Action& action : actions) {
      stages = std::max(stages, action.stage + 1);
      micro_batches = std::max(micro_batches, action.micro_batch + 1);
    }
  if (stages > count)
    refuse(concat("stage ", stages - 1, " is the last of ", stages, ", but there are only ", count, " actions"));
  if (micro_batches > count)
    refuse(concat("micro-batch ", micro_batches - 1, " is the last of ", micro_batches, ", but there are only ", count,
                  " actions"));
  schedule.micro_batches = micro_batches;
  schedule.rank_of.assign(static_cast<std::size_t>(stages), -1);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    for (const Action& action : schedule.ranks[rank]) {
      int& place = schedule.rank_of[static_cast<std::size_t>(action.stage)];
      if (place < 0) place = static_cast<int>(rank);
    }
  const auto nowhere = std::find(schedule.rank_of.begin(), schedule.rank_of.end(), -1);
  if (nowhere != schedule.rank_of.end())
    refuse(concat("stage ", nowhere - schedule.rank_of.begin(), " has no action, but stage ", stages - 1, " has"));
}

}  // namespace

Schedule parse_csv(std::string_view text, const std::string& name_for_errors) {
  Schedule schedule;
  Lines lines(text);
  std::optional<Piece> empty;  // the first line without an action; empty lines are only allowed at the end
  while (const auto line = lines.next()) {
    std::vector<Action> actions;
    for (std::size_t begin = 0; begin <= line->text.size();) {
      const std::size_t end = std::min(line->text.find(',', begin), line->text.size());
      read_cell(name_for_errors, line->from(begin, end - begin), actions);
      begin = end + 1;
    }
    if (actions.empty()) {
      if (!empty) empty = line;
      continue;
    }
    if (empty) fail(name_for_errors, *empty, "a line without an action: every rank needs a stage");
    if (schedule.ranks.size() == most_in_files)
      fail(name_for_errors, *line, concat("more than ", most_in_files, " ranks (lines)"));
    actions.shrink_to_fit();
    schedule.ranks.push_back(std::move(actions));
  }
  derive_shape(name_for_errors, schedule);
  return schedule;
}

std::string to_csv(const Schedule& schedule) {
  const auto word = [](const Action& action) {
    if (action.kind == Kind::gather) return concat(action.stage, "UNSHARD");
    if (action.kind == Kind::reduce) return concat(action.stage, "REDUCE_GRAD");
    return text_of(action);
  };
  std::string text;
  for (const auto& actions : schedule.ranks) {
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (i > 0) text += ",";
      if (actions[i].with_next && i + 1 < actions.size()) {
        text += concat("(", word(actions[i]), ";", word(actions[i + 1]), ")", overlapped);
        ++i;
      } else {
        text += word(actions[i]);
      }
    }
    text += "\n";
  }
  return text;
}

Schedule parse_schedule(std::string_view text, const std::string& name_for_errors) {
  Lines lines(text);
  while (const auto line = lines.next()) {
    const std::string_view content = line->trimmed().text;
    if (content.empty() || content.front() == '#') continue;
    return content.starts_with(first_word) ? parse_text(text, name_for_errors) : parse_csv(text, name_for_errors);
  }
  throw InputError(concat(name_for_errors, ": it has no actions"));
}

Schedule read_schedule(const std::string& path) { return parse_schedule(read_file(path, most_bytes_in_file), path); }

}  // namespace tessera::layout::schedule
