#include <tessera/config/deepspeed/deepspeed.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/json/json_lenient.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/resolved.h>
#include <tessera/config/deepspeed/deepspeed_reading.h>
#include <tessera/config/hf/sharding.h>

#include <algorithm>
#include <cmath>
#include <variant>

namespace tessera::config {
namespace deepspeed {
namespace {

constexpr std::uint64_t max_bytes = 1u << 20;
constexpr std::size_t max_text = 4096;
constexpr std::size_t max_listed = 16;
constexpr int max_unknown = 20;  // further ones are only counted: the file probably belongs to another system

std::string below(const std::string& section, const std::string& name) {
  return section.empty() ? name : concat(section, ".", name);
}

/// Checks a value's type; returns what is wrong. "auto" is always allowed.
std::optional<std::string> wrong_kind(Kind kind, const Value& value) {
  if (value.is_string() && value.as_string().size() > max_text)
    return concat("is text of ", value.as_string().size(), " bytes; the limit is ", max_text);
  const auto text = as_text(value, false);
  const std::string is = text ? concat("is ", Reading::shown(value), "; it")
                              : std::string(value.is_array()    ? "is a list; it"
                                            : value.is_object() ? "is an object; it"
                                                                : "is null; it");
  const bool scalar = text && !value.is_array();
  const bool boolean = value.kind() == Value::Kind::boolean;
  const double real = scalar && !boolean ? parse_real(*text).value_or(NAN) : NAN;
  switch (kind) {
    case Kind::flag:
      return scalar && parse_bool(*text) ? std::nullopt : std::optional(concat(is, " must be true or false"));
    case Kind::whole:
    case Kind::integer: {
      const double least = kind == Kind::whole ? 0 : -1e19;
      if (real >= least && real < 1e19 && std::trunc(real) == real) return std::nullopt;
      if (kind == Kind::whole && real < 0 && std::trunc(real) == real) return concat(is, " must be at least 0");
      return concat(is, " must be a whole number", kind == Kind::whole ? " (2e8 is one)" : "");
    }
    case Kind::number:
      return std::isfinite(real) ? std::nullopt : std::optional(concat(is, " must be a number"));
    case Kind::text:
      return value.is_string() ? std::nullopt : std::optional(concat(is, " must be text"));
    case Kind::list:
      return value.is_array() || value.is_string() ? std::nullopt : std::optional(concat(is, " must be a list"));
    case Kind::section:
      return value.is_object() ? std::nullopt : std::optional(concat(is, " must be an object {...}"));
    case Kind::anything:
      return std::nullopt;
  }
  return std::nullopt;
}

bool says_auto(const Value& value) { return value.is_string() && to_lower(trim(value.as_string())) == "auto"; }

bool switched_on(const Value& section, const std::string& name, bool anywhere) {
  if (!section.is_object()) return false;
  for (const auto& [key, value] : section.members()) {
    if (key == name && !value.is_null() && !means_no(value) && !says_auto(value)) return true;
    if (anywhere && switched_on(value, name, true)) return true;
  }
  return false;
}

/// Whether a value of an ignored or refused key has any effect.
bool asks(const Row& row, const Value& value) {
  if (says_auto(value)) return false;
  if (row.kind == Kind::section && value.is_object()) {
    if (row.harmless.empty()) return !value.members().empty();
    const bool anywhere = row.harmless.ends_with('*');
    return switched_on(value, std::string(row.harmless.substr(0, row.harmless.size() - (anywhere ? 1 : 0))), anywhere);
  }
  const auto text = as_text(value, true);
  if (!text || row.harmless.empty()) return true;
  const auto flag = row.kind == Kind::flag ? parse_bool(*text) : std::nullopt;
  const std::string meant = flag ? (*flag ? "true" : "false") : to_lower(*text);
  const auto harmless = split(row.harmless, '|');
  return std::find(harmless.begin(), harmless.end(), meant) == harmless.end();
}

class Walk {
 public:
  explicit Walk(Reading& r) : r_(r) {}

