#include <tessera/launch/doctor/allocation.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::launch {
namespace {

// Object stores refuse requests beyond a quarter of an hour (S3: RequestTimeTooSkewed), and Kerberos, which network
// file systems use, refuses tickets beyond five minutes.
constexpr double clock_fails = 300, clock_warns = 0.5;  // seconds
constexpr double slow_host = 1.25;                      // times the median of all hosts
constexpr double slow_link = 0.5;                       // times the median bandwidth
constexpr double gigabit = 0.9e9 / 8;                   // bytes per second of a gigabit interface
constexpr double late_answer = 5, late_seconds = 1e-3;  // times the median round trip, with this minimum

std::size_t index(int host) { return static_cast<std::size_t>(host); }

/// The lower of the two middle values: of two hosts the slower one is compared with the faster one.
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string per_second(double bytes) { return concat(format_bytes(static_cast<std::uint64_t>(bytes)), "/s"); }
std::string in_milliseconds(double seconds) {
  return seconds < 1e-5 ? "less than 0.01 ms" : concat(format_real(seconds * 1e3, 3), " ms");
}

/// The slower direction, which a collective waits for.
double bandwidth(const Link& link) { return std::min(link.there, link.back); }

class Judge {
 public:
  explicit Judge(const Allocation& allocation) : all_(allocation), hosts_(allocation.hosts) {
    for (const Link& link : all_.links.links)
      if (link.failure.empty()) {
        good_.push_back(&link);
      } else {
        broken_.push_back(&link);
      }
  }

  std::vector<SharedFinding> take() {
    each_alone();
    same(
        "versions", Health::failure, [](const HostReport& r) { return r.version; },
        "install one version on all hosts: ranks of different versions refuse to join");
    same(
        "kinds of processor", Health::warning, [](const HostReport& r) { return r.processor; },
        "sums differ in their last bits between kinds of processor, and every step waits for the slowest: choose hosts "
        "of one "
        "kind (Slurm: --constraint), or balance the work by speed with --balance_batches true");
    same(
        "processors", Health::warning, [](const HostReport& r) { return concat(r.processors); },
        "every step waits for the host with the fewest: ask for the same number on each (Slurm: --cpus-per-task), or "
        "balance the work by speed with --balance_batches true");
    speed();
    clocks();
    if (hosts_.size() > 1) connections();
    if (!good_.empty()) bandwidths();
    if (!good_.empty()) delays();
    return std::move(findings_);
  }

 private:
  void add(const char* check, Health health, std::string found, std::string remedy = "", std::vector<int> blamed = {}) {
    findings_.push_back({{check, health, std::move(found), std::move(remedy)}, std::move(blamed)});
  }

  const std::string& name(int host) const { return hosts_[index(host)].host; }

  std::string names(const std::vector<int>& hosts) const {
    std::vector<std::string> list;
    for (const int host : hosts) {
      if (list.size() == 8) {
        list.push_back(concat("and ", hosts.size() - 8, " more"));
        break;
      }
      list.push_back(name(host));
    }
    return join(list);
  }

