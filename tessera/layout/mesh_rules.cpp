#include <tessera/layout/mesh_rules.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/layout/sequence.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>

namespace tessera::layout {
namespace {

using Change = MeshProblem::Change;
using Numbers = std::vector<std::int64_t>;

constexpr std::size_t most_choices = 6;

bool multiple_or_divisor(std::int64_t a, std::int64_t b) { return a % b == 0 || b % a == 0; }

std::string text_of(const Numbers& numbers) {
  std::vector<std::string> parts;
  for (const std::int64_t number : numbers) parts.push_back(std::to_string(number));
  return join(parts, ", ");
}

class Rules {
 public:
  Rules(const Mesh& mesh, const ModelSizes& model, const MeshUse& use)
      : mesh_(mesh), model_(model), use_(use), key_heads_(model.key_heads > 0 ? model.key_heads : model.heads) {}

  std::vector<MeshProblem> check() {
    const int tp = mesh_.size(Axis::tp), cp = mesh_.size(Axis::cp);
    tensor(tp, &problems_);
    context(tp, cp, &problems_);
    sequence(tp, cp);
    rows();
    return std::move(problems_);
  }

 private:
  using Out = std::vector<MeshProblem>*;  ///< nullptr: only the result is needed, not the text

  /// Whether tp divides every dimension that it cuts.
  bool tensor(std::int64_t tp, Out out) {
    bool fits = true;
    const auto refuse = [&](const auto&... parts) {
      fits = false;
      if (out == nullptr) return;
      const Numbers choices = fitting(tp, mesh_.size(Axis::cp), [this](std::int64_t t) { return tensor(t, nullptr); });
      out->push_back({concat("tp=", tp, ": ", parts..., "; ",
                             choices.empty() ? std::string("with these ranks only tp 1 fits: remove sequence_parallel")
                                             : concat("tp may be ", text_of(choices))),
                      Change::tp, choices});
    };
    if (tp == 1 && use_.sequence_parallel) refuse("sequence_parallel needs several ranks of tp");
    if (tp == 1) return fits;
    if (model_.heads % tp != 0)
      refuse("all ranks need the same number of attention heads, but the ", model_.heads, " of ", model_.name,
             " are not divisible by ", tp);
    else if (model_.heads > 0 && !multiple_or_divisor(key_heads_, tp))
      refuse(
          "the number of key and value heads must be a multiple of tp, or a divisor (then several ranks share a "
          "head); ",
          model_.name, " has ", key_heads_);
    if (model_.intermediate % tp != 0)
      refuse("the MLP's intermediate size ", model_.intermediate, " of ", model_.name, " is not divisible by ", tp);
    if (model_.vocabulary > 0 && model_.vocabulary < tp)
      refuse("each rank needs rows of the embedding, but the vocabulary of ", model_.name, " has ", model_.vocabulary);
    return fits;
  }

  /// Whether the method works with this number of cp ranks.
  bool context(std::int64_t tp, std::int64_t cp, Out out) {
    if (cp == 1) return true;
    const auto choices = [&] {
      return fitting(cp, mesh_.size(Axis::tp), [&](std::int64_t c) { return context(tp, c, nullptr); });
    };
    int head_ranks = 1;
    try {
      head_ranks = head_ranks_of(use_.method, static_cast<int>(cp), use_.head_ranks);
    } catch (const InputError& error) {
      if (out != nullptr) {
        const Numbers fit = choices();
        out->push_back({concat("cp=", cp, ": ", error.what(), "; cp may be ", text_of(fit)), Change::cp, fit});
      }
      return false;
    }
    if (head_ranks == 1 || model_.heads == 0 || model_.heads % tp != 0) return true;
    const std::int64_t heads = model_.heads / tp, keys = std::max<std::int64_t>(1, key_heads_ / tp);
    const bool divides = heads % head_ranks == 0;
    if (divides && multiple_or_divisor(keys, head_ranks)) return true;
    if (out != nullptr) {
      const Numbers fit = choices();
      out->push_back({concat("cp=", cp, ": ", word_of(use_.method), " divides heads over ", head_ranks, " ranks, but ",
                             model_.name, " has ", divides ? keys : heads,
                             divides      ? " key and value heads"
                             : heads == 1 ? " head"
                                          : " heads",
                             tp > 1 ? concat(" on each of the ", tp, " ranks of tp") : "",
                             divides ? ", which must be a multiple or a divisor" : ", which must be a multiple",
                             "; cp may be ", text_of(fit), ", or the method p2p or all_gather"),
                      Change::cp, fit});
    }
    return false;
  }