  void section(const Value& object, const std::string& path, bool quiet) {
    for (const auto& [name, value] : object.members()) key(path, name, value, quiet);
  }
  /// Determines whether unknown keys may be passed over: a file without any of DeepSpeed's keys belongs to another
  /// system.
  void look_ahead(const Value& root) {
    const auto known = [&](const Value::Member& member) {
      return member.first.starts_with('_') || find_row(present("", member.first)) != nullptr;
    };
    passes_over_ =
        r_.problems.unknown != UnknownWords::refuse && std::any_of(root.members().begin(), root.members().end(), known);
  }
  void report_rest(const Value& root) {
    if (unknown_ > max_unknown) r_.to.problem(root.where(), concat(unknown_ - max_unknown, " more unknown keys"));
  }

 private:
  /// Returns the current spelling of an older key; every stage3_x of ZeRO may also omit the prefix.
  static std::string present(const std::string& section, const std::string& name) {
    const std::string path = below(section, name);
    if (path == "bfloat16") return "bf16";
    if (path == "zero_optimization.cpu_offload_params") return "zero_optimization.cpu_offload_param";
    if (path == "zero_optimization.stage3_gather_fp16_weights_on_model_save")
      return "zero_optimization.stage3_gather_16bit_weights_on_model_save";
    if (section == "zero_optimization" && find_row(path) == nullptr)
      if (const std::string prefixed = below(section, "stage3_" + name); find_row(prefixed) != nullptr) return prefixed;
    return path;
  }

  void key(const std::string& section_path, const std::string& name, const Value& value, bool quiet) {
    const std::string written = below(section_path, name), path = present(section_path, name);
    const Row* row = find_row(path);
    if (row == nullptr && name.starts_with('_')) return r_.without_effect(written, "a comment", value.where());
    if (row == nullptr || name.find('.') != std::string::npos) return unknown(section_path, name, value);
    if (value.is_null()) return;
    if (const auto [first, is_first] = spelled_.emplace(path, std::pair(written, value.where())); !is_first)
      return r_.to.problem(
          value.where(),
          concat("Cannot provide ", written, " and ", first->second.first, " (", file_and_line(first->second.second),
                 ") together: they are the same parameter; keep one of them"),
          {row->setting});
    const bool as_flag = path == "zero_optimization" && value.kind() == Value::Kind::boolean;  // the oldest form
    if (const auto wrong = wrong_kind(row->kind, value);
        wrong && !as_flag && (!says_auto(value) || row->kind == Kind::section)) {
      if (row->effect == Effect::acts)
        return r_.to.problem(value.where(), concat(written, " ", *wrong), {row->setting});
      return r_.to.problem(value.where(), concat(written, " ", *wrong));
    }
    switch (row->effect) {
      case Effect::refused:
        if (asks(*row, value)) r_.to.problem(value.where(), concat(written, ": ", row->why));
        return;
      case Effect::ignored:
        if (!quiet && asks(*row, value)) r_.without_effect(written, row->why, value.where());
        if (row->kind == Kind::section && !names_below(path).empty()) section(value, path, true);
        return;
      case Effect::acts:
        break;
    }
    if (path == "autotuning" && !switched_on(value, "enabled", false)) return;
    r_.said.emplace(path, &value);
    if (row->kind == Kind::section && !as_flag) return section(value, path, quiet || is_off(path, value));
    if (row->direct && !says_auto(value)) r_.say(row->setting, written, value, row->hf);
  }

  /// No offload device is set, so the rest of the section has no effect.
  static bool is_off(const std::string& path, const Value& section) {
    if (path != "zero_optimization.offload_optimizer" && path != "zero_optimization.offload_param") return false;
    const Value* device = section.find("device");
    return device == nullptr || means_nothing(*device) || says_auto(*device);
  }

