#include <tessera/launch/command_line.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <algorithm>
#include <functional>

namespace tessera::launch {

namespace {

/// One option: its names with '_' for '-', whether a value follows, and what it does.
struct Option {
  std::vector<std::string> names;
  std::string value;  ///< how the help calls the value; empty: a switch
  std::string help;   ///< empty: accepted for compatibility, not shown
  std::function<void(LaunchCommand&, const std::string& name, const std::string& value)> apply;
};

int number(const std::string& name, const std::string& value, int minimum, int maximum) {
  const auto parsed = parse_int(value);
  if (!parsed || *parsed < minimum || *parsed > maximum) {
    throw InputError(concat(name, " ", value, ": expected a whole number from ", minimum, " to ", maximum));
  }
  return static_cast<int>(*parsed);
}

void one_host(LaunchCommand&, const std::string& name, const std::string& value) {
  if (value == "1" || value == "1:1") return;
  throw InputError(concat(name, " ", value,
                          ": tessera launch starts the ranks of one host; across hosts use srun, mpirun or "
                          "torchrun --no-python, whose environments every tessera program reads"));
}

const std::vector<Option>& options() {
  static const std::vector<Option> all = {
      {{"--num_processes", "--nproc_per_node", "-n"},
       "N",
       "number of ranks (default 1)",
       [](auto& c, auto& name, auto& value) { c.options.num_processes = number(name, value, 1, 4096); }},
      {{"--main_process_port", "--master_port"},
       "P",
       "rendezvous port (default: a free one; 0 means the same)",
       [](auto& c, auto& name, auto& value) { c.options.master_port = number(name, value, 0, 65535); }},
      {{"--main_process_ip", "--master_addr"},
       "A",
       "rendezvous address of this host (default 127.0.0.1)",
       [](auto& c, auto&, auto& value) { c.options.master_addr = value; }},
      {{"--num_cpu_threads_per_process"},
       "T",
       "OMP_NUM_THREADS of each rank (default: its value here, else cores / N)",
       [](auto& c, auto& name, auto& value) { c.options.threads_per_process = number(name, value, 1, 4096); }},
      {{"--no_prefix"},
       "",
       "do not put [rank R] before each line of output",
       [](auto& c, auto&, auto&) { c.options.prefix_output = false; }},
      {{"--help", "-h"}, "", "this text", [](auto& c, auto&, auto&) { c.help = true; }},
      {{"--no_python"},
       "",
       "",
       [](auto&, auto&, auto&) {}},  // torchrun: the program is no script; seen from its name here
      {{"--standalone"}, "", "", [](auto&, auto&, auto&) {}},  // torchrun: one host; always so here
      {{"--multi_gpu"}, "", "", [](auto&, auto&, auto&) {}},   // accelerate
      {{"--cpu"}, "", "", [](auto&, auto&, auto&) {}},         // accelerate
      {{"--nnodes", "--num_machines"}, "1", "", one_host},
      {{"--node_rank", "--machine_rank"}, "0", "", [](auto&, auto& name, auto& value) { number(name, value, 0, 0); }},
  };
  return all;
}

std::string canonical(std::string name) {
  if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '-', '_');
  return name;
}

const Option& find_option(const std::string& given) {
  const std::string name = canonical(given);
  std::vector<std::string> known;
  for (const Option& option : options()) {
    if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) return option;
    known.insert(known.end(), option.names.begin(), option.names.end());
  }
  const auto near = nearest(name, known);
  throw InputError(concat("tessera launch: unknown option ", given, near ? concat("; did you mean ", *near, "?") : "",
                          " Options of the program come after its name; see tessera launch --help"));
}

}  // namespace

LaunchCommand parse_launch_command(const std::vector<std::string>& arguments) {
  LaunchCommand result;
  std::size_t i = 0;
  for (; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--") {
      ++i;
      break;
    }
    if (!word.starts_with("-") || word == "-") break;
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const Option& option = find_option(name);
    std::string value;
    if (option.value.empty()) {
      if (equals != std::string::npos) throw InputError(concat("tessera launch: ", name, " takes no value"));
    } else if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (++i < arguments.size()) {
      value = arguments[i];
    } else {
      throw InputError(concat("tessera launch: ", name, " needs a value"));
    }
    option.apply(result, name, value);
    if (result.help) return result;
  }
  result.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(std::min(i, arguments.size())),
                        arguments.end());
  if (result.command.empty()) throw InputError("tessera launch: no program was given; see tessera launch --help");
  // -u: Python's own buffer would hold back lines until the end of the job, and lose them when a rank is killed.
  if (result.command[0].ends_with(".py")) result.command.insert(result.command.begin(), {"python3", "-u"});
  return result;
}

std::string launch_help() {
  std::string text =
      "Usage: tessera launch [options] PROGRAM [arguments of the program]\n\n"
      "Starts N ranks of a program on this host: one of ours, your own, or a Python script (.py runs with python3).\n"
      "Each rank finds its place in RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. When "
      "a\n"
      "rank fails it is named and the others are ended; nothing is left running. Ctrl-C and SIGTERM are passed on.\n\n";
  for (const Option& option : options()) {
    if (option.help.empty()) continue;
    std::string left = "  " + join(option.names) + (option.value.empty() ? "" : " " + option.value);
    left.resize(std::max<std::size_t>(left.size() + 2, 42), ' ');
    text += left + option.help + "\n";
  }
  text +=
      "\nThe exit code is that of the first rank that failed (128 + signal), 130 after Ctrl-C, 2 when nothing could "
      "be\n"
      "started. Names may be written with - or _. torchrun's --standalone, --nnodes 1 and --no-python are accepted.\n";
  return text;
}

}  // namespace tessera::launch
