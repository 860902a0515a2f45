#include <tessera/launch/fleet/hostfile.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

namespace tessera::launch {

namespace {

constexpr int max_slots = 4096;
constexpr std::size_t max_hosts = 65'536;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < line.size();) {
    if (is_space(line[i])) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < line.size() && !is_space(line[end])) ++end;
    words.emplace_back(line.substr(i, end - i));
    i = end;
  }
  return words;
}

/// Digits only, at most nine of them.
std::optional<int> parse_natural(std::string_view text) {
  if (text.empty() || text.size() > 9) return std::nullopt;
  int value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

}  // namespace

bool is_host_name(std::string_view name) {
  const auto at = name.find('@');
  if (at != std::string_view::npos) {
    const std::string_view user = name.substr(0, at);
    if (user.empty() || !is_host_name(user) || user.find(':') != std::string_view::npos) return false;
    name.remove_prefix(at + 1);
  }
  if (name.empty() || name.size() > 255 || name[0] == '-') return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_' || c == ':';
  });
}

std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& where) {
  std::vector<HostSlots> hosts;
  std::vector<std::size_t> lines;  // line number of each host
  std::size_t number = 0;
  while (!text.empty()) {
    const auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    const auto words = words_of(line.substr(0, line.find('#')));
    if (words.empty()) continue;
    const auto bad = [&](const std::string& what) {
      throw InputError(
          concat(where, ":", number, ": ", what, "; expected NAME slots=N, for example: worker-0 slots=4"));
    };
    if (words.size() != 2) bad(words.size() == 1 ? "no slots=N after the host's name" : "too many words");
    if (!is_host_name(words[0])) bad(concat("'", words[0], "' is not a host name"));
    if (!words[1].starts_with("slots=")) bad(concat("'", words[1], "' is not slots=N"));
    const auto slots = parse_natural(std::string_view(words[1]).substr(6));
    if (!slots || *slots < 1 || *slots > max_slots) {
      bad(concat("'", words[1], "': expected a number from 1 to ", max_slots));
    }
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      if (hosts[i].name == words[0]) bad(concat("host ", words[0], " is already listed on line ", lines[i], ""));
    }
    if (hosts.size() == max_hosts) bad(concat("more than ", max_hosts, " hosts"));
    HostSlots host{words[0], std::vector<int>(static_cast<std::size_t>(*slots)), *slots};
    std::iota(host.slots.begin(), host.slots.end(), 0);
    hosts.push_back(std::move(host));
    lines.push_back(number);
  }
  if (hosts.empty())
    throw InputError(concat(where, ":", std::max<std::size_t>(number, 1), ": the file contains no host"));
  return hosts;
}

std::vector<HostSlots> read_hostfile(const std::string& path) {
  return parse_hostfile(read_file(path, 16 << 20), path);
}

std::vector<std::string> read_bad_hosts(const std::string& path) {
  std::vector<std::string> hosts;
  if (!path_exists(path)) return hosts;
  int number = 0;
  for (const std::string& line : split(read_file(path), '\n')) {
    ++number;
    const std::string host{trim(std::string_view(line).substr(0, line.find('#')))};
    if (host.empty()) continue;
    if (!is_host_name(host))
      throw InputError(concat(path, ":", number, ": '", host.substr(0, 80),
                              "' is not a host name; expected one host name per line"));
    hosts.push_back(host);
  }
  return hosts;
}

std::vector<HostSlots> filter_hosts(const std::vector<HostSlots>& hosts, const std::string& include,
                                    const std::string& exclude) {
  if (include.empty() && exclude.empty()) return hosts;
  if (!include.empty() && !exclude.empty()) {
    throw InputError("--include and --exclude exclude each other: remove one of them");
  }
  const bool keep = !include.empty();
  const std::string& filter = keep ? include : exclude;
  const std::string name = concat(keep ? "--include " : "--exclude ", filter);
  std::vector<std::set<int>> named(hosts.size());
  for (const std::string& spec : split(filter, '@')) {
    const std::string host = trim(spec.substr(0, spec.find(':')));
    const auto found = std::find_if(hosts.begin(), hosts.end(), [&](const HostSlots& h) { return h.name == host; });
    if (found == hosts.end()) {
      std::vector<std::string> known;
      for (const HostSlots& h : hosts) known.push_back(h.name);
      const auto near = nearest(host, known);
      throw InputError(concat(name, ": host '", host, "' is not in the hostfile", near ? "; did you mean " : "",
                              near.value_or(""), near ? "?" : ""));
    }
    std::set<int>& slots = named[static_cast<std::size_t>(found - hosts.begin())];
    const auto colon = spec.find(':');
    std::vector<int> wanted = found->slots;
    if (colon != std::string::npos) {
      wanted.clear();
      for (const std::string& word : split(spec.substr(colon + 1), ',')) {
        const auto slot = parse_natural(trim(word));
        if (!slot) throw InputError(concat(name, ": '", word, "' is not a slot number; example: worker-1:0,2"));
        if (std::find(found->slots.begin(), found->slots.end(), *slot) == found->slots.end()) {
          throw InputError(
              concat(name, ": host ", host, " has slots 0 to ", found->slots_of_host - 1, ", not ", *slot));
        }
        wanted.push_back(*slot);
      }
    }
    for (int slot : wanted) {
      if (!slots.insert(slot).second)
        throw InputError(concat(name, ": slot ", slot, " of host ", host, " is listed twice"));
    }
  }
  std::vector<HostSlots> result;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    HostSlots host = hosts[i];
    std::erase_if(host.slots, [&](int slot) { return named[i].contains(slot) != keep; });
    if (!host.slots.empty()) result.push_back(std::move(host));
  }
  if (result.empty()) throw InputError(concat(name, ": no slot of the hostfile is left"));
  return result;
}

