/// \file
/// tessera checkpoint: operations on model files that need no tensors.

#include <tessera/base/error.h>
#include <tools/tessera/checkpoint_tools.h>

#include <algorithm>
#include <array>
#include <iostream>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera checkpoint: model files and folders\n\n"
    "usage: tessera checkpoint inspect PATH              contents of a folder or file\n"
    "       tessera checkpoint verify PATH...            compares every byte with its checksum\n"
    "       tessera checkpoint diff A B                  which tensors differ, and by how much\n"
    "       tessera checkpoint convert SOURCE OUT_DIR    GGUF, .bin, .pt or PyTorch's DCP to a\n"
    "                                                    Hugging Face folder\n"
    "       tessera checkpoint merge DIR OUT_DIR         shards to one model.safetensors\n"
    "       tessera checkpoint push DIR s3://B/PREFIX    copies one to an object store\n"
    "       tessera checkpoint fetch s3://B/PREFIX DIR   copies one from it, verified\n"
    "       tessera checkpoint ls s3://B/PREFIX          lists checkpoints\n\n"
    "See tessera checkpoint COMMAND --help.\n";

using Command = int (*)(const Arguments&);
constexpr std::array<std::pair<const char*, Command>, 8> commands{{{"inspect", checkpoint_inspect},
                                                                   {"verify", checkpoint_verify},
                                                                   {"diff", checkpoint_diff},
                                                                   {"convert", checkpoint_convert},
                                                                   {"merge", checkpoint_merge},
                                                                   {"push", checkpoint_push},
                                                                   {"fetch", checkpoint_fetch},
                                                                   {"ls", checkpoint_ls}}};

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
  std::vector<std::string> names;
  for (const auto& [name, command] : commands) {
    if (arguments[0] == name) return command(rest);
    names.emplace_back(name);
  }
  const auto near = nearest(arguments[0], names);
  throw InputError(concat("tessera checkpoint has no command '", arguments[0], "'; ",
                          near ? concat("did you mean '", *near, "'?") : concat("the commands are ", join(names))));
}

}  // namespace tessera::tool
