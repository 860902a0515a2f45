#include <tessera/layout/gradient_compression.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::layout {
namespace {

/// In the order of the enumeration.
const std::vector<std::string> methods = {"none", "fp16", "bf16", "powersgd", "topk", "onebit"};

/// The settings after the colon; unused ones are errors.
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
                        : concat("unknown setting '", unknown, "'", near ? concat(" (did you mean ", *near, "?)") : "",
                                 "; the settings are ", join(known_)));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(concat("--grad_compression '", description_, "': ", method_, ": ", what));
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

}  // namespace

std::int64_t GradientCompression::whole_steps() const {
  if (method == CompressionMethod::powersgd) return powersgd.start;
  return method == CompressionMethod::onebit ? onebit_warmup : 0;
}

GradientCompression parse_gradient_compression(std::string_view description) {
  const auto colon = description.find(':');
  const bool has_settings = colon != std::string_view::npos;
  const std::string word = trim(description.substr(0, colon));
  const std::string_view text = has_settings ? description.substr(colon + 1) : "";
  if (has_settings && trim(text).empty())
    throw InputError(concat("--grad_compression '", description, "': settings are missing after the colon"));
  const auto method = std::find(methods.begin(), methods.end(), word);
  if (method == methods.end()) {
    const auto near = nearest(word, methods);
    throw InputError(concat("--grad_compression '", description, "': unknown method '", word, "'",
                            near ? concat(" (did you mean ", *near, "?)") : "", "; the methods are ", join(methods)));
  }
  GradientCompression read{.method = static_cast<CompressionMethod>(method - methods.begin())};
  Settings settings(description, word, text);
  if (read.method == CompressionMethod::powersgd) {
    PowerSgdOptions& o = read.powersgd;
    o.rank = settings.integer("rank", o.rank, 1);
    o.start = settings.integer("start", o.start, 0);
    o.error_feedback = settings.flag("error_feedback", o.error_feedback);
    o.warm_start = settings.flag("warm_start", o.warm_start);
    o.min_rate = settings.real("min_rate", o.min_rate, "a number of at least 0", [](double x) { return x >= 0; });
  } else if (read.method == CompressionMethod::topk) {
    read.topk_ratio =
        settings.real("ratio", read.topk_ratio, "above 0 and at most 1", [](double x) { return x > 0 && x <= 1; });
  } else if (read.method == CompressionMethod::onebit) {
    read.onebit_warmup = settings.integer("warmup", read.onebit_warmup, 0);
  }
  settings.end();
  return read;
}

}  // namespace tessera::layout
