#include <tessera/layout/stages.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>

namespace tessera::layout {
namespace {

void check_stages(std::int64_t stages) {
  if (stages < 1 || stages > most_stages_in_layout)
    throw InputError(
        concat("a model cannot be cut into ", stages, " stages; possible are 1 to ", most_stages_in_layout));
}

void check_blocks(std::int64_t blocks) {
  if (blocks < 0 || blocks > most_blocks_in_layout)
    throw InputError(concat("a model of ", blocks, " blocks cannot be cut into stages; possible are 0 to ",
                            most_blocks_in_layout, " blocks"));
}

void check_cost(double cost, const std::string& what) {
  if (!std::isfinite(cost) || cost < 0)
    throw InputError(concat("the cost of ", what, " is ", format_real(cost), "; it must be finite and at least 0"));
}

/// Returns parts with the given numbers of blocks.
std::vector<StagePart> chain_of(const std::vector<std::int64_t>& counts) {
  std::vector<StagePart> parts(counts.size());
  std::int64_t first = 0;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    parts[s].first_block = first;
    parts[s].blocks = counts[s];
    first += counts[s];
  }
  parts.front().embeddings = true;
  parts.back().end = true;
  return parts;
}

std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 60)) out += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > 60 ? out + "..." : out;
}

/// "1 block", "3 blocks"
std::string counted(std::int64_t count, const char* one) { return concat(count, " ", one, count == 1 ? "" : "s"); }

/// Parses a layout into its letters and bars, each with its position. A bracket's content is appended to the result
/// before it is repeated, so time and memory are proportional to the text and the result, however deep the nesting.
class LayoutReader {
 public:
  explicit LayoutReader(std::string_view text) : text_(text) {}

  struct Item {
    char letter;
    std::size_t at;
  };

  std::vector<Item> read() {
    for (std::size_t i = 0; i < text_.size(); ++i) {
      const char c = text_[i];
      if (means_nothing(c)) continue;
      if (c == '*' || c == 'x') {
        i = repeat(i);
      } else if (c == '(') {
        open_.push_back({items_.size(), i});
        last_.reset();
      } else if (c == ')') {
        if (open_.empty()) fail(i, "this ) closes no (");
        last_ = open_.back().begin;
        open_.pop_back();
      } else {
        letter(c, i);
      }
    }
    if (!open_.empty()) fail(open_.back().at, "this ( is not closed");
    return std::move(items_);
  }

  [[noreturn]] void fail(std::size_t at, const std::string& reason) const {
    throw InputError(concat("pipeline layout '", shown(text_), "', column ", at + 1, ": ", reason));
  }

 private:
  static bool means_nothing(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ','; }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  void letter(char c, std::size_t at) {
    if (c != 'E' && c != 't' && c != 'a' && c != 'f' && c != 'm' && c != 'L' && c != '|')
      fail(
          at,
          concat(
              "'", shown(text_.substr(at, 1)),
              "' is unknown; the letters are E (embeddings), t (a block), a and f (its attention, its MLP), m (a depth "
              "of multi-token prediction), L (the end), | (next stage), ( ), and *N or xN (repeat the item before "
              "it)"));
    last_ = items_.size();
    add({c, at});
  }

  /// Parses the repeat at `sign`; returns the position of its last byte.
  std::size_t repeat(std::size_t sign) {
    if (!last_) fail(sign, "a repeat must follow a letter, | or ), and may occur only once there");
    std::size_t i = sign + 1;
    while (i < text_.size() && means_nothing(text_[i])) ++i;
    std::size_t end = i;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    const auto times = parse_int(text_.substr(i, end - i));
    if (end == i || !times || *times < 1)
      fail(sign, concat("a repeat needs a whole number of at least 1 after its ", text_[sign]));
    const std::size_t begin = *last_, size = items_.size() - begin;
    for (std::int64_t n = 1; size > 0 && n < *times; ++n)
      for (std::size_t k = 0; k < size; ++k) add(items_[begin + k]);
    last_.reset();
    return end - 1;
  }

