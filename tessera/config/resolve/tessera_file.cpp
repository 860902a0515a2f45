#include <tessera/config/resolve/tessera_file.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/resolved.h>
#include <tessera/config/hf/training_args.h>

#include <algorithm>

namespace tessera::config {
namespace {

bool is_section(std::string_view key) {
  return std::any_of(std::begin(all_sections), std::end(all_sections),
                     [&](Section section) { return section_key(section) == key; });
}

/// Whether a value has the form {"value": ..., "origin": ...} of --print_config.
bool is_leaf(const Value& value) {
  return value.is_object() && value.members().size() == 2 && value.find("value") != nullptr &&
         value.find("origin") != nullptr && value.at("origin").is_string();
}

/// Whether a leaf is skipped: its value is a default or derived, or it names a file whose settings are in the tree.
bool is_passed_over(std::string_view key, const Value& leaf) {
  return !printed_as_given(leaf.at("origin").as_string()) || key == "config" || key == "args_file";
}

class Reader {
 public:
  explicit Reader(Problems& problems) : problems_(problems) {}

  std::vector<FileArgument> read(const Value& file) {
    if (file.is_null()) return {};  // comments only
    if (!file.is_object()) {
      problem(file, "expected settings such as learning_rate: 5e-5");
      return {};
    }
    for (const auto& [key, value] : file.members()) {
      if (key == "$schema") continue;  // for editors
      if (is_section(key))
        read_section(key, value);
      else if (const auto meant = misspelt_section(key, value))
        problem(value, concat("unknown section ", key, "; did you mean ", *meant, "?"));
      else
        add(key, value, {});
    }
    return std::move(arguments_);
  }

 private:
  void problem(const Value& value, const std::string& what) {
    problems_.lines.push_back(concat(value.where().str(), ": ", what));
  }

  /// Returns the section with a similar name, if the member cannot be anything else.
  static std::optional<std::string> misspelt_section(const std::string& key, const Value& value) {
    if (!value.is_object() || is_leaf(value) || find_field(key) != nullptr || find_training_argument(key) != nullptr)
      return std::nullopt;
    std::vector<std::string> names;
    for (const Section section : all_sections) names.emplace_back(section_key(section));
    return nearest(key, names);
  }

  void read_section(const std::string& section, const Value& value) {
    if (value.is_null()) return;
    if (!value.is_object()) return problem(value, concat(section, " is a section and must contain settings by name"));
    for (const auto& [key, inner] : value.members()) add(key, inner, section);
  }

  void add(const std::string& key, const Value& value, const std::string& section) {
    const bool leaf = is_leaf(value);
    if (leaf && is_passed_over(key, value)) return;
    const Field* field = find_field(key);
    if (field != nullptr && !section.empty() && section_key(field->section) != section)
      return problem(value,
                     concat(key, " is in the section ", section, "; it belongs to ", section_key(field->section)));
    arguments_.push_back({key, leaf ? value.at("value") : value});
  }

  Problems& problems_;
  std::vector<FileArgument> arguments_;
};

}  // namespace

Translation read_tessera(const Value& file, const std::string& path, Problems& problems) {
  return read_file_arguments(path, Reader(problems).read(file), {}, problems);
}

Translation read_tessera_file(const std::string& path, Problems& problems) {
  try {
    std::vector<std::string> repeated;
    const Value file = read_settings_file(path, "--config", &repeated);
    Translation read = read_tessera(file, path, problems);
    read.notes.insert(read.notes.begin(), repeated.begin(), repeated.end());
    return read;
  } catch (const InputError& error) {
    problems.lines.push_back(error.what());
    return {};
  }
}

}  // namespace tessera::config
