#include <tessera/config/resolve/print.h>

#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/resolve/resolve.h>

namespace tessera::config {
namespace {

constexpr std::size_t help_column = 30, line_width = 80;  // for a terminal of 80 columns

std::string default_text(const Field& field) {
  const Value value = field.get(RunConfig{});
  switch (value.kind()) {
    case Value::Kind::string:
      return value.as_string();
    case Value::Kind::boolean:
      return value.as_bool() ? "true" : "false";
    case Value::Kind::integer:
      return std::to_string(value.as_int());
    default:
      return format_real(value.as_real());
  }
}

/// The default for --help; empty if it means "not given" and is outside the allowed range (0 processes).
std::string shown_default(const Field& field) {
  RunConfig scratch;
  const std::string text = default_text(field);
  return field.set(scratch, text) ? "" : text;
}

/// Appends `text` from help_column on, broken at blanks.
void append_wrapped(std::string& out, std::size_t column, const std::string& text) {
  const auto new_line = [&] {
    out += '\n';
    out.append(help_column, ' ');
    column = help_column;
  };
  if (column + 2 > help_column) new_line();
  out.append(help_column - column, ' ');
  column = help_column;
  for (const std::string& word : split(text, ' ')) {
    if (column > help_column && column + 1 + word.size() > line_width) new_line();
    if (column > help_column) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  out += '\n';
}

}  // namespace

Value to_value(const Resolved& resolved) {
  std::vector<Value::Member> sections;
  for (const Section section : all_sections) {
    std::vector<Value::Member> members;
    for (const Field& field : fields()) {
      if (field.section != section) continue;
      const std::string name(field.name);
      members.emplace_back(name, Value::make_object({{"value", field.get(resolved.values)},
                                                     {"origin", Value::of(resolved.origin(name).str())}}));
    }
    sections.emplace_back(std::string(section_key(section)), Value::make_object(std::move(members)));
  }
  return Value::make_object(std::move(sections));
}

std::string print_config_json(const Resolved& resolved) { return dump_json(to_value(resolved)) + "\n"; }

std::string help_text() {
  std::string out =
      "Trains a causal language model with one or more processes.\n\n"
      "usage: tessera train (--model_name_or_path DIR | --config_name NAME|FILE)\n"
      "                     --train_file FILE --output_dir DIR [settings]\n\n"
      "Names and defaults are Hugging Face's (run_clm.py, TrainingArguments).\n"
      "--x_y and --x-y are the same; a boolean is --x, --x false or --no_x.\n"
      "--print_config prints all settings with their origins as JSON and exits.\n";
  for (const Section section : all_sections) {
    out += concat("\n", section_title(section), "\n");
    for (const Field& field : fields()) {
      if (field.section != section) continue;
      std::string placeholder = field.placeholder(), help(field.help);
      // many words: put them into the text, which can be wrapped
      if (field.name.size() + placeholder.size() + 5 > line_width) {
        placeholder = "WORD";
        help += ": " + join(field.rule.words);
      }
      const std::string left = concat("  --", field.name, placeholder.empty() ? "" : " ", placeholder);
      const std::string by_default = shown_default(field);
      out += left;
      append_wrapped(out, left.size(), concat(help, by_default.empty() ? "" : concat(" [", by_default, "]")));
    }
  }
  return out;
}

}  // namespace tessera::config
