#include "case_file.h"

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/resolve/resolve.h>

#include <stdexcept>

namespace tessera::config::testing {
namespace {

std::string behind(const std::string& line, std::size_t prefix) { return trim(line.substr(prefix)); }

std::string value_text(const Value& value) { return value.is_string() ? value.as_string() : dump_json(value, -1); }

}  // namespace

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false, any = false;
  for (const char c : text) {
    if (c == '\'') {
      quoted = !quoted;
      any = true;
    } else if (c == ' ' && !quoted) {
      if (any) words.push_back(word);
      word.clear();
      any = false;
    } else {
      word += c;
      any = true;
    }
  }
  if (any) words.push_back(word);
  return words;
}

std::vector<Case> read_cases(const std::string& path) {
  std::vector<Case> cases;
  enum { nothing, file, expect } inside = nothing;
  int number = 0;
  for (const std::string& line : split(read_file(path), '\n')) {
    ++number;
    const auto fail = [&](const char* what) { throw std::runtime_error(concat(path, ":", number, ": ", what)); };
    if (line.starts_with("== ")) {
      cases.emplace_back().name = behind(line, 3);
      cases.back().line = number;
      inside = nothing;
    } else if (cases.empty()) {
      if (!line.empty() && !line.starts_with("#")) fail("text before the first case");
    } else if (line.starts_with("-- file ")) {
      cases.back().files.emplace_back(behind(line, 8), "");
      inside = file;
    } else if (line.starts_with("-- environment ")) {
      const std::string setting = behind(line, 15);
      cases.back().environment[setting.substr(0, setting.find('='))] = setting.substr(setting.find('=') + 1);
      inside = nothing;
    } else if (line.starts_with("-- flags")) {
      cases.back().flags_text = behind(line, 8);
      cases.back().flags = words_of(cases.back().flags_text);
      inside = nothing;
    } else if (line == "-- expect") {
      inside = expect;
    } else if (inside == file) {
      cases.back().files.back().second += line + "\n";
    } else if (inside == expect) {
      if (!line.empty()) cases.back().expected.push_back(line);
    } else if (!line.empty()) {
      fail("text that belongs to no part of a case");
    }
  }
  return cases;
}

std::string introduction_of(const std::string& path) {
  const std::string text = read_file(path);
  const std::size_t first = text.starts_with("== ") ? 0 : text.find("\n== ");
  return text.substr(0, first == std::string::npos ? text.size() : first + (first > 0 ? 1 : 0));
}

std::string cases_text(const std::vector<Case>& cases, const std::string& introduction) {
  std::string out = introduction;
  for (const Case& c : cases) {
    out += concat("== ", c.name, "\n");
    for (const auto& [name, text] : c.files) out += concat("-- file ", name, "\n", text);
    for (const auto& [name, value] : c.environment) out += concat("-- environment ", name, "=", value, "\n");
    out += concat("-- flags ", c.flags_text, "\n-- expect\n");
    for (const std::string& line : c.expected) out += line + "\n";
    out += "\n";
  }
  if (out.ends_with("\n\n")) out.pop_back();
  return out;
}

std::vector<std::string> outcome(const Case& c) {
  for (const auto& [name, text] : c.files) write_file_atomically(name, text);
  const auto environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = c.environment.find(name);
    return found == c.environment.end() ? std::nullopt : std::optional(found->second);
  };
  Problems problems;
  // required by every run and irrelevant to the cases
  problems.doubtful = {"train_file",         "validation_file", "output_dir",
                       "model_name_or_path", "config_name",     "tokenizer_name"};
  const Resolved resolved = resolve_flags(c.flags, problems, environment);
  validate(resolved, problems);
  std::vector<std::string> lines;
  if (problems.told().empty()) {
    for (const Field& field : fields()) {
      const Origin& origin = resolved.origin(field.name);
      if (!origin.is_default())
        lines.push_back(concat(field.name, " = ", value_text(field.get(resolved.values)), " (", origin, ")"));
    }
    for (const std::string& note : unused_settings(resolved)) lines.push_back("~ " + note);
  }
  for (const std::string& problem : problems.told()) lines.push_back("! " + problem);
  for (const auto& [name, text] : c.files) remove_tree(name);
  return lines;
}

}  // namespace tessera::config::testing
