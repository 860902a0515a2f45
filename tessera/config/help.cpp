#include <tessera/base/text.h>
#include <tessera/config/fields.h>
#include <tessera/config/resolve.h>

namespace tessera::config {
namespace {

std::string default_text(const Field& field) {
  const Value value = get(field, RunConfig{});
  switch (value.kind()) {
    case Value::Kind::string: return value.as_string();
    case Value::Kind::boolean: return value.as_bool() ? "true" : "false";
    case Value::Kind::integer: return std::to_string(value.as_int());
    default: return format_real(value.as_real(), 9);
  }
}

std::string value_word(const Field& field) {
  const Value value = get(field, RunConfig{});
  if (!field.choices.empty()) return join(field.choices, "|");
  switch (value.kind()) {
    case Value::Kind::string: return "TEXT";
    case Value::Kind::boolean: return "";
    case Value::Kind::integer: return "N";
    default: return "X";
  }
}

}  // namespace

std::string help_text() {
  std::string out =
      "tessera train: trains a causal language model with one or more processes.\n\n"
      "  tessera train --config_name gpt2-tiny --train_file text.txt --output_dir out --max_steps 100 --num_processes 2\n\n"
      "Names and defaults are those of Hugging Face's run_clm.py and TrainingArguments; --x_y and --x-y are the same flag,\n"
      "booleans are --x, --x false or --no_x. --print_config prints the resolved settings with their origins and exits.\n";
  std::string section;
  for (const Field& field : fields()) {
    if (field.section != section) {
      section = field.section;
      out += concat("\n", section, "\n");
    }
    std::string left = concat("  --", field.name, " ", value_word(field));
    constexpr std::size_t column = 44;
    if (left.size() + 1 < column) left.append(column - left.size(), ' ');
    else left += "\n" + std::string(column, ' ');
    const std::string value = default_text(field);
    out += concat(left, field.help, value.empty() ? "" : concat(" [", value, "]"), "\n");
  }
  return out;
}

}  // namespace tessera::config
