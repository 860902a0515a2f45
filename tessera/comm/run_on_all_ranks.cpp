#include <tessera/comm/run_on_all_ranks.h>

#include <ATen/ATen.h>

#include <tessera/comm/fingerprint.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>

namespace tessera::comm {

std::vector<std::vector<std::int64_t>> all_gather_numbers(const Group& group, const std::vector<std::int64_t>& mine) {
  const auto n = static_cast<std::int64_t>(mine.size());
  std::vector<std::vector<std::int64_t>> result(static_cast<std::size_t>(group.size()), mine);
  if (n == 0 || group.size() == 1) return result;
  const Group host = group.host();
  const at::Tensor input = at::tensor(mine, at::kLong).to(host.device());
  at::Tensor output = at::empty({group.size() * n}, input.options());
  host.all_gather(output, input).wait();
  output = output.cpu();
  for (std::size_t r = 0; r < result.size(); ++r)
    std::copy_n(output.const_data_ptr<std::int64_t>() + static_cast<std::int64_t>(r) * n, n, result[r].begin());
  return result;
}

template <typename Number>
void all_reduce_numbers(const Group& group, std::vector<Number>& numbers) {
  if (numbers.empty() || group.size() == 1) return;
  const Group host = group.host();
  at::Tensor sums = at::tensor(numbers, c10::CppTypeToScalarType<Number>::value).to(host.device());
  host.all_reduce(sums).wait();
  sums = sums.cpu();
  std::copy_n(sums.const_data_ptr<Number>(), numbers.size(), numbers.begin());
}
template void all_reduce_numbers(const Group&, std::vector<double>&);
template void all_reduce_numbers(const Group&, std::vector<std::int64_t>&);
template void all_reduce_numbers(const Group&, std::vector<std::int32_t>&);

std::vector<std::string> all_gather_text(const Group& group, const std::string& mine) {
  const auto lengths = all_gather_numbers(group, {static_cast<std::int64_t>(mine.size())});
  std::int64_t longest = 1;
  for (const auto& length : lengths) longest = std::max(longest, length[0]);
  at::Tensor input = at::zeros({longest}, at::kByte);
  std::memcpy(input.data_ptr(), mine.data(), mine.size());
  const Group host = group.host();
  input = input.to(host.device());
  at::Tensor output = at::empty({group.size() * longest}, input.options());
  host.all_gather(output, input).wait();
  output = output.cpu();
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    texts.emplace_back(static_cast<const char*>(output.const_data_ptr()) + static_cast<std::int64_t>(r) * longest,
                       static_cast<std::size_t>(lengths[r][0]));
  return texts;
}

bool any_rank(const Group& group, bool mine) {
  const auto all = all_gather_numbers(group, {std::int64_t{mine}});
  return std::any_of(all.begin(), all.end(), [](const auto& one) { return one[0] != 0; });
}

void require_equal(const Group& group, const std::string& what, const std::string& value, const std::string& remedy) {
  const std::vector<std::string> values = all_gather_text(group, value);
  std::map<int, Fingerprint> facts;
  for (std::size_t rank = 0; rank < values.size(); ++rank) facts[static_cast<int>(rank)] = {{what, values[rank]}};
  if (const auto text = differences(facts)) throw InputError(concat(*text, ": ", remedy));
}

std::string join_errors(const std::vector<std::string>& by_rank) {
  std::string all;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
    if (!by_rank[rank].empty())
      all += concat(all.empty() ? "" : "; ", by_rank.size() > 1 ? concat("rank ", rank, ": ") : "", by_rank[rank]);
  return all;
}

void run_on_all_ranks(const Group& group, const std::function<void()>& work) {
  std::exception_ptr own;
  ExitCode code{};
  try {
    work();
  } catch (const Error& error) {
    own = std::current_exception();
    code = error.exit_code();
  } catch (...) {
    own = std::current_exception();
    code = ExitCode::failed;
  }
  const auto codes = all_gather_numbers(group, {own ? static_cast<std::int64_t>(code) : 0});
  for (std::size_t rank = 0; rank < codes.size(); ++rank) {
    if (codes[rank][0] == 0) continue;
    if (static_cast<int>(rank) == group.rank()) std::rethrow_exception(own);
    throw FailedElsewhere(static_cast<ExitCode>(codes[rank][0]));
  }
}

}  // namespace tessera::comm
