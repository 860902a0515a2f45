// The text of `tessera launch --help`, formatted for 80 columns.
#include <tessera/launch/cli/launch_flags.h>

#include <tessera/base/text.h>
#include <algorithm>

namespace tessera::launch {

namespace {

constexpr std::size_t width = 79, help_column = 30;

/// Wraps `text` into lines of at most `width` columns; the first starts at `column`, the others at `indent`.
std::string wrap(const std::string& text, std::size_t column, std::size_t indent) {
  std::string out;
  bool first = true;
  for (const std::string& word : split(text, ' ')) {
    if (!first && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
      first = true;
    }
    if (!first) ++column, out += ' ';
    out += word;
    column += word.size();
    first = false;
  }
  return out;
}

std::string describe(const LaunchFlag& flag) {
  const std::size_t shown = std::min<std::size_t>(flag.names.size(), 2);  // the other names are rarely used aliases
  std::string left = "  " + join(std::span(flag.names).first(shown)) + (flag.value.empty() ? "" : " " + flag.value);
  if (left.size() + 2 > help_column) {
    left += "\n" + std::string(help_column, ' ');
  } else {
    left.resize(help_column, ' ');
  }
  return left + wrap(flag.help, help_column, help_column) + "\n";
}

}  // namespace

std::string launch_help() {
  std::string text = "Usage: tessera launch [options] PROGRAM [arguments of the program]\n\n";
  text +=
      wrap(
          "Starts ranks of a program: one of Tessera's, your own, or a Python script (.py runs with python3). Each "
          "finds "
          "its place in RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. When a rank "
          "fails or freezes it is reported and the others are ended; nothing is left running. Ctrl-C and SIGTERM are "
          "passed on.",
          0, 0) +
      "\n";
  for (const LaunchFlag& flag : launch_flags()) {
    if (flag.names.empty()) {
      text += "\n" + (flag.help.empty() ? "" : flag.help + ":\n");
    } else if (!flag.help.empty()) {
      text += describe(flag);
    }
  }
  text +=
      "\n" +
      wrap(
          "Names may be written with - or _, values after = or as the next word. The other names of accelerate, "
          "torchrun and DeepSpeed's launcher are accepted too: they work, or an error names the replacement.",
          0, 0) +
      "\n\n" +
      wrap(
          "The exit code is that of the first rank that failed (128 + signal), 3 when the ranks stopped after saving, "
          "130 after Ctrl-C, 2 when nothing could be started.",
          0, 0) +
      "\n";
  return text;
}

}  // namespace tessera::launch
