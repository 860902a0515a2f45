/// \file
/// tessera plan calibrate: measures this machine with its own ranks, and writes a hardware file.

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/system/host_name.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/launch/agent/affinity.h>
#include <tessera/launch/agent/launcher.h>
#include <tessera/launch/cli/environment.h>
#include <tessera/plan/hardware.h>
#include <tessera/plan/reference_step.h>
#include <tools/tessera/commands.h>

#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

namespace tessera::tool {
namespace {

using plan::Cluster;
using plan::Curve;
using plan::Speeds;
using plan::Work;

constexpr const char* calibrate_help =
    "tessera plan calibrate [options]\n\n"
    "Measures this machine, so that plans use its own figures: products by\n"
    "size in fp32 and bf16, attention, passes over memory, the optimizer, collectives\n"
    "by size and group, and the extra time of a whole model step,\n"
    "each with every number of processes (1, 2, 4, ... up to the cores) working\n"
    "at once; and the disk. Every figure is the lower\n"
    "quartile of turns spread over the whole time, so that bursts of other\n"
    "programs have little effect; its uncertainty is half the distance of the\n"
    "quartiles over the median. `--gpus 4xthis-machine`, `--strategy auto` use the file.\n\n"
    "  --output FILE       [hardware/HOST.json in the user's cache folder]\n"
    "  --overwrite         replaces an existing FILE\n"
    "  --processes N[,N]   [1,2,4,... up to the cores]\n"
    "  --threads N         per process, as --threads_per_process [cores / processes]\n"
    "  --seconds S         total time [40; at least 3 for each number of processes]\n"
    "  --json              also print the file's content\n";

std::vector<int> numbers_of(const std::optional<std::string>& text, int cores) {
  std::vector<int> all;
  if (!text) {
    for (int n = 1; n <= cores && n <= 64; n *= 2) all.push_back(n);
    return all;
  }
  for (const std::string& part : split(*text, ',')) {
    const auto n = parse_int(part);
    if (!n || *n < 1 || *n > 256 || (!all.empty() && *n <= all.back()))
      throw InputError(concat("--processes ", *text, ": expected ascending numbers from 1 to 256, such as 1,2,4"));
    all.push_back(static_cast<int>(*n));
  }
  return all;
}

bool is_arithmetic(const std::string& name) { return name.starts_with("product") || name.starts_with("attention"); }

/// Builds one curve: sizes that differ by less than a seventh are merged at their geometric mean.
Curve curve_of(std::vector<Curve::Point> points) {
  std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.size < b.size; });
  Curve curve;
  for (std::size_t first = 0; first < points.size();) {
    std::size_t past = first;
    double size = 0, seconds = 0, spread = 0;
    for (; past < points.size() && points[past].size < 1.15 * points[first].size; ++past) {
      size += std::log(points[past].size);
      seconds += std::log(points[past].seconds);
      spread = std::max(spread, points[past].spread);
    }
    const auto count = static_cast<double>(past - first);
    curve.points.push_back({std::exp(size / count), std::exp(seconds / count), spread});
    first = past;
  }
  return curve;
}