  void each_alone() {
    // Identical findings of many hosts become one line: a cluster's limits are wrong everywhere or nowhere.
    struct Group {
      Finding finding;
      std::vector<int> hosts;
    };
    std::vector<Group> groups;
    for (std::size_t host = 0; host < hosts_.size(); ++host)
      for (const Finding& finding : hosts_[host].alone) {
        if (finding.health == Health::good) continue;
        const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
          return group.finding.check == finding.check && group.finding.health == finding.health &&
                 group.finding.remedy == finding.remedy;
        });
        if (same != groups.end()) {
          same->hosts.push_back(static_cast<int>(host));
        } else {
          groups.push_back({finding, {static_cast<int>(host)}});
        }
      }
    if (groups.empty()) add("each host", Health::good, concat("nothing found on ", hosts_.size()));
    for (Group& group : groups) {
      group.finding.found = concat(names(group.hosts), ": ", group.finding.found);
      findings_.push_back({std::move(group.finding), std::move(group.hosts)});
    }
  }

  /// Checks a property that should be equal on all hosts. Hosts that differ from the majority are reported as at fault.
  void same(const char* check, Health bad, const std::function<std::string(const HostReport&)>& of,
            const std::string& remedy) {
    std::map<std::string, std::vector<int>> kinds;
    for (std::size_t host = 0; host < hosts_.size(); ++host) kinds[of(hosts_[host])].push_back(static_cast<int>(host));
    if (kinds.size() == 1) {
      add(check, Health::good, concat(kinds.begin()->first, hosts_.size() > 1 ? " everywhere" : ""));
      return;
    }
    const auto most = std::max_element(kinds.begin(), kinds.end(),
                                       [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    std::vector<std::string> found;
    std::vector<int> others;
    for (const auto& [kind, hosts] : kinds) {
      found.push_back(concat(kind, " on ", names(hosts)));
      if (kind != most->first) others.insert(others.end(), hosts.begin(), hosts.end());
    }
    add(check, bad, join(found, "; "), remedy, others);
  }

  void speed() {
    std::vector<double> seconds;
    for (const HostReport& host : hosts_)
      if (host.core_seconds > 0) seconds.push_back(host.core_seconds);
    if (seconds.size() < 2) return;
    const double usual = median(seconds);
    std::vector<int> slow;
    double worst = 0;
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      worst = std::max(worst, hosts_[host].core_seconds / usual);
      if (hosts_[host].core_seconds > slow_host * usual) slow.push_back(static_cast<int>(host));
    }
    if (slow.empty()) {
      add("speed of hosts", Health::good, concat("the slowest takes ", format_real(worst, 3), " x the median"));
    } else {
      add("speed of hosts", Health::warning,
          concat(names(slow), ": up to ", format_real(worst, 3), " x the time of the median host"),
          "every step waits for them: check for heat, a power cap or another job there, exclude them, or balance the "
          "work by speed with --balance_batches true",
          slow);
    }
  }

  void clocks() {
    const auto ahead = clocks_ahead(all_.links, static_cast<int>(hosts_.size()));
    std::vector<double> known;
    for (const auto& clock : ahead)
      if (clock) known.push_back(clock->seconds);
    if (known.size() < 2) return;
    const double usual = median(known);  // host 0's own clock may be the wrong one
    double worst = 0, within = 0;
    std::vector<int> wrong;
    for (std::size_t host = 0; host < ahead.size(); ++host) {
      if (!ahead[host]) continue;
      const double off = std::abs(ahead[host]->seconds - usual);
      if (off > worst) worst = off, within = ahead[host]->within;
      if (off > clock_warns + ahead[host]->within) wrong.push_back(static_cast<int>(host));
    }
    const std::string found = concat(worst < 1 ? in_milliseconds(worst) : concat(format_real(worst, 3), " s"),
                                     " from the median at most (known within ", in_milliseconds(within), ")");
    if (wrong.empty()) {
      add("clocks", Health::good, found);
    } else {
      const std::string who = known.size() == 2 ? "two hosts" : names(wrong);
      if (known.size() == 2) wrong.clear();  // it is unknown which of the two is right
      add("clocks", worst > clock_fails ? Health::failure : Health::warning, concat(who, ": ", found),
          "timedatectl set-ntp true, or chronyc makestep: object stores and network file systems refuse hosts whose "
          "clock is minutes off, and logs do not line up",
          wrong);
    }
  }

  void connections() {
    const std::string measured = all_.links.rounds == all_.links.rounds_for_all
                                     ? "all pairs"
                                     : concat(good_.size() + broken_.size(), " pairs (", all_.links.rounds, " of ",
                                              all_.links.rounds_for_all, " rounds)");
    if (broken_.empty()) {
      add("connections", Health::good, concat(measured, " reach each other"));
      return;
    }
    // A host that most others cannot reach is reported alone; the remaining failures are reported pair by pair.
    std::vector<int> tried(hosts_.size()), failed(hosts_.size());
    for (const Link& link : all_.links.links)
      for (const int host : {link.from, link.to}) {
        ++tried[index(host)];
        failed[index(host)] += link.failure.empty() ? 0 : 1;
      }
    std::vector<int> cut_off;
    for (std::size_t host = 0; host < hosts_.size(); ++host)
      if (hosts_.size() > 2 && 2 * failed[host] > tried[host]) cut_off.push_back(static_cast<int>(host));
    const char* remedy =
        "open the ports between the hosts of a job (firewall, security group, network policy), and use a rendezvous "
        "address "
        "in a network that all hosts share: --main_process_ip";
    for (const int host : cut_off) {
      const auto link = std::find_if(broken_.begin(), broken_.end(),
                                     [&](const Link* one) { return one->from == host || one->to == host; });
      add("connections", Health::failure,
          concat(name(host), ": no connection with ", failed[index(host)], " of ", tried[index(host)], " hosts (",
                 (*link)->failure, ")"),
          remedy, {host});
    }
    for (const Link* link : broken_) {
      const auto is_cut_off = [&](int host) {
        return std::find(cut_off.begin(), cut_off.end(), host) != cut_off.end();
      };
      if (is_cut_off(link->from) || is_cut_off(link->to)) continue;
      add("connections", Health::failure, concat(name(link->from), " - ", name(link->to), ": ", link->failure), remedy);
    }
  }

  void bandwidths() {
    std::vector<double> rates;
    std::vector<std::vector<double>> of_host(hosts_.size());
    for (const Link* link : good_) {
      rates.push_back(bandwidth(*link));
      for (const int host : {link->from, link->to}) of_host[index(host)].push_back(bandwidth(*link));
    }
    const double usual = median(rates);
    const auto slowest = std::min_element(good_.begin(), good_.end(),
                                          [](const Link* a, const Link* b) { return bandwidth(*a) < bandwidth(*b); });
    const std::string found = concat(per_second(usual), " each way (median); least ", per_second(bandwidth(**slowest)),
                                     ", ", name((*slowest)->from), " - ", name((*slowest)->to));
    std::vector<int> slow;  // hosts whose links are slow with every other host
    for (std::size_t host = 0; host < hosts_.size(); ++host)
      if (of_host[host].size() > 1 && median(of_host[host]) < slow_link * usual) slow.push_back(static_cast<int>(host));
    bool good = true;
    if (!slow.empty()) {
      good = false;
      add("bandwidth", Health::warning,
          concat(names(slow), ": ", per_second(median(of_host[index(slow.front())])), " to the others, where ",
                 per_second(usual), " is usual"),
          "check their cable, switch port and negotiated speed (ethtool), or exclude them", slow);
    }
    for (const Link* link : good_) {
      const auto is_slow = [&](int host) { return std::find(slow.begin(), slow.end(), host) != slow.end(); };
      if (is_slow(link->from) || is_slow(link->to) || bandwidth(*link) >= slow_link * usual) continue;
      good = false;
      add("bandwidth", Health::warning,
          concat(name(link->from), " - ", name(link->to), ": ", per_second(link->there), " and back ",
                 per_second(link->back), ", where ", per_second(usual), " is usual"),
          "a shared path between racks, or a bad port on it: order the hosts so that consecutive ones are "
          "neighbours "
          "in the network");
    }
    if (usual < gigabit) {
      good = false;
      add("bandwidth", Health::warning, concat(found, ": less than 1 Gbit/s"),
          "gradient reduction will take most of each step: use a rendezvous address in the fast network "
          "(--main_process_ip), "
          "or send less (hybrid_shard, --gradient_accumulation_steps, --gradient_compression)");
    }
    if (good) add("bandwidth", Health::good, found);
  }

  void delays() {
    std::vector<double> times;
    for (const Link* link : good_) times.push_back(link->round_trip);
    const double usual = median(times), most = std::max(late_answer * usual, late_seconds);
    std::vector<int> late;
    const Link* latest = good_.front();
    std::vector<int> count(hosts_.size()), of(hosts_.size());
    for (const Link* link : good_) {
      if (link->round_trip > latest->round_trip) latest = link;
      for (const int host : {link->from, link->to}) {
        ++of[index(host)];
        count[index(host)] += link->round_trip > most ? 1 : 0;
      }
    }
    for (std::size_t host = 0; host < hosts_.size(); ++host)
      if (of[host] > 1 && 2 * count[host] > of[host]) late.push_back(static_cast<int>(host));
    const std::string found =
        concat(in_milliseconds(usual), " there and back (median); most ", in_milliseconds(latest->round_trip), ", ",
               name(latest->from), " - ", name(latest->to));
    if (latest->round_trip <= most) {
      add("delay", Health::good, found);
    } else {
      add("delay", Health::warning, late.empty() ? found : concat(names(late), ": ", found),
          "a busy or distant host, or a loaded path: it delays every small message of a step", late);
    }
  }

  const Allocation& all_;
  const std::vector<HostReport>& hosts_;
  std::vector<const Link*> good_, broken_;
  std::vector<SharedFinding> findings_;
};

