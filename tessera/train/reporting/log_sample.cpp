#include <tessera/train/reporting/log_sample.h>

#include <tessera/base/json/json_skim.h>
#include <tessera/base/text.h>

#include <limits>

namespace tessera::train {
namespace {

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

/// Builds a point from the members of a line, in any order.
class PointOfMembers {
 public:
  /// `text`: value of a string; empty for a number.
  void take(std::string_view name, double number, std::string_view text) {
    if (name == "event")
      event_ = text;
    else if (name == "eval_loss")
      evaluated_ = number;
    else if (name == "loss")
      loss_ = number;
    else if (name == "grad_norm")
      norm_ = number;
    else if (name == "step_time_ms")
      time_ = number;
    else if (name == "train_runtime")
      ends_ = true;
  }

  LogPoint point(std::optional<std::int64_t> step) const {
    LogPoint point;
    point.step = step;
    const bool evaluation = event_ == "eval" || (event_.empty() && evaluated_ && !loss_);
    point.kind = evaluation                 ? LogPoint::Kind::evaluation
                 : ends_ || !event_.empty() ? LogPoint::Kind::end
                                            : LogPoint::Kind::step;
    if (point.kind == LogPoint::Kind::evaluation) {
      point.peaks = {evaluated_.value_or(0), -evaluated_.value_or(0)};
    } else if (point.kind == LogPoint::Kind::step) {
      point.peaks = {loss_.value_or(0), -loss_.value_or(0), norm_.value_or(0), time_.value_or(0)};
    }
    return point;
  }

 private:
  std::string_view event_;
  bool ends_ = false;
  std::optional<double> loss_, evaluated_, norm_, time_;
};

}  // namespace

LogPoint log_point(const Value& line) {
  PointOfMembers members;
  std::optional<std::int64_t> step;
  for (const auto& [name, value] : line.members()) {
    if (name == "step") step = value.as_int();
    members.take(name, value.is_number() ? value.as_real() : no_number,
                 value.is_string() ? std::string_view(value.as_string()) : std::string_view());
  }
  return members.point(step);
}

std::optional<LogPoint> read_log_point(std::string_view line) {
  PointOfMembers members;
  std::optional<std::int64_t> step;
  bool whole_step = true;
  const bool is_object = skim_json_object(line, [&](std::string_view name, std::string_view value) {
    if (name == "step") {
      step = parse_int(value);
      whole_step = step.has_value();
    }
    const bool quoted = value.starts_with('"');
    members.take(name, quoted ? no_number : parse_real(value).value_or(no_number),
                 quoted ? value.substr(1, value.size() - 2) : std::string_view());
  });
  if (!is_object || !whole_step) return {};
  return members.point(step);
}

}  // namespace tessera::train
