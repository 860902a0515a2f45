#include <tools/tessera/top/hosts.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/launch/agent/process.h>
#include <tessera/launch/fleet/hostfile.h>
#include <tessera/launch/fleet/ssh.h>
#include <tools/tessera/commands.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <vector>

namespace tessera::tool {
namespace {

constexpr double patience = 20;  // seconds; ssh's own connection timeout is 10

struct Answer {
  std::string host;
  bool over_ssh = true;
  std::string text;
  std::string failure;  ///< the reason why `text` is empty
};

void ask(Answer& answer, bool as_json) {
  try {
    std::vector<std::string> command = {own_program(), "top", as_json ? "--json" : "--once"};
    if (answer.over_ssh) {
      const std::string folder = std::filesystem::current_path().string();
      command = launch::ssh_command(answer.host, launch::remote_line(folder, {}, command));
    }
    const launch::Captured got = launch::run_and_capture(command, {}, patience);
    if (got.exit_code == 0 && !got.timed_out) {
      answer.text = got.out;
      if (as_json) parse_json(got.out, answer.host);  // throws if anything was printed before the JSON
      return;
    }
    const std::string said = trim(got.err);
    answer.failure = got.timed_out  ? concat("no answer within ", patience, " s")
                     : said.empty() ? concat("exit code ", got.exit_code)
                                    : said;
  } catch (const std::exception& error) {
    answer.failure = error.what();
  }
}

}  // namespace

int top_of_hosts(const std::string& hostfile, bool as_json) {
  std::vector<Answer> answers;
  for (const launch::HostSlots& host : launch::read_hostfile(hostfile)) {
    const bool here = answers.empty() && launch::is_this_host(host.name.substr(host.name.find('@') + 1));
    answers.push_back({.host = host.name, .over_ssh = !here, .text = "", .failure = ""});
  }
  // Each thread takes every 32nd host: more ssh processes at once do not help.
  {
    constexpr std::size_t at_once = 32;
    std::vector<std::jthread> askers;
    for (std::size_t first = 0; first < std::min(at_once, answers.size()); ++first)
      askers.emplace_back([&answers, first, as_json] {
        for (std::size_t i = first; i < answers.size(); i += at_once) ask(answers[i], as_json);
      });
  }
  Value hosts = Value::make_object(), failed = Value::make_object();
  bool all = true;
  for (const Answer& answer : answers) {
    const bool good = answer.failure.empty();
    all = all && good;
    if (!as_json) {
      std::printf("== %s\n%s\n", answer.host.c_str(),
                  good ? trim(answer.text).c_str() : concat("failed: ", answer.failure).c_str());
    } else if (good) {
      hosts.set(answer.host, parse_json(answer.text, answer.host));
    } else {
      failed.set(answer.host, Value::of(answer.failure));
    }
  }
  if (as_json) {
    Value both = Value::make_object();
    both.set("hosts", std::move(hosts));
    both.set("failed", std::move(failed));
    std::printf("%s\n", dump_json(both, 2, 9).c_str());
  }
  return all ? 0 : static_cast<int>(ExitCode::failed);
}

}  // namespace tessera::tool