std::string device_list(const HostSlots& host) {
  bool first_ones = true;
  std::vector<std::string> slots;
  for (std::size_t i = 0; i < host.slots.size(); ++i) {
    first_ones = first_ones && host.slots[i] == static_cast<int>(i);
    slots.push_back(std::to_string(host.slots[i]));
  }
  return first_ones ? "" : join(slots, ",");
}

namespace {

[[noreturn]] void bad_list(const std::string& list, const std::string& what) {
  throw InputError(concat("Slurm node list '", list.substr(0, 200), "': ", what));
}

/// "03-05,9" -> 03 04 05 9.
std::vector<std::string> expand_ranges(const std::string& list, const std::string& ranges) {
  std::vector<std::string> numbers;
  for (const std::string& range : split(ranges, ',')) {
    const auto dash = range.find('-');
    const std::string low = range.substr(0, dash);
    const std::string high = dash == std::string::npos ? low : range.substr(dash + 1);
    const auto first = parse_natural(low), last = parse_natural(high);
    if (!first || !last) bad_list(list, concat("'", range, "' is neither a number nor a range of numbers"));
    if (*last < *first) bad_list(list, concat("the range ", range, " runs backwards"));
    if (static_cast<std::size_t>(*last - *first) >= max_hosts)
      bad_list(list, concat("more than ", max_hosts, " hosts"));
    for (int at = *first; at <= *last; ++at) {
      std::string number = std::to_string(at);
      if (number.size() < low.size()) number.insert(0, low.size() - number.size(), '0');
      numbers.push_back(std::move(number));
    }
    if (numbers.size() > max_hosts) bad_list(list, concat("more than ", max_hosts, " hosts"));
  }
  return numbers;
}

/// Expands one name with any number of brackets; the first bracket varies slowest.
std::vector<std::string> expand_name(const std::string& list, const std::string& name) {
  std::vector<std::string> result = {""};
  for (std::size_t i = 0; i < name.size();) {
    const auto open = name.find('[', i);
    const std::string plain = name.substr(i, open - i);
    for (std::string& prefix : result) prefix += plain;
    if (open == std::string::npos) break;
    const auto close = name.find(']', open);
    if (close == std::string::npos) bad_list(list, "missing ']'");
    const auto numbers = expand_ranges(list, name.substr(open + 1, close - open - 1));
    if (numbers.size() * result.size() > max_hosts) bad_list(list, concat("more than ", max_hosts, " hosts"));
    std::vector<std::string> longer;
    longer.reserve(numbers.size() * result.size());
    for (const std::string& prefix : result) {
      for (const std::string& number : numbers) longer.push_back(prefix + number);
    }
    result = std::move(longer);
    i = close + 1;
  }
  for (const std::string& host : result) {
    if (host.find('@') != std::string::npos || !is_host_name(host)) {
      bad_list(list, concat("'", host.substr(0, 80), "' is not a host name"));
    }
  }
  return result;
}

}  // namespace

std::vector<std::string> expand_node_list(const std::string& list) {
  std::vector<std::string> hosts;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (i < list.size() && c == '[') {
      if (inside) bad_list(list, "'[' inside brackets");
      inside = true;
    } else if (i < list.size() && c == ']') {
      if (!inside) bad_list(list, "']' without '['");
      inside = false;
    } else if (c == ',' && (!inside || i == list.size())) {
      if (inside) bad_list(list, "missing ']'");
      const std::string name = list.substr(begin, i - begin);
      if (name.empty()) bad_list(list, "an empty name");
      const auto names = expand_name(list, name);
      if (hosts.size() + names.size() > max_hosts) bad_list(list, concat("more than ", max_hosts, " hosts"));
      hosts.insert(hosts.end(), names.begin(), names.end());
      begin = i + 1;
    }
  }
  return hosts;
}

std::vector<int> expand_task_counts(const std::string& text) {
  std::vector<int> counts;
  const auto bad = [&](const std::string& what) {
    throw InputError(concat("Slurm tasks per node '", text.substr(0, 200), "': ", what, "; expected the form 4(x2),3"));
  };
  for (const std::string& part : split(text, ',')) {
    const auto open = part.find("(x");
    const auto count = parse_natural(part.substr(0, open));
    std::optional<int> times = 1;
    if (open != std::string::npos) {
      times = part.ends_with(")") ? parse_natural(part.substr(open + 2, part.size() - open - 3)) : std::nullopt;
    }
    if (!count || !times || *times < 1) bad(concat("'", part, "'"));
    if (counts.size() + static_cast<std::size_t>(*times) > max_hosts) bad(concat("more than ", max_hosts, " nodes"));
    counts.insert(counts.end(), static_cast<std::size_t>(*times), *count);
  }
  return counts;
}

}  // namespace tessera::launch
