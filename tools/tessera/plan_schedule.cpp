/// \file
/// tessera plan schedule: creates or reads, verifies, times, compares, draws and writes pipeline schedules.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/layout/schedule/check.h>
#include <tessera/layout/schedule/draw.h>
#include <tessera/layout/schedule/files.h>
#include <tessera/layout/schedule/lower.h>
#include <tessera/layout/schedule/table.h>
#include <tools/tessera/commands.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

namespace tessera::tool {
namespace {

namespace schedule = layout::schedule;
using schedule::Schedule;
using schedule::Timing;

constexpr const char* schedule_help =
    "tessera plan schedule --schedule NAME --pp P --microbatches M [options]\n"
    "tessera plan schedule --check FILE [options]\n"
    "tessera plan schedule --compare --pp P --microbatches M [options]\n"
    "tessera plan schedule --list\n\n"
    "A pipeline schedule defines which rank works on which stage and micro-batch, in\n"
    "which order. It is verified (every action once, after its inputs, no deadlock),\n"
    "timed and drawn here, without starting a job.\n\n"
    "  --schedule NAME|FILE    a name of --list, or a file (PyTorch's CSV, or ours)\n"
    "  --pp P                  ranks of the pipeline (also --pp_size)\n"
    "  --microbatches M        micro-batches of a batch (also --num_microbatches)\n"
    "  --stages_per_rank V     [the minimum for the schedule]\n"
    "  --group_size G          interleaved_1f1b, zb_h1: micro-batches that pass\n"
    "                          a stage together [P or slightly more]\n"
    "  --check FILE            checks a schedule; exit code 2 and the reason if wrong\n"
    "  --compare               all schedules that the shape allows, side by side\n"
    "  --list                  the schedules: names, formulas, when to use them\n\n"
    "Costs, in any unit of time; computations for a rank's whole part of the model\n"
    "(a stage takes 1 / V of it):\n"
    "  --forward_time T        forward of one micro-batch [1]\n"
    "  --input_gradient_time T   the part of backward that other ranks need [1]\n"
    "  --weight_gradient_time T  the other part [1]\n"
    "  --message_time T        of a message between ranks [0]\n"
    "  --overlap X             share of the shorter one hidden in pairs of forward and\n"
    "                          backward, 0 to 1 [0]\n"
    "  --outstanding K         messages that may be in flight from a rank to another\n"
    "                          [0: any number]\n\n"
    "Output:\n"
    "  --draw text|svg         draws the schedule [not drawn]\n"
    "  --columns N             width of the text drawing [160]\n"
    "  --output FILE           file for the drawing [standard output]\n"
    "  --csv FILE              writes PyTorch's CSV\n"
    "  --csv_format FORMAT     compute_only, or compute_comms with messages, as\n"
    "                          PyTorch calls them [compute_only]\n"
    "  --save FILE             writes our text form, with messages\n"
    "  --overwrite             replaces existing files\n"
    "  --gathering WHEN        for sharded parameters: per_batch or per_micro_batch\n"
    "                          gathers, and one reduction per batch [none]\n";

std::string real(double value) { return format_real(value, 5); }

std::string left(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string right(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

void print_list() {
  for (const schedule::ScheduleRow& row : schedule::schedules()) {
    std::vector<std::string> others(row.others.begin(), row.others.end());
    const std::string stages =
        row.least_stages == row.most_stages ? concat("v = ", row.least_stages) : concat("v >= ", row.least_stages);
    std::printf("%s (%s%s)\n  also       %s\n  bubble     %s\n  in flight  %s\n  use        %s\n\n",
                std::string(row.name).c_str(), stages.c_str(),
                row.placement == schedule::Placement::v ? ", stages to and fro" : "", join(others).c_str(),
                std::string(row.bubble).c_str(), std::string(row.in_flight).c_str(), std::string(row.when).c_str());
  }
  std::puts(
      "p ranks, v stages per rank, m micro-batches; F, I, W: times of one stage, B = I + W; in flight: micro-batches "
      "x\n"
      "stages whose activations rank r keeps (counted from 0). All spellings of a name are equivalent.");
}

class PlanSchedule {
 public:
  explicit PlanSchedule(const Arguments& arguments)
      : flags_("plan schedule", arguments,
               {"schedule",
                "pp",
                "pp_size",
                "microbatches",
                "num_microbatches",
                "stages_per_rank",
                "group_size",
                "check",
                "forward_time",
                "input_gradient_time",
                "weight_gradient_time",
                "message_time",
                "overlap",
                "outstanding",
                "draw",
                "columns",
                "output",
                "csv",
                "csv_format",
                "save",
                "gathering"},
               {"compare", "list", "overwrite"}) {}

  int run() {
    if (flags_.has("list")) {
      print_list();
      return 0;
    }
    if (flags_.has("compare")) return compare();
    const std::string draw = word("draw", "", {"text", "svg"});
    const std::string csv_format = word("csv_format", "compute_only", {"compute_only", "compute_comms"});
    const Schedule plain = wanted();
    refuse_if_wrong(plain, plain.name.empty() ? "schedule" : concat("schedule ", plain.name));
    const Schedule sharded = with_gathers(plain);
    const Schedule whole = schedule::has_messages(plain) ? sharded : schedule::with_messages(sharded);
    const Timing timing = time_schedule(whole, costs(whole));
    const auto output = flags_.text("output");
    for (const char* written : {"output", "csv", "save"})
      if (const auto path = flags_.text(written)) flags_.require_new({*path});
    if (output && draw.empty()) throw InputError("--output is the file for the drawing: add --draw text or --draw svg");
    if (const auto path = flags_.text("csv"))
      write_file_atomically(*path, to_csv(csv_format == "compute_only" ? computations_of(plain) : whole));
    if (const auto path = flags_.text("save")) write_file_atomically(*path, to_text(whole));
    const std::string drawing =
        draw.empty()    ? ""
        : draw == "svg" ? draw_svg(whole, {track_of(timing)})
                        : draw_text(whole, {track_of(timing)}, {.columns = number("columns", 160, 1, 100'000)});
    if (output) write_file_atomically(*output, drawing);
    if (draw == "svg" && !output) {  // alone, for a pipe
      std::fputs(drawing.c_str(), stdout);
      return 0;
    }
    print(plain, whole, timing);
    if (!output && !drawing.empty()) std::printf("\n%s", drawing.c_str());
    return 0;
  }

 private:
  int number(const char* name, std::int64_t fallback, std::int64_t least, std::int64_t most) const {
    const std::int64_t value = flags_.integer(name, fallback);
    if (value < least || value > most)
      throw InputError(concat("--", name, " ", value, ": expected a whole number from ", least, " to ", most));
    return static_cast<int>(value);
  }
  /// The value of one of two flags that are synonyms.
  std::optional<int> either(const char* name, const char* other) const {
    if (flags_.has(name) && flags_.has(other))
      throw InputError(concat("--", name, " and --", other, " are synonyms: remove one"));
    const char* given = flags_.has(name) ? name : other;
    return flags_.has(given) ? std::optional(number(given, 0, 1, 1 << 20)) : std::nullopt;
  }
  int needed(const char* name, const char* other, const char* what) const {
    if (const auto value = either(name, other)) return *value;
    flags_.required(name, what);  // throws
    return 0;
  }
  std::string word(const char* name, const std::string& fallback, const std::vector<std::string>& words) const {
    const std::string given = flags_.text(name).value_or(fallback);
    if (given == fallback || std::find(words.begin(), words.end(), given) != words.end()) return given;
    const auto near = nearest(given, words);
    throw InputError(concat("--", name, " ", given, ": ",
                            near ? concat("did you mean ", *near, "?") : concat("the words are ", join(words))));
  }
  int outstanding() const { return number("outstanding", 0, 0, 1 << 30); }

  /// Throws for a wrong schedule, with the remedy if only --outstanding is the problem.
  void refuse_if_wrong(const Schedule& given, const std::string& name) const {
    const auto problem = find_problem(given, {.outstanding = outstanding()});
    if (!problem) return;
    const bool is_right = outstanding() > 0 && !find_problem(given);
    throw InputError(concat(name, ": ", text_of(*problem),
                            is_right ? concat("; it needs --outstanding ", least_outstanding(given)) : ""));
  }

  schedule::Shape shape() const {
    return {.ranks = needed("pp", "pp_size", "the ranks of the pipeline"),
            .stages_per_rank = flags_.has("stages_per_rank") ? number("stages_per_rank", 0, 1, 1 << 20) : 0,
            .micro_batches = needed("microbatches", "num_microbatches", "the micro-batches of a batch"),
            .group_size = number("group_size", 0, 0, 1 << 20)};
  }

  Schedule wanted() {
    if (flags_.has("check") && flags_.has("schedule"))
      throw InputError("--check FILE and --schedule exclude each other: remove one of them");
    const std::string name = flags_.has("check")
                                 ? *flags_.text("check")
                                 : flags_.required("schedule", "a name or a file; --list prints the names");
    const bool is_file = flags_.has("check") || name.find('/') != std::string::npos ||
                         (schedule::find_schedule(name) == nullptr && path_exists(name));
    is_file_ = is_file;
    if (!is_file) return schedule::make_schedule(name, shape());
    const Schedule read = schedule::read_schedule(name);
    refuse_if_wrong(read, name);
    for (const char* flag : {"stages_per_rank", "group_size"})
      if (flags_.has(flag)) throw InputError(concat("--", flag, ": the stages of a schedule from a file are fixed"));
    const auto pp = either("pp", "pp_size"), microbatches = either("microbatches", "num_microbatches");
    if (pp && static_cast<std::size_t>(*pp) != read.ranks.size())
      throw InputError(concat("--pp ", *pp, ": the schedule in ", name, " is for ", read.ranks.size(), " ranks"));
    if (microbatches && *microbatches != read.micro_batches)
      throw InputError(
          concat("--microbatches ", *microbatches, ": the schedule in ", name, " is for ", read.micro_batches));
    return read;
  }

  Schedule with_gathers(const Schedule& plain) const {
    if (!flags_.has("gathering")) return plain;
    const std::string when = word("gathering", "", schedule::words_of(schedule::Gathering{}).words);
    return with_sharding(plain, *parse_word<schedule::Gathering>(when), schedule::has_backward(plain));
  }

  schedule::Costs costs(const Schedule& of) const {
    std::vector<int> stages_of_rank(of.ranks.size(), 0);
    for (const int rank : of.rank_of) ++stages_of_rank[static_cast<std::size_t>(rank)];
    schedule::Costs costs;
    costs.stages.clear();
    for (const int rank : of.rank_of) {
      const double share = 1.0 / stages_of_rank[static_cast<std::size_t>(rank)];
      costs.stages.push_back({.forward = share * flags_.real("forward_time", 1),
                              .input_gradient = share * flags_.real("input_gradient_time", 1),
                              .weight_gradient = share * flags_.real("weight_gradient_time", 1)});
    }
    costs.latency = flags_.real("message_time", 0);
    costs.overlap = flags_.real("overlap", 0);
    costs.outstanding = outstanding();
    return costs;
  }

  static std::string percent(double part, double whole) {
    return whole > 0 ? format_real(100 * part / whole, 3) + " %" : "-";
  }

  void print(const Schedule& plain, const Schedule& whole, const Timing& timing) const {
    const schedule::InFlight in_flight = count_in_flight(whole);
    std::int64_t messages = 0;
    for (const auto& actions : whole.ranks)
      messages +=
          std::count_if(actions.begin(), actions.end(), [](const auto& action) { return is_send(action.kind); });
    double busiest = 0;
    for (const schedule::RankTiming& rank : timing.ranks) busiest = std::max(busiest, rank.busy);
    std::printf("schedule %s: right. %zu ranks, %d stages, %d micro-batches\n",
                flags_.text("check").value_or(plain.name.empty() ? "from a file" : plain.name).c_str(),
                whole.ranks.size(), whole.stages(), whole.micro_batches);
    std::printf("  total     %s; a pipeline that is always full takes %s\n", real(timing.total).c_str(),
                real(busiest).c_str());
    std::printf("  bubble    %s, %s of that; inside a rank %s\n", real(timing.bubble()).c_str(),
                percent(timing.bubble(), busiest).c_str(), real(timing.inner_bubble()).c_str());
    std::printf("  messages  %lld, each with its receive; %d in flight from a rank to another are enough\n\n",
                static_cast<long long>(messages), least_outstanding(whole));
    std::printf("rank  stages        in flight  of its share   begins     ends     busy  idles inside\n");
    std::vector<std::vector<int>> stages_of_rank(whole.ranks.size());
    for (int stage = 0; stage < whole.stages(); ++stage)
      stages_of_rank[static_cast<std::size_t>(whole.rank_of[static_cast<std::size_t>(stage)])].push_back(stage);
    for (std::size_t rank = 0; rank < whole.ranks.size(); ++rank) {
      const schedule::RankTiming& times = timing.ranks[rank];
      const std::vector<int>& stages = stages_of_rank[rank];
      std::string list;
      for (std::size_t i = 0; i < stages.size(); ++i)
        list += i < 3 || stages.size() == 4 ? concat(i > 0 ? " " : "", stages[i]) : i == 3 ? " .." : "";
      std::printf("%4zu  %s%s%s%s%s%s%s\n", rank, left(list, 12).c_str(),
                  right(std::to_string(in_flight.of_rank[rank]), 11).c_str(),
                  right(real(in_flight.of_rank[rank] / static_cast<double>(stages.size())), 14).c_str(),
                  right(real(times.first), 9).c_str(), right(real(times.last), 9).c_str(),
                  right(real(times.busy), 9).c_str(), right(real(times.idle_inside()), 14).c_str());
    }
    print_formulas(plain, timing, in_flight);
  }

  /// Prints only the formulas that hold: those whose values for this shape match the timing and the counters.
  void print_formulas(const Schedule& plain, const Timing& timing, const schedule::InFlight& in_flight) const {
    const schedule::ScheduleRow* row = is_file_ ? find_maker(plain) : schedule::find_schedule(plain.name);
    if (row == nullptr) {
      std::puts("\nno formulas: no generator of --list makes it for this shape");
      return;
    }
    const int ranks = static_cast<int>(plain.ranks.size()), v = plain.stages() / ranks;
    const schedule::Shape shape{ranks, v, plain.micro_batches, is_file_ ? 0 : number("group_size", 0, 0, 1 << 20)};
    const schedule::StageTime time{flags_.real("forward_time", 1) / v, flags_.real("input_gradient_time", 1) / v,
                                   flags_.real("weight_gradient_time", 1) / v};
    const auto bubble = row->bubble_time(shape, time), inner = row->inner_bubble_time(shape, time);
    const auto is = [&](const std::optional<double>& formula, double timed) {
      return formula && std::abs(*formula - timed) <= 1e-9 * timing.total;
    };
    const bool bubble_holds = is(bubble, timing.bubble()) && is(inner, timing.inner_bubble());
    bool in_flight_holds = true;
    for (int rank = 0; rank < ranks; ++rank)
      in_flight_holds &= in_flight.of_rank[static_cast<std::size_t>(rank)] == row->in_flight_of(shape, rank);
    if (is_file_ && plain.name != row->name)
      std::printf("\nthe computations are those of %s", std::string(row->name).c_str());
    std::printf("\nbubble %s\nin flight %s\nuse %s\n",
                bubble_holds ? std::string(row->bubble).c_str() : "no formula for this shape and these costs",
                in_flight_holds ? std::string(row->in_flight).c_str() : "no formula for this shape",
                std::string(row->when).c_str());
  }

  int compare() const {
    for (const char* flag : {"schedule", "check", "draw", "output", "csv", "save"})
      if (flags_.has(flag)) throw InputError(concat("--compare and --", flag, ": remove one of them"));
    const schedule::Shape wanted = shape();
    std::printf("%d ranks, %d micro-batches\n\n", wanted.ranks, wanted.micro_batches);
    std::printf(
        "schedule           stages per rank     total    bubble  of ideal  inside a rank  in flight  messages\n");
    bool any = false;
    for (const schedule::ScheduleRow& row : schedule::schedules()) {
      schedule::Shape shape = wanted;
      if (!row.takes_groups) shape.group_size = 0;
      const int v = shape.stages_per_rank;
      if (v != 0 && (v < row.least_stages || (row.most_stages != 0 && v > row.most_stages))) continue;
      const Schedule whole = schedule::with_messages(with_gathers(schedule::make_schedule(row.name, shape)));
      any = true;
      if (outstanding() > 0)
        if (const int least = least_outstanding(whole); least > outstanding()) {
          std::printf("%s%s  needs --outstanding %d\n", left(std::string(row.name), 19).c_str(),
                      right(real(static_cast<double>(whole.stages()) / shape.ranks), 15).c_str(), least);
          continue;
        }
      const Timing timing = time_schedule(whole, costs(whole));
      const schedule::InFlight in_flight = count_in_flight(whole);
      const double stages = static_cast<double>(whole.stages()) / shape.ranks;
      const int most = *std::max_element(in_flight.of_rank.begin(), in_flight.of_rank.end());
      std::int64_t messages = 0;
      for (const auto& actions : whole.ranks)
        messages +=
            std::count_if(actions.begin(), actions.end(), [](const auto& action) { return is_send(action.kind); });
      std::printf("%s%s%s%s%s%s%s%s\n", left(std::string(row.name), 19).c_str(), right(real(stages), 15).c_str(),
                  right(real(timing.total), 10).c_str(), right(real(timing.bubble()), 10).c_str(),
                  right(percent(timing.bubble(), timing.total - timing.bubble()), 10).c_str(),
                  right(real(timing.inner_bubble()), 15).c_str(), right(real(most / stages), 11).c_str(),
                  right(std::to_string(messages), 10).c_str());
    }
    if (!any)
      throw InputError(concat("--stages_per_rank ", wanted.stages_per_rank, ": no schedule supports this number"));
    std::puts("\nin flight: micro-batches whose activations the fullest rank keeps, of all its stages");
    return 0;
  }

  config::Flags flags_;
  bool is_file_ = false;  ///< whether wanted() has read a file
};

}  // namespace

int plan_schedule_command(const Arguments& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end() || arguments == Arguments{"-h"}) {
    std::fputs(schedule_help, stdout);
    return 0;
  }
  return PlanSchedule(arguments).run();
}

}  // namespace tessera::tool