  void unknown(const std::string& section_path, const std::string& name, const Value& value) {
    if (++unknown_ > max_unknown) return;
    const std::string shown = name.size() > 80 ? concat(name.substr(0, 80), "...") : name;
    // DeepSpeed ignores unknown keys in these sections (in older versions also in fp16 and bf16); its other sections
    // have a schema and refuse them.
    static constexpr std::string_view free_sections[] = {"", "optimizer", "pipeline", "checkpoint", "fp16", "bf16"};
    const bool free =
        std::find(std::begin(free_sections), std::end(free_sections), section_path) != std::end(free_sections);
    doubts_ = !passes_over_ || !free;
    if (!doubts_)
      return r_.to.note(value.where(), concat("unknown key ", below(section_path, shown),
                                              ", which DeepSpeed ignores, has no effect", hint(section_path, name)));
    r_.to.problem(value.where(), concat("unknown key ", below(section_path, shown), hint(section_path, name)));
  }

  /// Returns the one of `names` for which `name` is another program's synonym; nullopt if it is not one.
  static std::optional<std::string> in_other_words(const std::string& name, const std::vector<std::string>& names) {
    static constexpr std::pair<std::string_view, std::string_view> others[] = {{"learning_rate", "lr"},
                                                                               {"warmup_steps", "warmup_num_steps"},
                                                                               {"num_warmup_steps", "warmup_num_steps"},
                                                                               {"total_steps", "total_num_steps"},
                                                                               {"max_steps", "total_num_steps"},
                                                                               {"max_grad_norm", "gradient_clipping"},
                                                                               {"epsilon", "eps"}};
    for (const auto& [theirs, ours] : others)
      if (name == theirs && std::find(names.begin(), names.end(), ours) != names.end()) return std::string(ours);
    return std::nullopt;
  }

  /// Returns the name closest to `name`, or the only one that starts with it.
  static std::optional<std::string> likely(const std::string& name, const std::vector<std::string>& names) {
    if (const auto near = nearest(name, names)) return near;
    const auto begins = [&](const std::string& other) { return name.size() > 3 && other.starts_with(name); };
    const auto first = std::find_if(names.begin(), names.end(), begins);
    return first != names.end() && std::count_if(names.begin(), names.end(), begins) == 1 ? std::optional(*first)
                                                                                          : std::nullopt;
  }

  std::string hint(const std::string& section_path, const std::string& name) {
    if (name.size() > 80) return {};
    if (const std::size_t dot = name.rfind('.');
        dot != std::string::npos && find_row(below(section_path, name)) != nullptr) {
      doubt(below(section_path, name));  // a path is not a key: {"fp16.enabled": true}
      return concat("; write it as ", name.substr(dot + 1), " in the section ",
                    below(section_path, name.substr(0, dot)));
    }
    const std::vector<std::string> here = names_below(section_path), elsewhere = paths_of(name);
    const auto meant = in_other_words(name, here);
    if (!meant && elsewhere.size() == 1) {
      doubt(elsewhere.front());
      const std::size_t dot = elsewhere.front().rfind('.');
      return dot == std::string::npos ? std::string("; it belongs to the top level")
                                      : concat("; it belongs in ", elsewhere.front().substr(0, dot));
    }
    if (const auto near = meant ? meant : likely(name, here)) {
      doubt(below(section_path, *near));
      return concat("; did you mean ", *near, "?");
    }
    if (find_field(name) != nullptr) return concat("; it is not a DeepSpeed key but a setting of the run: --", name);
    if (!doubts_) return {};
    if (section_path.empty() || here.size() > max_listed) return "; docs/configuration.md lists the keys";
    return concat("; the keys there are ", join(here));
  }

  void doubt(const std::string& path) {
    if (const Row* row = find_row(path); doubts_ && row != nullptr && !row->setting.empty())
      r_.problems.doubtful.emplace(row->setting);
  }

