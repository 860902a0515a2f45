/// \file
/// The program `tessera`: dispatches the first word to its subcommand, and turns errors into a message and an exit
/// code. Torch-free, so that it starts in milliseconds.

#include <tessera/base/error.h>
#include <tessera/base/system/file_limit.h>
#include <tools/tessera/commands.h>

#include <cstdio>
#include <exception>
#include <new>

namespace tessera::tool {
namespace {

using Command = int (*)(const Arguments&);

int generate_command(const Arguments& arguments) { return run_with_tensors("generate", arguments); }
int chat_command(const Arguments& arguments) { return run_with_tensors("chat", arguments); }
int embed_command(const Arguments& arguments) { return run_with_tensors("embed", arguments); }
int env_command(const Arguments& arguments) { return run_with_tensors("env", arguments); }
int test_command(const Arguments& arguments) { return run_with_tensors("test", arguments); }

struct Row {
  std::string name;
  Command run;
  const char* help;
};

const std::vector<Row>& commands() {
  static const std::vector<Row> rows = {
      {"train", train_command, "train a language model, with one or more processes"},
      {"generate", generate_command, "continue a prompt with a trained model"},
      {"chat", chat_command, "talk with a trained model in the terminal"},
      {"embed", embed_command, "encode texts as vectors with a BERT, for retrieval"},
      {"launch", launch_command, "run any program as several ranks"},
      {"config", config_command,
       "show, check and convert configurations; create one interactively, as `accelerate config`"},
      {"tokenizer", tokenizer_command, "train a byte-level BPE tokenizer; encode and decode with any"},
      {"tokenize", tokenize_command, "turn text into a .bin/.idx token file"},
      {"cache", cache_command, "list, check and remove cached tokens of texts"},
      {"data", data_command, "inspect, check, shuffle, split and merge data sets"},
      {"checkpoint", checkpoint_command, "inspect, verify, compare, convert and merge model files and checkpoints"},
      {"bench", bench_command, "measure collectives and scaling on this machine"},
      {"plan", plan_command,
       "find the fastest strategy that fits, predict memory and step time, draw pipelines, without a job or a GPU"},
      {"xla", xla_command, "compile a training step for TPUs that this machine does not have"},
      {"lr-find", lr_find_command, "find a learning rate: a short training with a growing rate"},
      {"top", top_command, "watch the running jobs of this host: speed, memory, communication, hangs"},
      {"doctor", doctor_command, "check this machine before a job: limits, memory, disk, clock; each with its remedy"},
      {"env", env_command, "print versions, processor features and backends, for issue reports"},
      {"test", test_command, "check in a few seconds that several processes work together here"},
  };
  return rows;
}

std::string usage() {
  std::string out = "Tessera trains transformer models on many processors.\n\nusage: tessera COMMAND [arguments]\n\n";
  for (const Row& row : commands())
    out += concat("  ", row.name, std::string(12 - row.name.size(), ' '), row.help, "\n");
  return out + "\nSee tessera COMMAND --help; tessera --version prints the version.\n";
}

int dispatch(const Arguments& arguments) {
  if (arguments.empty()) throw InputError("a command is missing\n\n" + trim(usage()));
  const std::string& name = arguments[0];
  if (name == "--help" || name == "-h" || name == "help") {
    std::fputs(usage().c_str(), stdout);
    return 0;
  }
  if (name == "--version") {
    std::puts("tessera " TESSERA_VERSION);
    return 0;
  }
  std::vector<std::string> names;
  for (const Row& row : commands()) {
    if (name == row.name) return row.run(Arguments(arguments.begin() + 1, arguments.end()));
    names.push_back(row.name);
  }
  const auto near = nearest(name, names);
  throw InputError(concat("unknown command '", name, "'; ",
                          near ? concat("did you mean '", *near, "'?") : concat("the commands are ", join(names))));
}

}  // namespace
}  // namespace tessera::tool

int main(int argc, char** argv) {
  using tessera::ExitCode;
  tessera::ignore_file_limit_signal();
  int code = static_cast<int>(ExitCode::failed);
  std::string message;
  try {
    code = tessera::tool::dispatch(tessera::tool::Arguments(argv + 1, argv + argc));
    if (std::fflush(stdout) != 0) {
      code = static_cast<int>(ExitCode::failed);
      message = "cannot write to standard output";
    }
  } catch (const tessera::Error& error) {
    code = static_cast<int>(error.exit_code());
    message = error.what();  // empty: another rank reports the error
  } catch (const std::bad_alloc&) {
    message = "out of memory";
  } catch (const std::exception& error) {
    message = error.what();
  }
  if (!message.empty()) std::fprintf(stderr, "tessera: %s\n", message.c_str());
  return code;
}