  /// Tokens per rank must form whole chunks of the ring, and whole parts for sequence parallelism.
  void sequence(std::int64_t tp, std::int64_t cp) {
    const std::int64_t parts = use_.sequence_parallel ? tp : 1;
    if (use_.sequence == 0 || cp * parts == 1) return;
    int head_ranks = 1;
    try {
      head_ranks = head_ranks_of(use_.method, static_cast<int>(cp), use_.head_ranks);
    } catch (const InputError&) {
      return;  // reported by context()
    }
    const std::int64_t rings = cp / head_ranks, chunk = padded_length(1, static_cast<int>(cp), head_ranks);
    const std::int64_t unit = std::lcm(chunk, cp * parts);
    if (use_.sequence % unit == 0) return;
    std::vector<std::string> rules;
    if (use_.sequence % chunk != 0)
      rules.push_back(rings > 1 ? concat("by 2 x ", rings, head_ranks > 1 ? concat(" and by cp=", cp) : "",
                                         ", two chunks for each rank of the ring (cp=", cp, ")")
                                : concat("by cp=", cp));
    if (use_.sequence % (cp * parts) != 0 && parts > 1)
      rules.push_back(concat("by ", cp > 1 ? "cp x tp = " : "tp = ", cp * parts, " (sequence_parallel)"));
    Numbers choices;
    if (const std::int64_t below = use_.sequence / unit * unit; below > 0) choices.push_back(below);
    choices.push_back(use_.sequence / unit * unit + unit);
    problems_.push_back({concat("the sequence of ", use_.sequence, " tokens must be divisible ", join(rules, " and "),
                                "; make it ", text_of(choices)),
                         Change::sequence, choices});
  }

  /// Every data-parallel rank needs the same number of rows.
  void rows() {
    const std::int64_t dp = std::int64_t{mesh_.size(Axis::dp_replicate)} * mesh_.size(Axis::dp_shard);
    if (use_.rows == 0 || use_.rows % dp == 0) return;
    Numbers choices;
    if (const std::int64_t below = use_.rows / dp * dp; below > 0) choices.push_back(below);
    choices.push_back(use_.rows / dp * dp + dp);
    problems_.push_back({concat("the ", use_.rows, " rows of a step are not divisible by the ", dp,
                                " data-parallel ranks (dp_replicate=", mesh_.size(Axis::dp_replicate),
                                " x dp_shard=", mesh_.size(Axis::dp_shard), "); make them ", text_of(choices)),
                         Change::rows, choices});
  }

  /// Returns the sizes of an axis nearest to `size` for which `fits` is true, ascending, with `other` ranks along the
  /// other axis in the same world.
  Numbers fitting(std::int64_t size, std::int64_t other, const std::function<bool(std::int64_t)>& fits) const {
    const std::int64_t ranks = mesh_.world_size() / mesh_.size(Axis::pp) / other;
    Numbers found;
    for (std::int64_t d = 1; d <= ranks; ++d)
      if (ranks % d == 0 && fits(d)) found.push_back(d);
    std::stable_sort(found.begin(), found.end(),
                     [&](std::int64_t a, std::int64_t b) { return std::abs(a - size) < std::abs(b - size); });
    if (found.size() > most_choices) found.resize(most_choices);
    std::sort(found.begin(), found.end());
    return found;
  }

  const Mesh& mesh_;
  const ModelSizes& model_;
  const MeshUse& use_;
  const std::int64_t key_heads_;
  std::vector<MeshProblem> problems_;
};

}  // namespace

std::vector<MeshProblem> mesh_problems(const Mesh& mesh, const ModelSizes& model, const MeshUse& use) {
  return Rules(mesh, model, use).check();
}

void check_mesh(const Mesh& mesh, const ModelSizes& model, const MeshUse& use) {
  std::vector<std::string> lines;
  for (const MeshProblem& problem : mesh_problems(mesh, model, use)) lines.push_back(problem.text);
  if (!lines.empty()) throw InputError(concat("mesh ", describe(mesh), ": ", join(lines, "\n")));
}

}  // namespace tessera::layout