/// Larger products are not slower per FLOP; where the figures suggest otherwise, that is noise, and neighbours get the
/// mean of their rates (isotonic regression by pooling adjacent violators, Ayer et al. 1955).
void smooth_rates(Curve& curve) {
  struct Pool {
    double log_rate;  ///< sum
    std::size_t points;
    double mean() const { return log_rate / static_cast<double>(points); }
  };
  std::vector<Pool> pools;
  for (const Curve::Point& p : curve.points) {
    pools.push_back({std::log(p.size / p.seconds), 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back() = {pools.back().log_rate + last.log_rate, pools.back().points + last.points};
    }
  }
  std::size_t point = 0;
  for (const Pool& pool : pools)
    for (std::size_t i = 0; i < pool.points; ++i, ++point)
      curve.points[point].seconds = curve.points[point].size / std::exp(pool.mean());
}

std::shared_ptr<const Speeds> speeds_of(const Value& file) {
  auto speeds = std::make_shared<Speeds>();
  speeds->processes = static_cast<int>(file.at("processes").as_int());
  speeds->threads = static_cast<int>(file.at("threads").as_int());
  std::map<std::pair<int, std::string>, std::vector<Curve::Point>> by_name;
  for (const Value& s : file.at("samples").items())
    by_name[{static_cast<int>(s.at("ranks").as_int()), s.at("name").as_string()}].push_back(
        {s.at("size").as_real(), s.at("seconds").as_real(), s.at("spread").as_real()});
  double steps[2] = {0, 0};  // fp32, bf16
  for (auto& [key, points] : by_name) {
    const auto& [ranks, name] = key;
    if (ranks > 0) {
      speeds->exchanges.push_back({name, ranks, curve_of(std::move(points))});
      continue;
    }
    if (name == "step_fp32" || name == "step_bf16") steps[name == "step_bf16"] = points.front().seconds;
    for (std::size_t work = 0; work < plan::works; ++work) {
      if (name_of(static_cast<Work>(work)) != name) continue;
      speeds->curves[work] = curve_of(points);
      if (is_arithmetic(name)) smooth_rates(speeds->curves[work]);
    }
  }
  Cluster machine = plan::parse_cluster("CPU");
  machine.device.measured = speeds;
  const auto between = [&](plan::Precision precision, double measured) {
    const plan::ReferenceSeconds parts = reference_seconds(machine, precision, speeds->processes);
    // Other programs that are busy during the steps must not distort every plan.
    return std::clamp((measured - parts.rest) / parts.computing, 0.8, 1.5);
  };
  // Compute both before storing them, because stored values would lengthen the prediction.
  const double fp32 = between(plan::Precision::fp32, steps[0]), bf16 = between(plan::Precision::bf16, steps[1]);
  speeds->between_fp32 = fp32;
  speeds->between_bf16 = bf16;
  return speeds;
}

double best_rate(const Curve& curve) {
  double best = 0;
  for (const Curve::Point& p : curve.points) best = std::max(best, p.size / p.seconds);
  return best;
}

/// Scalar fallbacks for Device and Link: used where no curve was measured, and shown to users.
Cluster cluster_of(std::vector<std::shared_ptr<const Speeds>> all, int cores) {
  Cluster c = plan::parse_cluster("CPU");
  const Speeds& one = *all.front();
  c.device.name = host_name("");
  c.device.source = concat("tessera plan calibrate, ", cores, " cores");
  c.device.fp32 = best_rate(one[Work::product_fp32]);
  c.device.bf16 = best_rate(one[Work::product_bf16]);
  c.device.products = 1;
  c.device.half_depth = 0;
  c.device.tile = 1;
  c.device.attention = std::clamp(best_rate(one[Work::attention_fp32]) / c.device.fp32, 1e-3, 1.0);
  c.device.bandwidth = best_rate(one[Work::norm]);
  c.device.passes = 1;
  c.device.launch = one[Work::gate].points.front().seconds;
  struct sysinfo memory{};
  if (::sysinfo(&memory) == 0)
    c.host_memory = static_cast<double>(memory.totalram) * static_cast<double>(memory.mem_unit);
  c.device.memory = c.host_memory;
  c.per_node = all.back()->processes;
  for (const auto& speeds : all)
    if (const Curve* curve = speeds->exchange("all_reduce", speeds->processes)) {
      const double n = speeds->processes;
      c.inside.bandwidth = 2 * (n - 1) / n * best_rate(*curve);
      c.inside.efficiency = 1;
      c.inside.latency = curve->points.front().seconds / (2 * (n - 1));
      c.inside.source = concat("tessera plan calibrate: all_reduce of ", speeds->processes, " processes");
      break;
    }
  c.measured = std::move(all);
  return c;
}

/// Bytes/s of writing a file, including the sync to disk.
double disk_rate(const std::string& folder) {
  const std::string path = path_join(folder, concat("tessera-calibrate-", ::getpid()));
  const std::string bytes(64 << 20, 'x');
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const std::int64_t begin = monotonic_ns();
    write_file_atomically(path, bytes);
    best = std::max(best, static_cast<double>(bytes.size()) / seconds_since(begin));
  }
  remove_tree(path);
  return best;
}

void print_speeds(const Speeds& speeds) {
  std::printf("\n%d %s at once, %d %s each\n", speeds.processes, speeds.processes == 1 ? "process" : "processes",
              speeds.threads, speeds.threads == 1 ? "thread" : "threads");
  const auto row = [](const std::string& name, const Curve& curve, const char* unit, double scale) {
    double spread = 0;
    for (const Curve::Point& p : curve.points) spread += p.spread / static_cast<double>(curve.points.size());
    const Curve::Point &first = curve.points.front(), &last = curve.points.back();
    std::printf("  %-26s %8.1f us %10.2f %-8s +- %4.1f %%\n", name.c_str(), first.seconds * 1e6,
                last.size / last.seconds / scale, unit, 100 * spread);
  };
  for (std::size_t i = 0; i < plan::works; ++i) {
    const std::string name(name_of(static_cast<Work>(i)));
    if (!speeds.curves[i].empty()) row(name, speeds.curves[i], is_arithmetic(name) ? "GFLOP/s" : "GB/s", 1e9);
  }
  std::printf("  %-26s %8.3f in fp32, %.3f in bf16\n", "a step over its operations", speeds.between_fp32,
              speeds.between_bf16);
  for (const Speeds::Exchange& e : speeds.exchanges) row(concat(e.op, " x", e.ranks), e.curve, "GB/s", 1e9);
}

}  // namespace

