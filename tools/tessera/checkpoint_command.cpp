/// \file
/// tessera checkpoint: what can be done with model files without tensors.

#include <tessera/base/error.h>
#include <tools/tessera/checkpoint_tools.h>

#include <algorithm>
#include <iostream>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera checkpoint: model files and folders\n\n"
    "usage: tessera checkpoint convert SOURCE OUT_DIR [flags]   GGUF, .bin, .pt, DCP to a Hugging Face folder\n"
    "       tessera checkpoint inspect PATH [flags]             what a folder or file holds\n\n"
    "tessera checkpoint COMMAND --help explains one.\n";

}  // namespace

std::pair<Arguments, Arguments> split_positional(const Arguments& arguments,
                                                 const std::vector<std::string>& with_value) {
  std::pair<Arguments, Arguments> out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!word.starts_with("--")) {
      out.first.push_back(word);
      continue;
    }
    out.second.push_back(word);
    std::string name = word.substr(2);
    std::replace(name.begin(), name.end(), '-', '_');
    if (std::find(with_value.begin(), with_value.end(), name) != with_value.end() && i + 1 < arguments.size())
      out.second.push_back(arguments[++i]);
  }
  return out;
}

int checkpoint_command(const Arguments& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    (arguments.empty() ? std::cerr : std::cout) << help;
    return arguments.empty() ? static_cast<int>(ExitCode::bad_input) : 0;
  }
  const Arguments rest(arguments.begin() + 1, arguments.end());
  if (arguments[0] == "convert") return checkpoint_convert(rest);
  if (arguments[0] == "inspect") return checkpoint_inspect(rest);
  const std::vector<std::string> commands = {"convert", "inspect"};
  const auto near = nearest(arguments[0], commands);
  throw InputError(concat("tessera checkpoint has no command '", arguments[0], "'; ",
                          near ? concat("did you mean '", *near, "'?") : concat("the commands are ", join(commands))));
}

}  // namespace tessera::tool
