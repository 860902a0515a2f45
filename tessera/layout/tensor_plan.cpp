#include <tessera/layout/tensor_plan.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/base/words.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace tessera::layout {
namespace {

struct StyleWord {
  std::string_view word;
  TensorStyle style;
  int blocks = 1;
};
/// The first word of each style is its canonical name.
constexpr std::array words = {
    StyleWord{"colwise", TensorStyle::colwise},
    StyleWord{"colwise_gather_output", TensorStyle::colwise_gather_output},
    StyleWord{"colwise_rep", TensorStyle::colwise_gather_output},  // transformers 4
    StyleWord{"packed_colwise", TensorStyle::colwise, 2},
    StyleWord{"packed_colwise_gather_output", TensorStyle::colwise_gather_output, 2},
    StyleWord{"rowwise", TensorStyle::rowwise},
    StyleWord{"rowwise_split_input", TensorStyle::rowwise_split_input},
    StyleWord{"rowwise_rep", TensorStyle::rowwise_split_input},  // transformers 4
    StyleWord{"embedding_rowwise", TensorStyle::embedding_rowwise},
    StyleWord{"sequence_parallel", TensorStyle::sequence_parallel},
    StyleWord{"replicated_with_grad_allreduce", TensorStyle::replicated_with_grad_allreduce},
    StyleWord{"replicated", TensorStyle::replicated},
    StyleWord{"replicate", TensorStyle::replicated},
};

std::vector<std::string_view> components(std::string_view name) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t dot = name.find('.', begin);
    parts.push_back(name.substr(begin, dot - begin));
    if (dot == std::string_view::npos) return parts;
    begin = dot + 1;
  }
}

/// `*` matches any characters of one component.
bool component_matches(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t end = star; end <= name.size(); ++end)
    if (component_matches(rest, name.substr(end))) return true;
  return false;
}

bool ends_match(const std::vector<std::string_view>& pattern, std::span<const std::string_view> name) {
  if (pattern.size() > name.size()) return false;
  name = name.subspan(name.size() - pattern.size());
  for (std::size_t i = 0; i < pattern.size(); ++i)
    if (!component_matches(pattern[i], name[i])) return false;
  return true;
}

/// Returns the numbers of ranks that divide `count` units, as in "1, 2, 4".
std::string divisors(std::int64_t count) {
  std::vector<std::string> fitting;
  for (std::int64_t n = 1; n <= std::min<std::int64_t>(count, 64); ++n)
    if (count % n == 0) fitting.push_back(std::to_string(n));
  return join(fitting);
}

void cut_outputs(const std::string& name, const TensorRule& rule, int rank, int ranks, TensorPart& part) {
  const std::int64_t all = part.whole[static_cast<std::size_t>(part.dim)];
  if (all % rule.blocks != 0)
    throw InputError(concat("tensor parallelism: ", name, " has ", all, " outputs, which do not form ", rule.blocks,
                            " equal blocks (packed_colwise:", rule.blocks, ")"));
  const std::int64_t block = all / rule.blocks, units = rule.heads > 0 ? rule.heads : block;
  if (block % units != 0)
    throw InputError(concat("tensor parallelism: ", name, " has ", block, " outputs, which are not a multiple of ",
                            units, " heads"));
  std::int64_t first = 0, count = 0;
  if (units % ranks == 0) {
    count = units / ranks;
    first = rank * count;
  } else if (rule.heads > 0 && ranks % units == 0) {
    count = 1;
    part.sharers = static_cast<int>(ranks / units);
    first = rank / part.sharers;
  } else {
    throw InputError(concat("tensor parallelism: ", name, " has ", units, rule.heads > 0 ? " heads" : " outputs",
                            rule.blocks > 1 ? " per block" : "", ", which ", ranks,
                            rule.heads > 0 ? " ranks neither divide nor are a multiple of; possible are "
                                           : " ranks do not divide; possible are ",
                            divisors(units), " ranks"));
  }
  const std::int64_t width = block / units;
  for (int b = 0; b < rule.blocks; ++b)
    part.ranges.emplace_back(b * block + first * width, b * block + (first + count) * width);
}

