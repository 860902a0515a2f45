#include <tessera/plan/lr_range.h>

#include <algorithm>
#include <cmath>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::plan {
namespace {

constexpr double weight = 0.2;    // weight of a new loss in the mean
constexpr double diverged = 4;    // multiple of the lowest loss
constexpr std::size_t reach = 3;  // points used on each side for a slope

}  // namespace

RangeTest range_test(const std::vector<RangePoint>& points) {
  RangeTest test;
  double mean = 0, sum = 0, least = HUGE_VAL;
  for (const RangePoint& point : points) {
    if (!std::isfinite(point.loss) || !(point.learning_rate > 0)) break;
    mean = (1 - weight) * mean + weight * point.loss;
    sum = (1 - weight) * sum + weight;
    test.points.push_back(point);
    test.smoothed.push_back(mean / sum);
    least = std::min(least, test.smoothed.back());
    if (test.smoothed.back() > diverged * least) break;
  }
  const std::size_t n = test.points.size();
  if (n < 5) throw InputError(concat("a learning-rate range test of ", n, " points is too short: at least 5"));
  double steepest = 0;
  for (std::size_t i = reach; i + reach < n; ++i) {
    const double decades = std::log10(test.points[i + reach].learning_rate / test.points[i - reach].learning_rate);
    if (decades <= 0) continue;
    const double slope = (test.smoothed[i + reach] - test.smoothed[i - reach]) / decades;
    if (slope < steepest) {
      steepest = slope;
      test.steepest = test.points[i].learning_rate;
    }
  }
  const auto lowest = std::min_element(test.smoothed.begin(), test.smoothed.end()) - test.smoothed.begin();
  test.lowest = test.points[static_cast<std::size_t>(lowest)].learning_rate;
  return test;
}

std::string draw(const RangeTest& test, int columns, int rows) {
  const auto [low, high] = std::minmax_element(test.smoothed.begin(), test.smoothed.end());
  const double first = std::log10(test.points.front().learning_rate),
               last = std::log10(test.points.back().learning_rate);
  std::vector<std::string> canvas(static_cast<std::size_t>(rows), std::string(static_cast<std::size_t>(columns), ' '));
  const auto column = [&](double rate) {
    return last > first ? static_cast<std::size_t>((std::log10(rate) - first) / (last - first) * (columns - 1)) : 0;
  };
  if (test.steepest > 0)
    for (std::string& line : canvas) line[column(test.steepest)] = ':';
  for (std::size_t i = 0; i < test.points.size(); ++i) {
    const double height = *high > *low ? (*high - test.smoothed[i]) / (*high - *low) : 0;
    canvas[static_cast<std::size_t>(height * (rows - 1))][column(test.points[i].learning_rate)] = '*';
  }
  std::string text;
  for (int row = 0; row < rows; ++row) {
    std::string label = row == 0 ? format_real(*high, 4) : row == rows - 1 ? format_real(*low, 4) : "";
    label.resize(10, ' ');
    text += concat(label, "|", canvas[static_cast<std::size_t>(row)], "\n");
  }
  std::string left = format_real(test.points.front().learning_rate, 3),
              right = format_real(test.points.back().learning_rate, 3);
  const auto width = static_cast<std::size_t>(columns);
  const std::size_t gap = width > left.size() + right.size() ? width - left.size() - right.size() : 1;
  return concat(text, std::string(11, ' '), left, std::string(gap, ' '), right, "   learning rate (log)\n");
}

std::string describe(const RangeTest& test) {
  if (test.steepest == 0) return "The loss never falls: start lower (--min_lr), use more --steps, or check the data.";
  return concat("Suggested learning rate: ", format_real(test.steepest, 2),
                ", where the loss falls fastest. It is lowest at ", format_real(test.lowest, 2),
                ", above which training becomes unstable; a tenth of that, ", format_real(test.lowest / 10, 2),
                ", is the other usual choice.");
}

}  // namespace tessera::plan
