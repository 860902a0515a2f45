/// \file
/// tessera plan: predicts a job without starting it. `groups`: which ranks communicate on a mesh; the other commands
/// are in plan_search.cpp, plan_check.cpp and plan_schedule.cpp.

#include <tessera/base/error.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/layout/mesh.h>
#include <tools/tessera/commands.h>

#include <algorithm>
#include <cstdio>

namespace tessera::tool {
namespace {

using layout::Axis;
using layout::Mesh;
using layout::View;

constexpr const char* help =
    "tessera plan --model llama-3-70b --gpus 64xH100 --global_batch 512\n"
    "                                            the best way to train a model on a cluster\n"
    "tessera plan check FILE --gpus 8xH100       what a run will need, and whether it fits\n"
    "tessera plan batch --run OUT                benefit and cost of larger and smaller batches\n"
    "tessera plan hardware [NAME]                known devices\n"
    "tessera plan calibrate                      measures this machine for --gpus 4xthis-machine\n"
    "tessera plan groups --mesh pp=2,dp=2,tp=2   which ranks communicate on a mesh\n"
    "tessera plan schedule --schedule zbv --pp 4 --microbatches 8\n"
    "                                            order of the work in a pipeline\n\n"
    "See tessera plan --model --help, and --help of each other command.\n";

constexpr const char* groups_help =
    "tessera plan groups --mesh AXIS=SIZE,... [options]\n\n"
    "Prints the position of every rank in the two views of a mesh, and the groups of\n"
    "communicating ranks. Axes, outermost first (the last one varies\n"
    "fastest from rank to rank):\n\n"
    "  pp            pipeline stages\n"
    "  dp_replicate  copies of the model with different data\n"
    "  dp_shard      different data, parameters in shards; also called dp\n"
    "  cp            parts of a sequence (context parallel)\n"
    "  tp            parts of a layer (tensor parallel)\n\n"
    "Experts have their own grid over the same ranks: pp, edp, ep, etp.\n"
    "ep ranks hold different experts, etp ranks cut each of them [as tp]; edp, the\n"
    "replicas, follows.\n\n"
    "  --mesh M            sizes; unnamed ones are 1; one may be -1: derived from\n"
    "                      the number of ranks\n"
    "  --world_size N      ranks [the product of the sizes]\n"
    "  --rank R            only this rank and its groups\n"
    "  --group AXES        only these groups: dp, tp-cp, loss, ...\n"
    "  --ranks_per_host N  warns about groups that should not cross hosts\n"
    "  --all               prints all ranks and groups; default: the first ones\n";

constexpr std::size_t most_ranks = 64, most_columns = 100, most_members = 8;

std::string padded(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string text_of(const std::vector<int>& group, bool all) {
  std::string text;
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (!all && group.size() > most_members && i + 2 == most_members) {  // show only the first ranks and the last one
      text += concat(" .. ", group.back());
      break;
    }
    text += concat(i == 0 ? "" : " ", group[i]);
  }
  return "[" + text + "]";
}

void print_ranks(const Mesh& mesh, const std::vector<int>& ranks) {
  std::vector<Axis> expert(layout::expert_axes.begin() + 1, layout::expert_axes.end());  // pp is the same in both views
  std::string heading = padded("rank", 6) + "  ";
  for (const Axis axis : layout::dense_axes) heading += "  " + std::string(layout::axis_name(axis));
  heading += "   |";
  for (const Axis axis : expert) heading += "  " + padded(std::string(layout::axis_name(axis)), 3);
  std::printf("%s\n", heading.c_str());
  for (const int rank : ranks) {
    const layout::Coordinates dense = coordinates(mesh, rank), experts = coordinates(mesh, rank, View::expert);
    std::string line = padded(std::to_string(rank), 6) + "  ";
    for (std::size_t i = 0; i < dense.size(); ++i)
      line += "  " + padded(std::to_string(dense[i]), layout::axis_name(layout::dense_axes[i]).size());
    line += "   |";
    for (std::size_t i = 0; i < expert.size(); ++i) line += "  " + padded(std::to_string(experts[i + 1]), 3);
    std::printf("%s\n", line.c_str());
  }
}

/// Whether the mesh has axes of this kind with more than one rank.
bool is_used(const Mesh& mesh, const std::vector<Axis>& axes) {
  return std::any_of(axes.begin(), axes.end(), [&](Axis axis) { return mesh.size(axis) > 1; });
}

void print_groups(const Mesh& mesh, const layout::NamedAxes& row, std::optional<int> rank, bool all) {
  std::vector<std::vector<int>> groups;
  if (rank)
    groups.push_back(group_of(mesh, *rank, row.axes));
  else
    groups = all_groups(mesh, row.axes);
  std::string line = concat("  ", row.name, std::string(14 - std::min<std::size_t>(13, row.name.size()), ' '));
  if (!rank) line += padded(std::to_string(groups.size()), 4) + " x ";
  line += padded(std::to_string(groups.front().size()), 4) + "  ";
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string text = text_of(groups[i], all);
    if (!all && line.size() + text.size() > most_columns) {
      line += " ..";
      break;
    }
    line += " " + text;
  }
  std::printf("%s\n", line.c_str());
}

int groups_command(const Arguments& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::fputs(groups_help, stdout);
    return 0;
  }
  const config::Flags flags("plan groups", arguments, {"mesh", "world_size", "rank", "group", "ranks_per_host"},
                            {"all"}, {});
  const auto number = [&](const char* name, std::int64_t least, std::int64_t most) -> std::optional<int> {
    const auto text = flags.text(name);
    if (!text) return std::nullopt;
    const auto value = parse_int(*text);
    if (!value || *value < least || *value > most)
      throw InputError(concat("--", name, " ", *text, ": expected a whole number from ", least, " to ", most));
    return static_cast<int>(*value);
  };
  const Mesh mesh = layout::parse_mesh(flags.required("mesh", "sizes of the axes, as pp=2,dp=2,tp=2"),
                                       number("world_size", 1, 1 << 24).value_or(0));
  const int world = mesh.world_size();
  if (world > 1 << 24) throw InputError(concat("--mesh: ", world, " ranks; at most ", 1 << 24));
  const auto rank = number("rank", 0, world - 1);
  const bool all = flags.has("all");
  std::printf("%d ranks\n  dense   %s\n  expert  %s\n\n", world, describe(mesh).c_str(),
              describe(mesh, View::expert).c_str());
  std::vector<int> ranks;
  if (rank) ranks.push_back(*rank);
  for (int r = 0; !rank && r < world && (all || static_cast<std::size_t>(r) < most_ranks); ++r) ranks.push_back(r);
  print_ranks(mesh, ranks);
  if (!rank && static_cast<std::size_t>(world) > ranks.size())
    std::printf("    ..  %zu more (--all prints them, --rank R one)\n", static_cast<std::size_t>(world) - ranks.size());
  std::printf("\n%s\n", rank ? concat("groups of rank ", *rank, ", ranks in each").c_str()
                             : "groups, their number x ranks in each");
  if (const auto text = flags.text("group")) {
    print_groups(mesh, {*text, layout::parse_axes(*text), ""}, rank, all);
  } else {
    std::vector<std::string> alone;
    for (const layout::NamedAxes& row : layout::named_axes()) {
      if (is_used(mesh, row.axes))
        print_groups(mesh, row, rank, all);
      else
        alone.emplace_back(row.name);
    }
    if (!alone.empty()) std::printf("  of one rank each: %s\n", join(alone).c_str());
  }
  if (const auto per_host = number("ranks_per_host", 1, 1 << 20))
    if (const std::string problem = layout::placement_problem(mesh, *per_host); !problem.empty())
      std::printf("\nwarning: %s\n", problem.c_str());
  return 0;
}

}  // namespace

int plan_command(const Arguments& arguments) {
  if (arguments.empty()) throw InputError(concat("tessera plan: a command is missing\n\n", trim(help)));
  const std::string& what = arguments.front();
  if (what == "--help" || what == "-h" || what == "help") {
    std::fputs(help, stdout);
    return 0;
  }
  if (what.starts_with("--")) return plan_search_command(arguments);
  const Arguments rest(arguments.begin() + 1, arguments.end());
  if (what == "groups") return groups_command(rest == Arguments{"-h"} ? Arguments{"--help"} : rest);
  if (what == "schedule") return plan_schedule_command(rest);
  if (what == "batch") return plan_batch_command(rest);
  if (what == "check") return plan_check_command(rest);
  if (what == "calibrate") return plan_calibrate_command(rest);
  if (what == "hardware") return plan_hardware_command(rest);
  const auto near = nearest(what, Arguments{"groups", "schedule", "check", "batch", "hardware", "calibrate"});
  throw InputError(concat("tessera plan: unknown '", what, "'; ",
                          near ? concat("did you mean ", *near, "?")
                               : "use check, batch, hardware, calibrate, groups or schedule, or --model"));
}

}  // namespace tessera::tool
