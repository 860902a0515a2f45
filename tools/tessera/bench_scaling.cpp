#include <tools/tessera/bench_scaling.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/value.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/launch/cli/environment.h>
#include <tools/tessera/bench_job.h>

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera bench scaling [options] [-- flags of tessera train]\n\n"
    "Runs one training job on more and more processes and reports the speed-up\n"
    "and the losses. strong: the rows of a step are fixed and divided among the\n"
    "processes. weak: the number of rows per process is fixed.\n\n"
    "  --processes N,N,..  [1,2,.. up to the cores; the first is the baseline]\n"
    "  --mode M            strong, weak, both [both]\n"
    "  --rows N            rows per process at the most processes; strong\n"
    "                      scaling: N x that number in every step [2]\n"
    "  --steps N           timed steps of a run [20]\n"
    "  --warmup N          untimed steps before them [3]\n"
    "  --json              one JSON object per run and line\n\n"
    "Flags of `tessera train` may follow after --: another model, data, block size,\n"
    "backend, strategy. The default is a GPT-2 of 4 layers x 256 on blocks of 128\n"
    "bytes, with one thread per process.\n\n"
    "speed-up: tokens per second relative to the first row; efficiency: the\n"
    "speed-up divided by the number of processes. lost to: shares of the step by\n"
    "which it is longer than with perfect scaling; they add up to 100 % - efficiency.\n"
    "comm: blocked in collectives; imbalance: waiting there for slower ranks (from\n"
    "the ranks' records); input: waiting for data; other: between the steps.\n";

struct ScalingOptions {
  std::vector<int> processes;
  bool strong = true, weak = true, json = false, help = false;
  int rows = 2, steps = 20, warmup = 3;
  Arguments job;  ///< flags of tessera train
};

int usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

/// "--x-y=3" -> "x_y".
std::string flag_name(const std::string& argument) {
  if (!argument.starts_with("--")) return "";
  std::string name = argument.substr(2, argument.find('=') - 2);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool gives(const Arguments& job, const std::vector<std::string>& names) {
  return std::any_of(job.begin(), job.end(), [&](const std::string& argument) {
    return std::find(names.begin(), names.end(), flag_name(argument)) != names.end();
  });
}

std::vector<int> parse_processes(const std::optional<std::string>& text, int cores) {
  std::vector<int> numbers;
  if (!text) {
    for (int n = 1; n <= std::max(2, cores); n *= 2) numbers.push_back(n);
    return numbers;
  }
  for (const std::string& part : split(*text, ',')) {
    const auto number = parse_int(part);
    if (!number || *number < 1 || *number > 4096)
      throw InputError(concat("--processes ", *text, ": '", part, "' is not a number of processes (1..4096)"));
    if (!numbers.empty() && *number <= numbers.back())
      throw InputError(concat("--processes ", *text, ": the numbers must ascend"));
    numbers.push_back(static_cast<int>(*number));
  }
  return numbers;
}

ScalingOptions parse(const Arguments& arguments, int cores) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  const config::Flags flags("bench scaling", Arguments(arguments.begin(), dashes),
                            {"processes", "mode", "rows", "steps", "warmup"}, {"json", "help"});
  ScalingOptions options;
  options.help = flags.has("help");
  options.json = flags.has("json");
  options.processes = parse_processes(flags.text("processes"), cores);
  const std::string mode = flags.text("mode").value_or("both");
  static const std::vector<std::string> modes = {"strong", "weak", "both"};
  if (std::find(modes.begin(), modes.end(), mode) == modes.end()) {
    const auto near = nearest(mode, modes);
    throw InputError(
        concat("--mode ", mode, " is not one of ", join(modes), near ? concat("; did you mean '", *near, "'?") : ""));
  }
  options.strong = mode != "weak";
  options.weak = mode != "strong";
  const auto whole = [&](const char* name, int fallback, int minimum) {
    const std::int64_t value = flags.integer(name, fallback);
    if (value < minimum || value > 1'000'000)
      throw InputError(concat("--", name, " is ", value, ", must be ", minimum, "..1000000"));
    return static_cast<int>(value);
  };
  options.rows = whole("rows", options.rows, 1);
  options.steps = whole("steps", options.steps, 1);
  options.warmup = whole("warmup", options.warmup, 0);
  if (dashes != arguments.end()) options.job.assign(dashes + 1, arguments.end());
  static const std::vector<std::string> ours = {
      "num_processes", "per_device_train_batch_size", "max_steps", "output_dir", "logging_steps",
      "save_strategy", "resume_from_checkpoint"};
  for (const std::string& argument : options.job) {
    const std::string name = flag_name(argument);
    if (std::find(ours.begin(), ours.end(), name) != ours.end())
      throw InputError(concat("tessera bench scaling sets --", name, " of the job itself: remove it after --"));
  }
  const int most = options.processes.back();
  for (const int n : options.processes)
    if (options.strong && options.rows * most % n != 0)
      throw InputError(concat("strong scaling: ", options.rows * most, " rows a step (--rows ", options.rows, " x ",
                              most, " processes) cannot be divided among ", n, " processes; choose another --rows"));
  return options;
}