  void add(Item item) {
    if ((item.letter == 't' || item.letter == 'a') && ++blocks_ > most_blocks_in_layout)
      fail(item.at, concat("there are more than ", most_blocks_in_layout, " blocks (t), the maximum"));
    if (item.letter == 'm' && ++depths_ > most_depths_in_layout)
      fail(item.at,
           concat("there are more than ", most_depths_in_layout, " depths of multi-token prediction (m), the maximum"));
    if (item.letter == '|' && ++bars_ >= most_stages_in_layout)
      fail(item.at, concat("there are more than ", most_stages_in_layout, " stages, the maximum"));
    if (item.letter == 'E' && ++embeddings_ > 1) fail(item.at, "E, the embeddings, occurs a second time");
    if (item.letter == 'L' && ++ends_ > 1) fail(item.at, "L, the end of the model, occurs a second time");
    items_.push_back(item);
  }

  struct Open {
    std::size_t begin, at;
  };

  std::string_view text_;
  std::vector<Item> items_;
  std::vector<Open> open_;
  std::optional<std::size_t> last_;  ///< start of the item that may be repeated
  std::int64_t blocks_ = 0, depths_ = 0, bars_ = 0, embeddings_ = 0, ends_ = 0;
};

}  // namespace

std::string text_of(const StagePart& part) {
  std::vector<std::string> texts;
  if (part.embeddings) texts.emplace_back("embeddings");
  const std::int64_t first = part.first_block + (part.begins_inside ? 1 : 0),
                     past = part.past_block() - (part.ends_inside ? 1 : 0);
  if (part.begins_inside) texts.push_back(concat("MLP of block ", part.first_block));
  if (past - first == 1) texts.push_back(concat("block ", first));
  if (past - first > 1) texts.push_back(concat("blocks ", first, "-", past - 1));
  if (part.ends_inside) texts.push_back(concat("attention of block ", past));
  if (part.end) texts.emplace_back("end");
  return texts.empty() ? "nothing" : join(texts);
}

std::vector<StagePart> parts_of_halves(const std::vector<std::int64_t>& halves) {
  check_stages(static_cast<std::int64_t>(halves.size()));
  std::vector<StagePart> parts(halves.size());
  std::int64_t first = 0;
  for (std::size_t s = 0; s < halves.size(); ++s) {
    if (halves[s] < 0 || halves[s] > 2 * most_blocks_in_layout)
      throw InputError(concat("stage ", s, " cannot have ", halves[s], " halves of blocks; possible are 0 to ",
                              2 * most_blocks_in_layout));
    const std::int64_t past = first + halves[s];
    if (halves[s] == 0) {  // an empty stage passes its input on, even inside a block
      parts[s].first_block = (first + 1) / 2;
    } else {
      parts[s].first_block = first / 2;
      parts[s].blocks = (past + 1) / 2 - first / 2;
      parts[s].begins_inside = first % 2 == 1;
      parts[s].ends_inside = past % 2 == 1;
    }
    first = past;
  }
  if (first % 2 == 1) throw InputError(concat("the last block has no MLP: there are ", first, " halves of blocks"));
  check_blocks(first / 2);
  parts.front().embeddings = true;
  parts.back().end = true;
  return parts;
}

bool cuts_blocks(const std::vector<StagePart>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const StagePart& part) { return part.begins_inside || part.ends_inside; });
}

std::vector<StagePart> with_whole_blocks(std::vector<StagePart> parts) {
  for (StagePart& part : parts) {
    if (part.begins_inside) {
      ++part.first_block;
      --part.blocks;
    }
    part.begins_inside = part.ends_inside = false;
  }
  return parts;
}

std::vector<StagePart> cut_evenly(std::int64_t blocks, int stages, double embeddings_as, double end_as) {
  check_stages(stages);
  check_blocks(blocks);
  check_cost(embeddings_as, "embeddings, in blocks,");
  check_cost(end_as, "the end, in blocks,");
  const auto count = static_cast<std::size_t>(stages);
  std::vector<std::int64_t> counts(count, 0);
  std::vector<double> begins(count, 0);
  begins.front() += embeddings_as;
  begins.back() += end_as;
  using Load = std::pair<double, std::size_t>;  // the lightest stage first; among equals, the earliest
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (std::size_t s = 0; s < count; ++s) loads.emplace(begins[s], s);
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::size_t s = loads.top().second;
    loads.pop();
    ++counts[s];
    loads.emplace(begins[s] + static_cast<double>(counts[s]), s);
  }
  return chain_of(counts);
}