  Reading& r_;
  std::map<std::string, std::pair<std::string, SourcePos>> spelled_;
  int unknown_ = 0;
  bool passes_over_ = false, doubts_ = true;
};

/// Decodes both base64 alphabets, with or without padding; nullopt for anything else.
std::optional<std::string> from_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '-' || c == '+' ? 62
                      : c == '_' || c == '/' ? 63
                                             : -1;
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out += static_cast<char>(bits >> held & 0xFF);
  }
  return out;
}

/// `named_by`: origin of the source.
Value read_source(const std::string& given, const std::string& named_by) {
  const auto parse = [](const std::string& text, const std::string& name) {
    if (text.size() > max_bytes)
      throw InputError(concat(name, ": ", text.size(), " bytes exceed the limit of a configuration (", max_bytes, ")"));
    Value root = parse_hjson(text, name);
    if (!root.is_object())
      throw InputError(concat(root.where().str(), ": expected an object with keys such as train_batch_size"));
    return root;
  };
  if (trim(given).starts_with("{"))  // an object in a file: its line in the file, and the position in the object
    return parse(given, named_by.starts_with("--") ? "deepspeed" : named_by);
  if (is_directory(given)) throw InputError(concat(named_by, " ", given, " is a folder; expected a JSON file"));
  if (path_exists(given)) return parse(read_file(given, max_bytes), given);
  if (const auto decoded = from_base64(trim(given)); decoded && trim(*decoded).starts_with("{"))
    return parse(*decoded, "deepspeed (base64)");
  throw InputError(
      concat(named_by, " ", given.size() > 200 ? concat(given.substr(0, 200), "...") : given, ": no such file",
             named_by.starts_with("--") ? " (a JSON object starts with '{'; base64 of one is accepted, too)"
                                        : ", neither here nor next to the file that names it: correct the path"));
}

void tell_without_effect(Reading& r, const Value& root) {
  if (r.idle.empty()) return;
  std::vector<std::string> parts;
  for (const auto& [why, keys] : r.idle) parts.push_back(concat(join(keys), ": ", why));
  r.to.note(root.where(), concat("without effect here: ", join(parts, "; ")));
}

/// Without the key, DeepSpeed does not clip; since 0.19.3 (June 2026) it clips at 1. transformers' default of 1 does
/// not apply to it.
void without_clipping(Reading& r, const Value& root) {
  if (!r.given_elsewhere("max_grad_norm")) {
    r.to.give("max_grad_norm", "gradient_clipping", "0", root.where());
    return r.to.note(root.where(),
                     "gradient_clipping is not set: gradients are not clipped, as in DeepSpeed before 0.19.3; later "
                     "versions clip at 1.0; set gradient_clipping to 0.0 or 1.0");
  }
  if (r.so_far.values.optimization.max_grad_norm > 0)
    r.to.note(root.where(), concat("gradient_clipping is not set, so DeepSpeed before 0.19.3 would not clip; here ",
                                   r.so_far.origin("max_grad_norm"), " ",
                                   format_real(r.so_far.values.optimization.max_grad_norm), " clips"));
}

Translation read(const std::string& given, const Resolved& so_far, Problems& problems, bool alone) {
  Reading r(so_far, problems, alone);
  const std::size_t before = problems.lines.size();
  try {
    const Origin& origin = so_far.origin("deepspeed");
    const Value root =
        read_source(given, origin.kind == Origin::Kind::file ? concat(origin, ": deepspeed") : "--deepspeed");
    Walk walk(r);
    walk.look_ahead(root);
    walk.section(root, "", false);
    walk.report_rest(root);
    if (!r.said.contains("gradient_clipping")) without_clipping(r, root);
    read_mesh(r);
    read_batch_sizes(r);
    read_precision(r);
    read_optimizer(r);
    read_scheduler(r);
    read_zero(r);
    read_communication(r);
    read_compression_training(r);
    read_block_routing(r);
    read_autotuning(r);
    read_tensorboard(r);
    tell_without_effect(r, root);
  } catch (const InputError& error) {
    problems.lines.emplace_back(error.what());
  }
  if (problems.lines.size() > before) problems.doubtful.insert("deepspeed");
  return r.to.take();
}

}  // namespace

