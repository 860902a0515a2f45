#include <tessera/plan/measured.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/system/host_name.h>
#include <tessera/base/text.h>
#include <tessera/base/user_folders.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace tessera::plan {
namespace {

constexpr std::string_view names[works] = {
    "product_fp32",   "product_fp32_backward",   "product_bf16",   "product_bf16_backward",
    "attention_fp32", "attention_fp32_backward", "attention_bf16", "attention_bf16_backward",
    "norm",           "norm_backward",           "gate",           "gate_backward",
    "update"};

Value value_of(const Curve& curve) {
  std::vector<Value> points;
  for (const Curve::Point& p : curve.points)
    points.push_back(Value::make_array({Value::of(p.size), Value::of(p.seconds), Value::of(p.spread)}));
  return Value::make_array(std::move(points));
}

Curve read_curve(const Value& value) {
  Curve curve;
  if (value.items().empty() || value.items().size() > 10'000)
    throw InputError(concat(value.where().str(), ": a curve has 1 to 10000 points [size, seconds, spread]"));
  for (const Value& point : value.items()) {
    const std::vector<Value>& numbers = point.items();
    if (numbers.size() != 3)
      throw InputError(
          concat(point.where().str(), ": ", numbers.size(), " numbers; a point is [size, seconds, spread]"));
    const Curve::Point p{numbers[0].as_real(), numbers[1].as_real(), numbers[2].as_real()};
    if (!(p.size > 0 && p.size < 1e18 && p.seconds > 0 && p.seconds < 1e6 && p.spread >= 0 && p.spread < 1e6))
      throw InputError(concat(point.where().str(), ": size and seconds must be above 0, the spread at least 0"));
    if (!curve.points.empty() && p.size <= curve.points.back().size)
      throw InputError(concat(point.where().str(), ": sizes must ascend"));
    curve.points.push_back(p);
  }
  return curve;
}

double read_between(const Value& value) {
  const double ratio = value.as_real();
  if (!(ratio >= 0.5 && ratio <= 4))
    throw InputError(concat(value.where().str(), ": ", ratio, "; a step over the sum of its operations, 0.5 to 4"));
  return ratio;
}

int read_count(const Value& value, int most) {
  const std::int64_t n = value.as_int();
  if (n < 1 || n > most) throw InputError(concat(value.where().str(), ": ", n, "; 1 to ", most));
  return static_cast<int>(n);
}

}  // namespace

double Curve::at(double size) const {
  const Point &first = points.front(), &last = points.back();
  if (size <= first.size) return first.seconds;
  if (size >= last.size) return last.seconds * size / last.size;
  const auto above =
      std::upper_bound(points.begin(), points.end(), size, [](double x, const Point& p) { return x < p.size; });
  const Point &a = *(above - 1), &b = *above;
  const double share = std::log(size / a.size) / std::log(b.size / a.size);
  return a.seconds * std::pow(b.seconds / a.seconds, share);
}

std::string_view name_of(Work work) { return names[static_cast<std::size_t>(work)]; }

const Curve* Speeds::exchange(std::string_view op, int ranks) const {
  for (const Exchange& e : exchanges)
    if (e.ranks == ranks && e.op == op) return &e.curve;
  return nullptr;
}

Value speeds_value(const std::vector<std::shared_ptr<const Speeds>>& all) {
  std::vector<Value> entries;
  for (const auto& speeds : all) {
    std::vector<Value::Member> members = {{"processes", Value::of(speeds->processes)},
                                          {"threads", Value::of(speeds->threads)}};
    for (std::size_t i = 0; i < works; ++i)
      if (!speeds->curves[i].empty()) members.emplace_back(std::string(names[i]), value_of(speeds->curves[i]));
    members.emplace_back("between_fp32", Value::of(speeds->between_fp32));
    members.emplace_back("between_bf16", Value::of(speeds->between_bf16));
    std::vector<Value> exchanges;
    for (const Speeds::Exchange& e : speeds->exchanges)
      exchanges.push_back(
          Value::make_object({{"op", Value::of(e.op)}, {"ranks", Value::of(e.ranks)}, {"curve", value_of(e.curve)}}));
    if (!exchanges.empty()) members.emplace_back("exchanges", Value::make_array(std::move(exchanges)));
    entries.push_back(Value::make_object(std::move(members)));
  }
  return Value::make_array(std::move(entries));
}

std::vector<std::shared_ptr<const Speeds>> read_speeds(const Value& value) {
  std::vector<std::shared_ptr<const Speeds>> all;
  for (const Value& entry : value.items()) {
    auto speeds = std::make_shared<Speeds>();
    speeds->processes = read_count(entry.at("processes"), 65536);
    speeds->threads = read_count(entry.at("threads"), 65536);
    if (!all.empty() && speeds->processes <= all.back()->processes)
      throw InputError(concat(entry.where().str(), ": numbers of processes must ascend"));
    for (const auto& [key, member] : entry.members()) {
      if (key == "processes" || key == "threads") continue;
      if (key == "between_fp32" || key == "between_bf16") {
        (key == "between_fp32" ? speeds->between_fp32 : speeds->between_bf16) = read_between(member);
        continue;
      }
      if (key == "exchanges") {
        for (const Value& e : member.items())
          speeds->exchanges.push_back(
              {e.at("op").as_string(), read_count(e.at("ranks"), 65536), read_curve(e.at("curve"))});
        continue;
      }
      const auto* found = std::find(std::begin(names), std::end(names), key);
      if (found == std::end(names)) {
        const std::vector<std::string> known(std::begin(names), std::end(names));
        const auto near = nearest(key, known);
        throw InputError(concat(member.where().str(), ": unknown member \"", key, "\"",
                                near ? concat("; did you mean ", *near, "?") : ""));
      }
      speeds->curves[static_cast<std::size_t>(found - std::begin(names))] = read_curve(member);
    }
    for (const Work needed : {Work::product_fp32, Work::attention_fp32, Work::norm, Work::gate, Work::update})
      if ((*speeds)[needed].empty())
        throw InputError(concat(entry.where().str(), ": \"", name_of(needed), "\" is missing"));
    all.push_back(std::move(speeds));
  }
  return all;
}

std::shared_ptr<const Speeds> speeds_for(const std::vector<std::shared_ptr<const Speeds>>& all, int processes) {
  for (const auto& speeds : all)
    if (speeds->processes >= processes) return speeds;
  return all.empty() ? nullptr : all.back();
}

std::string calibration_file() {
  const auto folder = user_cache_folder();
  if (!folder) throw InputError("no folder for measurements: neither XDG_CACHE_HOME nor HOME is set; specify a file");
  return path_join(path_join(*folder, "hardware"), host_name("host") + ".json");
}

}  // namespace tessera::plan