Value value_of_report(const HostReport& report) {
  return Value::make_object({{"host", Value::of(report.host)},
                             {"version", Value::of(report.version)},
                             {"processor", Value::of(report.processor)},
                             {"processors", Value::of(report.processors)},
                             {"core_seconds", Value::of(report.core_seconds)},
                             {"findings", value_of(report.alone)}});
}

}  // namespace

std::string text_of(const HostReport& report) { return dump_json(value_of_report(report), -1); }

HostReport report_from(const std::string& text) {
  const Value parsed = parse_json(text, "the report of a host");
  HostReport report{parsed.at("host").as_string(),       parsed.at("version").as_string(),
                    parsed.at("processor").as_string(),  static_cast<int>(parsed.at("processors").as_int()),
                    parsed.at("core_seconds").as_real(), {}};
  for (const Value& item : parsed.at("findings").items()) {
    const std::string& health = item.at("health").as_string();
    const auto known = {Health::good, Health::warning, Health::failure};
    const auto* const found =
        std::find_if(known.begin(), known.end(), [&](Health one) { return word_of(one) == health; });
    if (found == known.end()) throw InputError(concat("a host's report has an unknown health '", health, "'"));
    report.alone.push_back(
        {item.at("check").as_string(), *found, item.at("found").as_string(), item.at("remedy").as_string()});
  }
  return report;
}