const Value* Reading::value(std::string_view path) const {
  const auto found = said.find(path);
  return found == said.end() || says_auto(*found->second) ? nullptr : found->second;
}
bool Reading::is_auto(std::string_view path) const {
  const auto found = said.find(path);
  return found != said.end() && says_auto(*found->second);
}
std::optional<std::int64_t> Reading::whole(std::string_view path) const {
  const Value* found = value(path);
  return found == nullptr ? std::nullopt : parse_int(*as_text(*found, true));
}
std::optional<double> Reading::number(std::string_view path) const {
  const Value* found = value(path);
  return found == nullptr ? std::nullopt : parse_real(*as_text(*found, false));
}
std::optional<bool> Reading::flag(std::string_view path) const {
  const Value* found = value(path);
  return found == nullptr ? std::nullopt : parse_bool(*as_text(*found, false));
}
std::optional<std::string> Reading::text(std::string_view path) const {
  const Value* found = value(path);
  return found == nullptr || !found->is_string() ? std::nullopt : std::optional(trim(found->as_string()));
}

bool Reading::given_elsewhere(std::string_view setting) const { return so_far.origin(setting).is_given(); }

std::string Reading::mismatch(const std::string& path, const std::string& theirs, std::string_view hf,
                              const std::string& ours) {
  return concat("- ds ", path, "=", theirs, " vs hf ", hf, "=", ours);
}

std::string Reading::shown(const Value& value) {
  if (value.is_string())
    return value.as_string().size() > 80 ? concat("'", value.as_string().substr(0, 80), "...'")
                                         : concat("'", value.as_string(), "'");
  if (value.kind() == Value::Kind::real) return format_real(value.as_real());
  if (!value.is_array()) return dump_json(value, -1);
  std::vector<std::string> items;
  for (const Value& item : value.items()) {
    if (items.size() == 4) {
      items.push_back("...");
      break;
    }
    items.push_back(item.is_object() ? "{...}" : item.is_array() ? "[...]" : shown(item));
  }
  return concat("[", join(items), "]");
}

bool Reading::agrees(std::string_view setting, const std::string& path, const std::string& text, const SourcePos& where,
                     std::string_view hf) {
  if (!given_elsewhere(setting)) return true;
  const Field* field = find_field(setting);
  RunConfig theirs, ours = so_far.values;
  if (field->set(theirs, text)) return true;  // reported elsewhere
  const Value a = field->get(theirs), b = field->get(ours);
  if (dump_json(a) == dump_json(b)) return true;
  const std::string said_here = a.is_number() || a.kind() == Value::Kind::boolean ? shown(a) : text;
  const std::string said_there = b.is_string() ? b.as_string() : shown(b);
  to.problem(where,
             concat(mismatch(path, said_here, hf.empty() ? setting : hf, said_there), " (", so_far.origin(setting),
                    "): make them equal, or remove one of them"),
             {setting});
  return false;
}

void Reading::say(std::string_view setting, const std::string& path, const std::string& text, const SourcePos& where,
                  std::string_view hf) {
  if (agrees(setting, path, text, where, hf)) to.give(setting, path, text, where);
}

void Reading::say(std::string_view setting, const std::string& path, const Value& value, std::string_view hf) {
  const bool integer = std::holds_alternative<std::int64_t& (*)(RunConfig&)>(find_field(setting)->access);
  if (const auto text = as_text(value, integer)) return say(setting, path, *text, value.where(), hf);
  to.give(setting, path, value);
}

void Reading::otherwise(std::string_view setting, const std::string& path, const std::string& text,
                        const SourcePos& where) {
  if (!given_elsewhere(setting)) to.give(setting, path, text, where);
}

void Reading::without_effect(const std::string& path, std::string_view why, const SourcePos& where) {
  idle[std::string(why)].push_back(concat(path, " (line ", where.line, ")"));
}

}  // namespace deepspeed

Value deepspeed_object(const std::string& given) { return deepspeed::read_source(given, "deepspeed"); }

Translation read_deepspeed(const std::string& given, const Resolved& so_far, Problems& problems) {
  return deepspeed::read(given, so_far, problems, false);
}

Resolved resolve_deepspeed(const std::string& given, std::int64_t world_size, Problems& problems) {
  Resolved resolved;
  resolved.values.files.deepspeed = given;
  resolved.values.parallel.num_processes = world_size;
  resolved.origins["num_processes"] = Origin::derived("the processes that run");
  apply(deepspeed::read(given, resolved, problems, true), resolved);
  resolve_sharding(resolved, problems);
  return resolved;
}

}  // namespace tessera::config