std::vector<StagePart> cut_by_cost(const ChainCosts& costs, int stages) {
  check_stages(stages);
  const std::size_t n = costs.blocks.size(), count = static_cast<std::size_t>(stages);
  check_blocks(static_cast<std::int64_t>(n));
  check_cost(costs.embeddings, "embeddings");
  check_cost(costs.end, "the end");
  for (std::size_t b = 0; b < n; ++b) check_cost(costs.blocks[b], concat("block ", b));

  /// [stage][first]: the lowest possible cost of the most expensive stage from `stage` on, if these stages start at
  /// block `first`.
  std::vector<std::vector<double>> least(count + 1,
                                         std::vector<double>(n + 1, std::numeric_limits<double>::infinity()));
  least[count][n] = 0;
  // Both passes sum a stage in the same order, so that equal cuts compare as equal. The last stage ends with block n.
  const auto each_end = [&](std::size_t stage, std::size_t first, auto visit) {
    double cost = stage == 0 ? costs.embeddings : 0;
    for (std::size_t end = first;; ++end) {
      if (stage + 1 < count) visit(end, std::max(cost, least[stage + 1][end]));
      if (end == n) {
        if (stage + 1 == count) visit(n, std::max(cost + costs.end, least[count][n]));
        return;
      }
      cost += costs.blocks[end];
    }
  };
  for (std::size_t stage = count; stage-- > 0;)
    for (std::size_t first = 0; first <= (stage == 0 ? 0 : n); ++first)
      each_end(stage, first,
               [&](std::size_t, double cost) { least[stage][first] = std::min(least[stage][first], cost); });

  std::vector<std::int64_t> counts(count, 0);
  std::size_t first = 0;
  for (std::size_t stage = 0; stage < count; ++stage) {
    std::size_t chosen = first;
    each_end(stage, first, [&](std::size_t end, double cost) {
      if (cost <= least[0][0]) chosen = end;
    });
    counts[stage] = static_cast<std::int64_t>(chosen - first);
    first = chosen;
  }
  return chain_of(counts);
}

namespace {

/// The position of a layout's depths.
enum class DepthsStand { nowhere, with_end, before_end, elsewhere };

struct LayoutRead {
  std::vector<StagePart> parts;
  std::int64_t depths = 0;
  std::size_t first_depth = 0;  ///< position of the first m in the text
  DepthsStand stand = DepthsStand::nowhere;
};

LayoutRead read_layout(LayoutReader& reader, std::string_view text, std::int64_t blocks, int stages) {
  const auto items = reader.read();
  if (items.empty() || items.front().letter != 'E')
    reader.fail(items.empty() ? 0 : items.front().at, "a layout must begin with E, the embeddings, in its first stage");
  LayoutRead read;
  std::vector<std::int64_t> halves(1, 0);
  std::optional<std::size_t> half;  // an `a` is still waiting for its `f`
  std::size_t first = 0, last = 0;  // stages of the first and the last m
  bool behind_all_blocks = true;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto [letter, at] = items[i];
    if (letter == 'L' && i + 1 < items.size())
      reader.fail(items[i + 1].at, "nothing may follow L, the end of the model, in the last stage");
    if (half && (letter == 't' || letter == 'a' || letter == 'L'))
      reader.fail(*half, "a, a block's attention, must be followed by f, its MLP, here or in a later stage");
    if (letter == 'f' && !half) reader.fail(at, "f, a block's MLP, must follow a, its attention");
    if (letter == 'a') half = at;
    if (letter == 'f') half.reset();
    if (letter == 't') halves.back() += 2;
    if (letter == 'a' || letter == 'f') ++halves.back();
    if (letter == 't' || letter == 'a' || letter == 'f') behind_all_blocks = behind_all_blocks && read.depths == 0;
    if (letter == '|') halves.push_back(0);
    if (letter != 'm') continue;
    last = halves.size() - 1;
    if (read.depths++ > 0) continue;
    first = last;
    read.first_depth = at;
  }
  if (items.back().letter != 'L') reader.fail(text.size(), "a layout must end with L, the end of the model");
  const std::int64_t sum = std::accumulate(halves.begin(), halves.end(), std::int64_t{0}) / 2;
  if (blocks != any_blocks && sum != blocks)
    reader.fail(items.back().at, concat("there are ", counted(sum, "block"), " (t) up to here, but the model has ",
                                        blocks, "; ", sum < blocks ? "add " : "remove ", std::abs(blocks - sum)));
  const auto found = static_cast<std::int64_t>(halves.size());
  if (stages != 0 && found != stages)
    reader.fail(items.back().at, concat("there are ", counted(found, "stage"), " up to here, but the run has ", stages,
                                        "; ", found < stages ? "add " : "remove ", std::abs(stages - found), " |"));
  if (read.depths > 0) {
    const std::size_t end = halves.size() - 1;
    read.stand = !behind_all_blocks || first != last ? DepthsStand::elsewhere
                 : first == end                      ? DepthsStand::with_end
                 : first + 1 == end                  ? DepthsStand::before_end
                                                     : DepthsStand::elsewhere;
  }
  read.parts = parts_of_halves(halves);
  return read;
}

