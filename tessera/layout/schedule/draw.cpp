#include <tessera/layout/schedule/draw.h>

#include <algorithm>
#include <cmath>

#include <tessera/base/error.h>

namespace tessera::layout::schedule {

std::vector<int> chunk_numbers(const Schedule& schedule) {
  std::vector<int> next(schedule.ranks.size(), 0), chunks;
  for (const int rank : schedule.rank_of) chunks.push_back(next[static_cast<std::size_t>(rank)]++);
  return chunks;
}

double end_of(const Schedule& schedule, const std::vector<Track>& tracks) {
  double end = 0;
  for (const Track& track : tracks) {
    TESSERA_CHECK(track.ranks.size() == schedule.ranks.size(), "a drawing of ", track.ranks.size(),
                  " ranks for a schedule of ", schedule.ranks.size());
    for (const auto& actions : track.ranks)
      for (const TimedAction& timed : actions) {
        TESSERA_CHECK(timed.action.stage >= 0 && timed.action.stage < schedule.stages() && timed.start >= 0 &&
                          timed.end >= timed.start && std::isfinite(timed.end),
                      "cannot draw ", text_of(timed.action), " from ", timed.start, " to ", timed.end);
        if (is_compute(timed.action.kind)) end = std::max(end, timed.end);
      }
  }
  return end;
}

namespace {

double column_of(const std::vector<Track>& tracks, double end, const DrawOptions& options) {
  double column = options.column;
  if (column <= 0)
    for (const Track& track : tracks)
      for (const auto& actions : track.ranks)
        for (const TimedAction& timed : actions)
          if (is_compute(timed.action.kind) && timed.end > timed.start &&
              (column <= 0 || timed.end - timed.start < column))
            column = timed.end - timed.start;
  column = std::max(column, end / std::max(options.columns, 1));
  return column > 0 ? column : 1;
}

/// Returns the lines of one rank.
struct Lines3 {
  std::string letters, micro_batches, chunks;
};

Lines3 lines_of(const std::vector<TimedAction>& actions, const std::vector<int>& chunks, double column,
                std::size_t width) {
  Lines3 lines{std::string(width, '.'), std::string(width, ' '), std::string(width, ' ')};
  for (const TimedAction& timed : actions) {
    if (!is_compute(timed.action.kind) || width == 0) continue;
    const auto begin = std::min(static_cast<std::size_t>(std::lround(timed.start / column)), width - 1);
    const auto end = std::clamp(static_cast<std::size_t>(std::lround(timed.end / column)), begin + 1, width);
    const int chunk = chunks[static_cast<std::size_t>(timed.action.stage)];
    const char letter = text_of({timed.action.kind, false, 0, -1})[1];
    const bool taken = lines.letters[begin] != '.' && lines.letters[begin] != '-';
    lines.letters[begin] = taken ? '*' : chunk % 2 == 1 ? static_cast<char>(letter - 'A' + 'a') : letter;
    lines.micro_batches[begin] = taken ? ' ' : static_cast<char>('0' + timed.action.micro_batch % 10);
    lines.chunks[begin] = taken ? ' ' : static_cast<char>('0' + chunk % 10);
    for (std::size_t i = begin + 1; i < end; ++i)
      if (lines.letters[i] == '.') lines.letters[i] = '-';
  }
  return lines;
}

std::string without_end_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

Track track_of(const Timing& timing, std::string title) {
  Track track{std::move(title), {}};
  for (const RankTiming& rank : timing.ranks) track.ranks.push_back(rank.actions);
  return track;
}

std::string draw_text(const Schedule& schedule, const std::vector<Track>& tracks, const DrawOptions& options) {
  const double end = end_of(schedule, tracks);
  const std::vector<int> chunks = chunk_numbers(schedule);
  const int most_chunks = chunks.empty() ? 0 : *std::max_element(chunks.begin(), chunks.end()) + 1;
  const double column = column_of(tracks, end, options);
  const auto width = static_cast<std::size_t>(std::lround(std::ceil(end / column - 1e-6)));
  std::size_t margin = 0;
  const auto title_of = [&](std::size_t rank, const Track& track) {
    return concat("rank ", rank, track.title.empty() ? "" : " ", track.title, "  ");
  };
  for (const Track& track : tracks) margin = std::max(margin, title_of(schedule.ranks.size() - 1, track).size());
  std::string text;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    for (const Track& track : tracks) {
      const Lines3 lines = lines_of(track.ranks[rank], chunks, column, width);
      std::string title = title_of(rank, track);
      title.resize(margin, ' ');
      text += without_end_blanks(title + lines.letters);
      text += without_end_blanks(std::string(margin, ' ') + lines.micro_batches);
      if (most_chunks > 2) text += without_end_blanks(std::string(margin, ' ') + lines.chunks);
    }
  return text;
}

}  // namespace tessera::layout::schedule