/// The same for blocks with different numbers of heads.
void cut_blocks_of_heads(const std::string& name, const TensorRule& rule, int rank, int ranks, TensorPart& part) {
  const std::int64_t all = part.whole[static_cast<std::size_t>(part.dim)];
  const std::int64_t heads = std::accumulate(rule.block_heads.begin(), rule.block_heads.end(), std::int64_t{0});
  if (all % heads != 0)
    throw InputError(
        concat("tensor parallelism: ", name, " has ", all, " outputs, which are not a multiple of ", heads, " heads"));
  const std::int64_t width = all / heads;
  std::int64_t begin = 0;  // start of the block, in heads
  for (const std::int64_t block : rule.block_heads) {
    if (block % ranks != 0)
      throw InputError(concat("tensor parallelism: ", name, " has a block of ", block, " heads, which ", ranks,
                              " ranks do not divide; possible are ", divisors(block), " ranks"));
    const std::int64_t own = block / ranks;
    part.ranges.emplace_back((begin + rank * own) * width, (begin + (rank + 1) * own) * width);
    begin += block;
  }
}

void cut_inputs(const std::string& name, int rank, int ranks, TensorPart& part) {
  const std::int64_t all = part.whole[static_cast<std::size_t>(part.dim)];
  if (all % ranks != 0)
    throw InputError(concat("tensor parallelism: ", name, " has ", all, " inputs, which ", ranks,
                            " ranks do not divide; possible are ", divisors(all), " ranks"));
  part.ranges = {{rank * (all / ranks), (rank + 1) * (all / ranks)}};
}

/// Parts may be unequal: tables cut by rows, outputs that are gathered at once.
void cut_unevenly(const std::string& name, int dim, int rank, int ranks, TensorPart& part) {
  const std::int64_t all = part.whole[static_cast<std::size_t>(dim)];
  if (all < ranks)
    throw InputError(concat("tensor parallelism: ", name, " has ", all, " rows for ", ranks,
                            " ranks; each rank needs at least one"));
  part.dim = dim;
  part.ranges = {{rank * all / ranks, (rank + 1) * all / ranks}};
}

}  // namespace

std::string_view style_name(TensorStyle style) { return std::ranges::find(words, style, &StyleWord::style)->word; }

bool matches(std::string_view pattern, std::string_view name) {
  const auto parts = components(name);
  for (const std::string& each : tessera::split(pattern, '|')) {
    const auto wanted = components(each);
    if (ends_match(wanted, parts) || ends_match(wanted, std::span(parts).first(parts.size() - 1))) return true;
  }
  return false;
}

TensorRule parse_rule(std::string pattern, std::string_view style) {
  if (pattern.empty())
    throw InputError("tensor parallelism: a plan has an empty pattern; use a module's name or suffix");
  const std::size_t colon = style.find(':');
  const std::string_view name = style.substr(0, colon);
  const auto word = std::ranges::find(words, name, &StyleWord::word);
  if (word == words.end()) {
    std::vector<std::string> known;
    for (const StyleWord& each : words) known.emplace_back(each.word);
    const auto near = tessera::nearest(name, known);
    throw InputError(concat("tensor parallelism: ", pattern, ": ", name, " is not a style",
                            near ? concat("; did you mean ", *near, "?") : concat("; the styles are ", join(known))));
  }
  if (colon == std::string_view::npos) return {std::move(pattern), word->style, word->blocks};
  const auto blocks = parse_int(style.substr(colon + 1));
  if (word->blocks < 2 || !blocks || *blocks < 1 || *blocks > 64)
    throw InputError(concat("tensor parallelism: ", pattern, ": ", style,
                            " is not a style; packed_colwise:N and packed_colwise_gather_output:N have N blocks, 1 to "
                            "64, the others none"));
  return {std::move(pattern), word->style, static_cast<int>(*blocks)};
}

std::int64_t TensorPart::extent() const {
  std::int64_t sum = 0;
  for (const auto& [begin, end] : ranges) sum += end - begin;
  return sum;
}

std::vector<std::int64_t> TensorPart::shape() const {
  std::vector<std::int64_t> sizes = whole;
  if (dim >= 0) sizes[static_cast<std::size_t>(dim)] = extent();
  return sizes;
}