[[noreturn]] void refuse_depths(const LayoutReader& reader, const LayoutRead& read) {
  reader.fail(read.first_depth, concat("m, a depth of multi-token prediction, needs the last norm and the head, so it "
                                       "belongs to the last stage with L, after all blocks; the nearest layout is ",
                                       stage_layout(read.parts, read.depths)));
}

}  // namespace

std::vector<StagePart> parse_stage_layout(std::string_view text, std::int64_t blocks, int stages, std::int64_t depths) {
  LayoutReader reader(text);
  LayoutRead read = read_layout(reader, text, blocks, stages);
  if (read.depths > 0 && depths != any_depths && read.depths != depths)
    reader.fail(read.first_depth,
                concat("there ", read.depths == 1 ? "is " : "are ", counted(read.depths, "depth"),
                       " of multi-token prediction (m) from here on, but the model has ",
                       depths == 0 ? std::string("none (mtp_num_layers)") : concat("mtp_num_layers ", depths),
                       "; the nearest layout is ", stage_layout(read.parts, depths)));
  if (read.stand == DepthsStand::before_end || read.stand == DepthsStand::elsewhere) refuse_depths(reader, read);
  return std::move(read.parts);
}

MegatronLayout parse_megatron_layout(std::string_view text, std::int64_t blocks, int stages) {
  LayoutReader reader(text);
  LayoutRead read = read_layout(reader, text, blocks, stages);
  if (read.stand == DepthsStand::elsewhere) refuse_depths(reader, read);
  return {std::move(read.parts), read.depths, read.stand == DepthsStand::before_end};
}

std::string stage_layout(const std::vector<StagePart>& parts, std::int64_t depths) {
  std::string text;
  for (std::size_t s = 0; s < parts.size(); ++s) {
    if (s > 0) text += '|';
    if (parts[s].embeddings) text += 'E';
    const std::int64_t whole = parts[s].blocks - (parts[s].begins_inside ? 1 : 0) - (parts[s].ends_inside ? 1 : 0);
    if (parts[s].begins_inside) text += 'f';
    if (whole > 2)
      text += concat("t*", whole);
    else
      text.append(static_cast<std::size_t>(std::max<std::int64_t>(0, whole)), 't');
    if (parts[s].ends_inside) text += 'a';
    if (!parts[s].end) continue;
    if (depths > 2)
      text += concat("m*", depths);
    else
      text.append(static_cast<std::size_t>(depths), 'm');
    text += 'L';
  }
  return text;
}

std::vector<StagePart> cut_before(const std::vector<std::int64_t>& first_blocks, std::int64_t blocks) {
  check_blocks(blocks);
  check_stages(static_cast<std::int64_t>(first_blocks.size()) + 1);
  std::vector<std::int64_t> counts;
  std::int64_t first = 0;
  for (std::size_t s = 0; s < first_blocks.size(); ++s) {
    const std::int64_t next = first_blocks[s];
    if (next < first || next > blocks)
      throw InputError(concat("stage ", s + 1, " cannot begin with block ", next, ": ",
                              s == 0 ? std::string("it must be") : concat("stage ", s, " begins with ", first),
                              s == 0 ? " from 0 to " : ", so it must be from there to ", blocks, " (", blocks,
                              ": the end alone)"));
    counts.push_back(next - first);
    first = next;
  }
  counts.push_back(blocks - first);
  return chain_of(counts);
}

}  // namespace tessera::layout
