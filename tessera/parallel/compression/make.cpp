// "powersgd:rank=2,start=1000" -> a method.
#include <tessera/base/error.h>
#include <tessera/parallel/compression/half.h>
#include <tessera/parallel/compression/onebit.h>
#include <tessera/parallel/compression/powersgd.h>
#include <tessera/parallel/compression/topk.h>

#include <functional>

namespace tessera::parallel {

namespace {

// The settings after the colon; those that nobody asks for are errors.
class Settings {
 public:
  Settings(std::string_view description, std::string method, std::string_view text)
      : description_(description), method_(std::move(method)) {
    if (text.empty()) return;
    for (const std::string& item : split(text, ',')) {
      const auto equals = item.find('=');
      const std::string name = trim(item.substr(0, equals));
      if (equals == std::string::npos || name.empty()) fail(concat("'", item, "' is not NAME=VALUE"));
      if (!values_.emplace(name, trim(item.substr(equals + 1))).second) fail(concat("'", name, "' is given twice"));
    }
  }

  std::int64_t integer(const std::string& name, std::int64_t default_value, std::int64_t least) {
    const auto text = take(name);
    if (!text) return default_value;
    const auto value = parse_int(*text);
    if (!value || *value < least)
      fail(concat(name, " is '", *text, "'; it must be a whole number of at least ", least));
    return *value;
  }
  bool flag(const std::string& name, bool default_value) {
    const auto text = take(name);
    if (!text) return default_value;
    if (*text == "1" || *text == "true") return true;
    if (*text == "0" || *text == "false") return false;
    fail(concat(name, " is '", *text, "'; it must be true or false"));
  }
  double real(const std::string& name, double default_value, const std::string& rule,
              const std::function<bool(double)>& fits) {
    const auto text = take(name);
    if (!text) return default_value;
    const auto value = parse_real(*text);
    if (!value || !fits(*value)) fail(concat(name, " is '", *text, "'; it must be ", rule));
    return *value;
  }
  void end() {
    if (values_.empty()) return;
    const std::string& unknown = values_.begin()->first;
    const auto near = nearest(unknown, known_);
    fail(known_.empty() ? concat("it takes no settings, but '", unknown, "' is given")
                        : concat("there is no setting '", unknown, "'",
                                 near ? concat(" (did you mean ", *near, "?)") : "", "; it takes ", join(known_)));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(concat("gradient compression '", description_, "': ", method_, ": ", what));
  }

 private:
  std::optional<std::string> take(const std::string& name) {
    known_.push_back(name);
    const auto found = values_.find(name);
    if (found == values_.end()) return std::nullopt;
    std::string value = found->second;
    values_.erase(found);
    return value;
  }

  std::string description_, method_;
  std::map<std::string, std::string> values_;
  std::vector<std::string> known_;
};

std::shared_ptr<Compression> make(const std::string& method, Settings& settings) {
  if (method == "fp16") return std::make_shared<HalfCompression>(at::kHalf);
  if (method == "bf16") return std::make_shared<HalfCompression>(at::kBFloat16);
  if (method == "powersgd") {
    PowerSgdOptions o;
    o.rank = settings.integer("rank", o.rank, 1);
    o.start = settings.integer("start", o.start, 0);
    o.error_feedback = settings.flag("error_feedback", o.error_feedback);
    o.warm_start = settings.flag("warm_start", o.warm_start);
    o.min_rate = settings.real("min_rate", o.min_rate, "a number of at least 0", [](double x) { return x >= 0; });
    return std::make_shared<PowerSgdCompression>(o);
  }
  if (method == "topk") {
    return std::make_shared<TopKCompression>(
        settings.real("ratio", 0.01, "above 0 and at most 1", [](double x) { return x > 0 && x <= 1; }));
  }
  if (method == "onebit") return std::make_shared<OneBitCompression>(settings.integer("warmup", 100, 0));
  return nullptr;
}

}  // namespace

std::shared_ptr<Compression> make_compression(std::string_view description) {
  const auto colon = description.find(':');
  const std::string method = trim(description.substr(0, colon));
  if (colon != std::string_view::npos && trim(description.substr(colon + 1)).empty()) {
    throw InputError(concat("gradient compression '", description, "': nothing follows the colon"));
  }
  if (method == "none" && colon == std::string_view::npos) return nullptr;
  Settings settings(description, method, colon == std::string_view::npos ? "" : description.substr(colon + 1));
  std::shared_ptr<Compression> made = make(method, settings);
  if (made == nullptr) {
    const std::vector<std::string> methods = {"none", "fp16", "bf16", "powersgd", "topk", "onebit"};
    const auto near = nearest(method, methods);
    throw InputError(concat("gradient compression '", description, "': there is no method '", method, "'",
                            near ? concat(" (did you mean ", *near, "?)") : "", "; the methods are ", join(methods)));
  }
  settings.end();
  return made;
}

}  // namespace tessera::parallel
