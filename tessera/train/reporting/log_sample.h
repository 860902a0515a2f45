#pragma once
/// \file
/// A bounded sample of a run's log lines (metrics.jsonl, trainer_state.json's log_history), however long the run is.

#include <tessera/base/value.h>
#include <tessera/train/reporting/series_sample.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::train {

/// The properties of a log line that determine whether it is kept.
struct LogPoint {
  enum class Kind { step, evaluation, end };                                ///< each kind is a separate series
  static constexpr std::size_t peaks_of_step = 4, peaks_of_evaluation = 2;  ///< number of values whose peaks are kept

  Kind kind = Kind::step;                 ///< what the line reports
  std::optional<std::int64_t> step = {};  ///< empty: the line has no step
  /// For a step: loss, -loss, grad_norm, step_time_ms; for an evaluation: eval_loss, -eval_loss. Missing values are 0;
  /// values that are not finite ("nan") are NaN.
  std::array<double, peaks_of_step> peaks = {};
};

LogPoint log_point(const Value& line);  ///< `line`: an object
/// Builds it from a line's text; empty: not a JSON object, or its step is not an integer.
std::optional<LogPoint> read_log_point(std::string_view line);

/// A sample per kind of line (series_sample.h). Not thread-safe.
template <class Line>
class LogSample {
 public:
  /// `buckets`: maximum number of buckets for each of steps, evaluations and ends.
  explicit LogSample(std::int64_t buckets) : steps_(buckets), evaluations_(buckets), ends_(buckets) {}

  /// A point without a step counts as step 0 or as the last of its kind.
  void add(const LogPoint& point, Line line) {
    const std::int64_t step = point.step.value_or(0);
    if (point.kind == LogPoint::Kind::step)
      steps_.add(place_++, step, point.peaks, std::move(line));
    else if (point.kind == LogPoint::Kind::evaluation)
      evaluations_.add(place_++, step, {point.peaks[0], point.peaks[1]}, std::move(line));
    else
      ends_.add(place_++, step, {}, std::move(line));
  }

  /// Returns the points of all kinds, in insertion order.
  std::vector<Line> lines() const {
    std::vector<std::pair<std::int64_t, const Line*>> places;
    const auto take = [&](const auto& series) {
      for (const auto* kept : series.lines()) places.emplace_back(kept->place, &kept->line);
    };
    take(steps_);
    take(evaluations_);
    take(ends_);
    std::sort(places.begin(), places.end());
    std::vector<Line> all;
    all.reserve(places.size());
    for (const auto& [place, line] : places) all.push_back(*line);
    return all;
  }
  std::size_t size() const { return steps_.lines().size() + evaluations_.lines().size() + ends_.lines().size(); }

 private:
  SeriesSample<Line, LogPoint::peaks_of_step> steps_;
  SeriesSample<Line, LogPoint::peaks_of_evaluation> evaluations_;
  SeriesSample<Line, 0> ends_;
  std::int64_t place_ = 0;
};

}  // namespace tessera::train
