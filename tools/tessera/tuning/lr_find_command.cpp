/// \file
/// tessera lr-find: a learning-rate range test (Smith 2017): a short training with an exponentially growing rate, the
/// loss at each rate, and a suggestion. It runs `tessera train` in a temporary folder and reads its metrics.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/plan/lr_range.h>
#include <tools/tessera/commands.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera lr-find [--min_lr X] [--max_lr X] [--steps N] [--csv FILE] TRAIN-FLAGS...\n\n"
    "Trains for N steps while the learning rate grows exponentially, and prints the\n"
    "loss at each rate and a suggested rate. All other flags are those of tessera\n"
    "train (model, data, batch, optimizer, processes), with the batch of the real\n"
    "run. Nothing of the training is kept except the file of --csv.\n\n"
    "  --min_lr X   first rate [1e-7]\n"
    "  --max_lr X   last rate [1]\n"
    "  --steps N    steps of the test [100]\n"
    "  --csv FILE   step,learning_rate,loss,smoothed_loss\n"
    "  --overwrite  replaces an existing FILE\n";

/// Removes "--name value" or "--name=value" from the arguments, in both spellings, and returns the value.
std::optional<std::string> take(Arguments& arguments, const std::string& name) {
  std::string hyphened = name;
  for (char& c : hyphened)
    if (c == '_') c = '-';
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    for (const std::string& flag : {"--" + name, "--" + hyphened}) {
      const std::string argument = arguments[i];
      const auto at = arguments.begin() + static_cast<std::ptrdiff_t>(i);
      if (argument.starts_with(flag + "=")) {
        arguments.erase(at);
        return argument.substr(flag.size() + 1);
      }
      if (argument != flag) continue;
      if (i + 1 == arguments.size()) throw InputError(concat("tessera lr-find: ", flag, " needs a value"));
      std::string value = arguments[i + 1];
      arguments.erase(at, at + 2);
      return value;
    }
  }
  return std::nullopt;
}

double rate_of(const std::optional<std::string>& text, const char* name, double fallback) {
  if (!text) return fallback;
  const auto number = parse_real(*text);
  if (!number || !(*number > 0)) throw InputError(concat("--", name, " ", *text, ": expected a learning rate above 0"));
  return *number;
}

/// Runs `tessera train` with these flags, discarding its standard output; returns its exit status.
int run_training(const Arguments& flags) {
  Arguments words = {own_program(), "train"};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) throw Error("tessera lr-find: cannot start a process");
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stdout) == nullptr) _exit(1);
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

std::vector<plan::RangePoint> read_points(const std::string& path) {
  std::vector<plan::RangePoint> points;
  if (!path_exists(path)) return points;
  for (const std::string& line : split(read_file(path), '\n')) {
    if (trim(line).empty()) continue;
    const Value value = parse_json(line, path);
    if (value.find("event") != nullptr || !value.at("loss").is_number()) continue;
    points.push_back({value.at("learning_rate").as_real(), value.at("loss").as_real()});
  }
  return points;
}

void write_csv(const std::string& path, const plan::RangeTest& test) {
  std::string text = "step,learning_rate,loss,smoothed_loss\n";
  for (std::size_t i = 0; i < test.points.size(); ++i)
    text += concat(i + 1, ",", format_real(test.points[i].learning_rate), ",", format_real(test.points[i].loss), ",",
                   format_real(test.smoothed[i]), "\n");
  write_file_atomically(path, text);
}

}  // namespace

int lr_find_command(const Arguments& given) {
  if (given.empty() || given == Arguments{"--help"} || given == Arguments{"-h"}) {
    std::fputs(help, stdout);
    return 0;
  }
  Arguments flags = given;
  const double least = rate_of(take(flags, "min_lr"), "min_lr", 1e-7),
               most = rate_of(take(flags, "max_lr"), "max_lr", 1);
  const auto steps_text = take(flags, "steps"), csv = take(flags, "csv");
  const bool overwrites = std::erase(flags, "--overwrite") > 0;
  if (csv && !overwrites) config::require_new_file(*csv);
  const auto steps = steps_text ? parse_int(*steps_text) : std::optional<std::int64_t>(100);
  if (!steps || *steps < 10)
    throw InputError(concat("--steps ", *steps_text, ": expected a whole number of at least 10"));
  if (least >= most)
    throw InputError(concat("--min_lr ", format_real(least), " must be below --max_lr ", format_real(most)));
  for (const char* name :
       {"output_dir", "max_steps", "lr_scheduler_type", "lr_scheduler_kwargs", "resume_from_checkpoint"})
    if (take(flags, name)) throw InputError(concat("tessera lr-find sets --", name, " itself: remove it"));
  const TemporaryFolder folder("tessera-lr-find");
  for (const std::string& word :
       {std::string("--output_dir"), folder.path(), std::string("--overwrite_output_dir"), std::string("--max_steps"),
        concat(*steps), std::string("--lr_scheduler_type"), std::string("lr_range_test"),
        std::string("--lr_scheduler_kwargs"),
        concat("lr_range_test_min_lr=", format_real(least), ",lr_range_test_max_lr=", format_real(most),
               ",lr_range_test_step_size=", *steps - 1),
        std::string("--logging_steps"), std::string("1"), std::string("--save_strategy"), std::string("no"),
        std::string("--eval_strategy"), std::string("no"), std::string("--report_to"), std::string("none"),
        std::string("--nan_policy"), std::string("skip")})
    flags.push_back(word);
  const int status = run_training(flags);
  const auto points = read_points(path_join(folder.path(), "metrics.jsonl"));
  if (status != 0 && (points.size() < 10 || status == 2)) return status;  // the training has reported the reason
  const plan::RangeTest test = plan::range_test(points);
  if (csv) write_csv(*csv, test);
  std::fputs(plan::draw(test).c_str(), stdout);
  std::fputs(concat(plan::describe(test), "\n").c_str(), stdout);
  return 0;
}

}  // namespace tessera::tool
