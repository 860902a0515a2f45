#include <tessera/parallel/sharding/unused.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/comm/run_on_all_ranks.h>

namespace tessera::parallel {

void throw_unused(const comm::Group& group, const std::vector<std::string>& names, const std::string& mine) {
  const std::vector<std::string> texts = comm::all_gather_text(group, mine);
  std::vector<std::vector<std::string>> ranks(names.size());  // by parameter: the ranks that lack its gradient
  for (std::size_t r = 0; r < texts.size(); ++r)
    for (const std::string& line : split(texts[r], '\n'))
      if (const auto i = parse_int(line)) ranks[static_cast<std::size_t>(*i)].push_back(std::to_string(r));
  constexpr std::size_t most = 10;  // maximum number of names in the message
  std::vector<std::string> named;
  std::size_t count = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].empty() || ++count > most) continue;
    named.push_back(
        concat("'", names[i], "' on ",
               ranks[i].size() == texts.size() ? std::string("every rank") : concat("rank ", join(ranks[i]))));
  }
  if (count == 0)
    throw Error(
        concat("data parallelism: backward gave no gradient to some parameters on other ranks that hold them, "
               "outside of group '",
               group.name(), "'; the errors of those ranks name the parameters"));
  throw Error(concat("data parallelism: backward gave no gradient to ", count, " of ", names.size(),
                     " parameters: ", join(named), count > most ? ", ..." : "",
                     "; use every parameter in the loss, set requires_grad to false before wrapping, or "
                     "set find_unused_parameters"));
}

}  // namespace tessera::parallel