int plan_calibrate_command(const Arguments& given) {
  Arguments arguments = given;
  const launch::RankEnvironment environment = launch::read_rank_environment(&arguments);
  if (environment.launcher == "tessera") return run_with_tensors("calibrate", arguments);
  const config::Flags flags("plan calibrate", arguments, {"output", "processes", "seconds", "threads"},
                            {"json", "help", "overwrite"});
  if (flags.has("help")) {
    std::fputs(calibrate_help, stdout);
    return 0;
  }
  if (environment.launcher != "none")
    throw InputError(
        concat("tessera plan calibrate starts its processes itself; do not run it under ", environment.launcher));
  const int cores = static_cast<int>(launch::usable_cores().size());
  const std::vector<int> numbers = numbers_of(flags.text("processes"), cores);
  const double seconds = flags.real("seconds", 40);
  if (!(seconds >= 3.0 * static_cast<double>(numbers.size()) && seconds <= 3600))
    throw InputError(concat("--seconds ", seconds, ": expected a value from ", 3 * numbers.size(),
                            " (3 for each number of processes) ", "to 3600"));
  const std::int64_t threads = flags.integer("threads", 0);
  if (flags.text("threads") && (threads < 1 || threads > 1024))
    throw InputError(concat("--threads ", threads, ": expected 1 to 1024"));
  const std::string output = flags.text("output").value_or("");
  const std::string path = output.empty() ? plan::calibration_file() : output;
  const std::string folder = path.find('/') == std::string::npos ? "." : path.substr(0, path.rfind('/'));
  if (output.empty())
    make_folders(folder);
  else
    flags.require_new({output});
  if (!is_directory(folder)) throw InputError(concat("--output ", path, ": no such folder: ", folder));

  const std::int64_t begin = monotonic_ns();
  double load = 0;
  ::getloadavg(&load, 1);
  if (load > 0.25 * cores)
    log::warning("the machine is busy: ", format_real(load, 3), " runnable processes for its ", cores,
                 " cores; the figures describe only the capacity that is left");
  const TemporaryFolder work("tessera-calibrate");
  std::vector<std::shared_ptr<const Speeds>> all;
  double unsteady = 0;
  for (const int n : numbers) {
    log::info("plan calibrate: ", n, n == 1 ? " process ..." : " processes ...");
    const std::string file = path_join(work.path(), concat(n, ".json"));
    launch::LaunchOptions options;
    options.num_processes = n;
    options.prefix_rank0 = false;
    options.threads_per_process = static_cast<int>(threads);
    options.hang_timeout = 60;
    options.job = concat("plan calibrate, ", n, " processes");
    const double share = seconds / static_cast<double>(numbers.size());
    const int code =
        launch::run({own_program(), "plan", "calibrate", "--file", file, "--seconds", concat(share)}, options);
    if (code != 0) return code;
    all.push_back(speeds_of(read_json(file)));
    for (const Curve& curve : all.back()->curves)
      for (const Curve::Point& p : curve.points) unsteady = std::max(unsteady, p.spread);
  }
  const double disk = disk_rate(folder);
  Cluster cluster = cluster_of(all, cores);
  cluster.device.source = concat(cluster.device.source, ", load ", format_real(load, 3), " before; disk ",
                                 format_real(disk / 1e6, 3), " MB/s");
  const std::string text = dump_json(hardware_value(cluster), 1, 6) + "\n";
  write_file_atomically(path, text);
  if (flags.has("json")) {
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  std::printf("%s in %.0f s: time of the smallest, rate of the largest, spread (half the distance of quartiles)\n",
              cluster.device.name.c_str(), seconds_since(begin));
  for (const auto& speeds : all) print_speeds(*speeds);
  std::printf("\ndisk: %.0f MB/s written\n%s: use it with --gpus %dxthis-machine\n", disk / 1e6, path.c_str(),
              numbers.back());
  if (unsteady > 0.25)
    log::warning("the noisiest measurement varies by ", format_real(100 * unsteady, 2),
                 " %: measure again when the machine is idle");
  return 0;
}

}  // namespace tessera::tool