/// About 400 KB of meaningless words, identical on every call.
std::string sample_text() {
  std::string text;
  std::uint64_t state = 1;
  const auto next = [&] { return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33; };
  while (text.size() < 400'000) {
    for (std::uint64_t letters = 2 + next() % 7; letters > 0; --letters) text += static_cast<char>('a' + next() % 26);
    text += next() % 12 == 0 ? ".\n" : " ";
  }
  return text;
}

Arguments job_arguments(const ScalingOptions& options, const std::string& folder, int processes, int rows) {
  Arguments result;
  const auto add = [&](const std::string& name, const std::string& value) {
    result.push_back("--" + name);
    result.push_back(value);
  };
  const bool own_model = gives(options.job, {"config_name", "model_name_or_path"});
  if (!own_model) {
    add("config_name", "gpt2-tiny");
    add("config_overrides",
        "n_layer=4,n_embd=256,n_head=4,vocab_size=257,n_positions=128,bos_token_id=256,eos_token_id=256");
    if (!gives(options.job, {"tokenizer_name"})) add("tokenizer_name", "byte");
    if (!gives(options.job, {"block_size"})) add("block_size", "128");
  }
  if (!gives(options.job, {"train_file", "config_file"})) add("train_file", path_join(folder, "text.txt"));
  if (!gives(options.job, {"validation_file", "validation_split_percentage"})) add("validation_split_percentage", "0");
  if (!gives(options.job, {"threads_per_process"})) add("threads_per_process", "1");
  add("num_processes", concat(processes));
  add("per_device_train_batch_size", concat(rows));
  add("max_steps", concat(options.warmup + options.steps));
  add("logging_steps", "1");
  add("save_strategy", "no");
  add("output_dir", path_join(folder, "run"));
  result.insert(result.end(), options.job.begin(), options.job.end());
  return result;
}

struct Scaling {
  int processes = 0, rows_per_step = 0;
  JobFigures figures;
  double speed_up = 0, efficiency = 0;
  double lost_compute = 0, lost_communication = 0, lost_imbalance = 0, lost_input = 0, lost_other = 0;
};

/// `base`: the baseline row. With perfect scaling, a step and each of its parts would take `ideal` times as long as in
/// the baseline.
void compare(Scaling& row, const Scaling& base) {
  const double processes = static_cast<double>(row.processes) / base.processes;
  const double work = static_cast<double>(row.rows_per_step) / base.rows_per_step;
  const double ideal = work / processes;
  row.speed_up = work * base.figures.step / row.figures.step;
  row.efficiency = row.speed_up / processes;
  const JobFigures &now = row.figures, &before = base.figures;
  const auto lost = [&](double seconds, double base_seconds) { return (seconds - ideal * base_seconds) / now.step; };
  row.lost_compute = lost(now.compute, before.compute);
  row.lost_imbalance = lost(now.imbalance, before.imbalance);
  row.lost_communication = lost(now.communication - now.imbalance, before.communication - before.imbalance);
  row.lost_input = lost(now.input, before.input);
  row.lost_other = lost(now.other, before.other);
}

void print_heading(const std::string& mode, const ScalingOptions& options) {
  const int most = options.processes.back();
  const std::string what = mode == "strong"
                               ? concat(options.rows * most, " rows a step, shared by the processes")
                               : concat(options.rows, options.rows == 1 ? " row" : " rows", " a step and process");
  std::printf("%s scaling: %s; median of %d steps\n", mode.c_str(), what.c_str(), options.steps);
  std::printf("%5s %9s %9s %8s %10s  %s\n", "", "", "", "", "", "lost to");
  std::printf("%5s %9s %9s %8s %10s  %7s %6s %9s %6s %6s\n", "procs", "step ms", "tok/s", "speed-up", "efficiency",
              "compute", "comm", "imbalance", "input", "other");
}