std::vector<SharedFinding> diagnose(const Allocation& allocation) {
  TESSERA_CHECK(!allocation.hosts.empty(), "an allocation has at least one host");
  return Judge(allocation).take();
}

Health worst(std::span<const SharedFinding> findings) {
  Health health = Health::good;
  for (const SharedFinding& shared : findings) health = std::max(health, shared.finding.health);
  return health;
}

std::string table_of(const Allocation& allocation, std::span<const SharedFinding> findings) {
  std::vector<Finding> plain;
  for (const SharedFinding& shared : findings) plain.push_back(shared.finding);
  const std::size_t hosts = allocation.hosts.size();
  return table_of(concat(hosts, hosts == 1 ? " host" : " hosts"), plain);
}

Value value_of(const Allocation& allocation, std::span<const SharedFinding> findings) {
  std::vector<Value> hosts, list, links;
  for (const HostReport& report : allocation.hosts) hosts.push_back(value_of_report(report));
  const auto name = [&](int host) { return Value::of(allocation.hosts[index(host)].host); };
  for (const SharedFinding& shared : findings) {
    std::vector<Value> blamed;
    for (const int host : shared.hosts) blamed.push_back(name(host));
    list.push_back(Value::make_object({{"check", Value::of(shared.finding.check)},
                                       {"health", Value::of(word_of(shared.finding.health))},
                                       {"found", Value::of(shared.finding.found)},
                                       {"remedy", Value::of(shared.finding.remedy)},
                                       {"hosts", Value::make_array(std::move(blamed))}}));
  }
  for (const Link& link : allocation.links.links)
    links.push_back(link.failure.empty() ? Value::make_object({{"from", name(link.from)},
                                                               {"to", name(link.to)},
                                                               {"round_trip", Value::of(link.round_trip)},
                                                               {"there", Value::of(link.there)},
                                                               {"back", Value::of(link.back)},
                                                               {"clock_ahead", Value::of(link.clock_ahead)}})
                                         : Value::make_object({{"from", name(link.from)},
                                                               {"to", name(link.to)},
                                                               {"failure", Value::of(link.failure)}}));
  return Value::make_object({{"health", Value::of(word_of(worst(findings)))},
                             {"hosts", Value::make_array(std::move(hosts))},
                             {"findings", Value::make_array(std::move(list))},
                             {"links", Value::make_array(std::move(links))}});
}

std::vector<BadHost> bad_hosts(const Allocation& allocation, std::span<const SharedFinding> findings) {
  // A warning about a host's own settings affects only that host; a warning of these checks means that it slows all
  // others down.
  constexpr std::array<std::string_view, 4> hold_up = {"speed of hosts", "bandwidth", "delay", "slow cores"};
  std::vector<BadHost> bad;
  for (const SharedFinding& shared : findings) {
    const Finding& finding = shared.finding;
    const bool counts = finding.health == Health::failure ||
                        (finding.health == Health::warning &&
                         std::find(hold_up.begin(), hold_up.end(), finding.check) != hold_up.end());
    if (!counts) continue;
    for (const int host : shared.hosts) {
      const std::string& name = allocation.hosts[index(host)].host;
      if (std::any_of(bad.begin(), bad.end(), [&](const BadHost& one) { return one.host == name; })) continue;
      bad.push_back({name, concat(finding.check, ": ", finding.found)});
    }
  }
  return bad;
}

std::string updated_bad_hosts(std::string_view text, const Allocation& allocation, std::span<const BadHost> bad,
                              const std::string& when) {
  std::string out;
  for (const std::string& line : split(text, '\n')) {
    const std::string host{trim(std::string_view(line).substr(0, line.find('#')))};
    const bool was_checked = std::any_of(allocation.hosts.begin(), allocation.hosts.end(),
                                         [&](const HostReport& report) { return report.host == host; });
    if (!line.empty() && !was_checked) out += line + "\n";
  }
  for (const BadHost& one : bad) out += concat(one.host, "  # ", when, " ", one.why, "\n");
  return out;
}

}  // namespace tessera::launch