std::vector<TensorBox> boxes_of(const TensorPart& part, std::int64_t begin, std::int64_t end) {
  if (begin == end) return {};
  const std::vector<std::int64_t> shape = part.shape();
  const Region wanted = flat_region(shape, begin, end);
  if (part.dim < 0) return {{wanted, wanted}};
  std::vector<TensorBox> boxes;
  const auto dim = static_cast<std::size_t>(part.dim);
  std::int64_t place = 0;
  for (const auto& [first, last] : part.ranges) {
    Region own = whole_region(shape);
    own.offset[dim] = place;
    own.shape[dim] = last - first;
    own.end = own.end / shape[dim] * (last - first);
    place += last - first;
    // Consecutive elements of the part are consecutive in each box.
    std::int64_t from = own.end, to = 0;
    for_each_common_run(shape, own, wanted, [&](const CommonRun& run) {
      from = std::min(from, run.from);
      to = std::max(to, run.from + run.count);
    });
    if (from >= to) continue;
    own.begin = from;
    own.end = to;
    Region whole = own;
    whole.offset[dim] = first;
    boxes.push_back({std::move(whole), std::move(own)});
  }
  return boxes;
}

TensorPart tensor_part(const std::string& name, std::span<const std::int64_t> shape, const TensorRule& rule, int rank,
                       int ranks) {
  TESSERA_CHECK(rank >= 0 && rank < ranks, "rank ", rank, " of ", ranks);
  if (rule.holders > 0) {
    const int first = rule.first_holder, past = first + rule.holders;
    TESSERA_CHECK(first >= 0 && past <= ranks, name, " on ranks ", first, " to ", past - 1, " of ", ranks);
    TensorRule among_holders = rule;
    among_holders.holders = 0;
    const bool holds = rank >= first && rank < past;
    TensorPart part = tensor_part(name, shape, among_holders, holds ? rank - first : 0, rule.holders);
    TESSERA_CHECK(part.dim >= 0, name, " is not divided by ", style_name(rule.style),
                  ", so no rank can be without a part of it");
    if (!holds) part.ranges.clear();
    return part;
  }
  TensorPart part{.whole = {shape.begin(), shape.end()}};
  const bool vector = shape.size() == 1;
  const auto refuse = [&](std::string_view wanted) {
    throw InputError(concat("tensor parallelism: ", name, " has ", shape.size(), " dimensions and is not a ", wanted,
                            ", which ", style_name(rule.style), " (pattern ", rule.pattern, ") is for"));
  };
  switch (rule.style) {
    case TensorStyle::colwise:
    case TensorStyle::colwise_gather_output:
      if (!vector && shape.size() != 2) refuse("matrix");
      // the bias is added to the gathered output
      if (vector && rule.style == TensorStyle::colwise_gather_output) break;
      part.dim = !vector && rule.transposed ? 1 : 0;
      if (!rule.block_heads.empty())
        cut_blocks_of_heads(name, rule, rank, ranks, part);
      else if (rule.style == TensorStyle::colwise_gather_output && rule.blocks == 1 && rule.heads == 0)
        cut_unevenly(name, part.dim, rank, ranks, part);
      else
        cut_outputs(name, rule, rank, ranks, part);
      if (rule.style == TensorStyle::colwise_gather_output && part.sharers > 1)
        throw InputError(concat("tensor parallelism: ", name, " has ", rule.heads, " heads for ", ranks,
                                " ranks, and its output is gathered: several ranks would have the same heads. Remove "
                                "`heads` from the rule for ",
                                rule.pattern, ": gathered outputs may be cut anywhere"));
      break;
    case TensorStyle::rowwise:
    case TensorStyle::rowwise_split_input:
      if (vector) break;  // the bias is added once, to the sum
      if (shape.size() != 2) refuse("matrix");
      part.dim = rule.transposed ? 0 : 1;
      cut_inputs(name, rank, ranks, part);
      break;
    case TensorStyle::embedding_rowwise:
      if (shape.size() != 2) refuse("table");
      cut_unevenly(name, 0, rank, ranks, part);
      break;
    case TensorStyle::sequence_parallel:
    case TensorStyle::replicated_with_grad_allreduce:
      part.summed = true;
      break;
    case TensorStyle::replicated:
      break;
  }
  return part;
}

}  // namespace tessera::layout