void print_row(const Scaling& row) {
  const auto percent = [](double share) { return std::abs(share) < 5e-4 ? 0 : 100 * share; };  // no -0.0
  std::printf("%5d %9.1f %9.0f %8.2f %9.0f%%  %6.1f%% %5.1f%% %8.1f%% %5.1f%% %5.1f%%\n", row.processes,
              row.figures.step * 1e3, row.figures.tokens_per_second, row.speed_up, percent(row.efficiency),
              percent(row.lost_compute), percent(row.lost_communication), percent(row.lost_imbalance),
              percent(row.lost_input), percent(row.lost_other));
}

void print_json(const std::string& mode, const Scaling& row, int cores) {
  const JobFigures& f = row.figures;
  const auto real = [](double value) { return Value::of(value); };
  const Value phases = Value::make_object({{"compute", real(f.compute * 1e3)},
                                           {"communication", real((f.communication - f.imbalance) * 1e3)},
                                           {"imbalance", real(f.imbalance * 1e3)},
                                           {"input", real(f.input * 1e3)},
                                           {"other", real(f.other * 1e3)}});
  const Value lost = Value::make_object({{"compute", real(row.lost_compute)},
                                         {"communication", real(row.lost_communication)},
                                         {"imbalance", real(row.lost_imbalance)},
                                         {"input", real(row.lost_input)},
                                         {"other", real(row.lost_other)}});
  const Value line = Value::make_object({{"mode", Value::of(mode)},
                                         {"processes", Value::of(row.processes)},
                                         {"cores", Value::of(cores)},
                                         {"rows_per_step", Value::of(row.rows_per_step)},
                                         {"step_ms", real(f.step * 1e3)},
                                         {"tokens_per_second", real(f.tokens_per_second)},
                                         {"speed_up", real(row.speed_up)},
                                         {"efficiency", real(row.efficiency)},
                                         {"phase_ms", phases},
                                         {"lost", lost}});
  std::printf("%s\n", dump_json(line, -1, 6).c_str());
}

void measure(const std::string& mode, const ScalingOptions& options, int cores, const std::string& folder) {
  std::optional<Scaling> base;
  for (const int processes : options.processes) {
    Scaling row;
    row.processes = processes;
    const int rows = mode == "strong" ? options.rows * options.processes.back() / processes : options.rows;
    row.rows_per_step = rows * processes;
    log::info("bench scaling: ", mode, ", ", processes, processes == 1 ? " process" : " processes", " ...");
    const std::string output = path_join(folder, "run");
    remove_tree(output);
    row.figures = run_job(job_arguments(options, folder, processes, rows), output, options.warmup);
    if (!base && !options.json) print_heading(mode, options);
    if (!base) base = row;
    compare(row, *base);
    options.json ? print_json(mode, row, cores) : print_row(row);
    std::fflush(stdout);
  }
}

}  // namespace

int scaling_command(const Arguments& arguments) {
  const int cores = usable_cores();
  const ScalingOptions options = parse(arguments, cores);
  if (options.help) {
    std::fputs(help, stdout);
    return 0;
  }
  const launch::RankEnvironment environment = launch::read_rank_environment();
  if (environment.launcher != "none")
    throw InputError(
        concat("tessera bench scaling starts its own processes; do not run it under ", environment.launcher));
  const TemporaryFolder folder("tessera-scaling");
  if (!gives(options.job, {"train_file", "config_file"}))
    write_file_atomically(path_join(folder.path(), "text.txt"), sample_text());
  if (options.strong) measure("strong", options, cores, folder.path());
  if (options.strong && options.weak && !options.json) std::printf("\n");
  if (options.weak) measure("weak", options, cores, folder.path());
  if (options.processes.back() > cores && !options.json)
    std::printf("\n%d processes on %d %s share %s: expect no speed-up beyond %d.\n", options.processes.back(), cores,
                cores == 1 ? "core" : "cores", cores == 1 ? "it" : "them", cores);
  return 0;
}

}  // namespace tessera::tool
