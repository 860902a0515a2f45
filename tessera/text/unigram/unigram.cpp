#include <tessera/base/error.h>
#include <tessera/text/unicode/utf8.h>
#include <tessera/text/unigram/unigram.h>

#include <algorithm>
#include <limits>

namespace tessera::text {
namespace {

constexpr double unknown_penalty = 10;  // kUnkPenalty of SentencePiece

/// The best segmentation of a prefix of the word.
struct Node {
  double score = 0;
  std::size_t begin = 0;             ///< start of its last token
  std::int32_t id = Trie::none - 1;  ///< its last token; initially not reached
};
constexpr std::int32_t not_reached = Trie::none - 1;

}  // namespace

Unigram::Unigram(const UnigramParts& parts) : unknown_(parts.unknown), byte_fallback_(parts.byte_fallback) {
  double least = std::numeric_limits<double>::infinity();
  scores_.reserve(parts.pieces.size());
  for (std::size_t id = 0; id < parts.pieces.size(); ++id) {
    trie_.add(parts.pieces[id].first, static_cast<std::int32_t>(id));
    scores_.push_back(parts.pieces[id].second);
    least = std::min(least, scores_.back());
  }
  unknown_score_ = least - unknown_penalty;
  constexpr std::string_view digits = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte)
    bytes_[byte] = trie_.find(std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + '>');
}

void Unigram::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  thread_local std::vector<Node> best;  // best[i]: for the first i bytes
  best.assign(word.size() + 1, Node());
  const auto offer = [&](std::size_t end, double score, std::size_t begin, std::int32_t id) {
    if (best[end].id == not_reached || score > best[end].score) best[end] = {score, begin, id};
  };
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t size = code_point_at(word, at).size;
    const double until_here = best[at].score;
    bool has_character = false;
    trie_.for_each_prefix(word.substr(at), [&](std::size_t bytes, std::int32_t id) {
      offer(at + bytes, scores_[static_cast<std::size_t>(id)] + until_here, at, id);
      has_character |= bytes == size;
    });
    if (!has_character) {
      if (!unknown_)
        throw InputError(concat("the character \"", word.substr(at, size),
                                "\" is not in the tokenizer's vocabulary, which has no unknown token either (a Unigram "
                                "model needs its unk_id)"));
      offer(at + size, unknown_score_ + until_here, at, *unknown_);
    }
    at += size;
  }
  // Collects the tokens from the end; adjacent unknown tokens are merged.
  struct Piece {
    std::size_t begin, end;
    std::int32_t id;
  };
  thread_local std::vector<Piece> path;
  path.clear();
  for (std::size_t end = word.size(); end > 0; end = best[end].begin) {
    const Node& node = best[end];
    if (unknown_ && node.id == *unknown_ && !path.empty() && path.back().id == *unknown_)
      path.back().begin = node.begin;
    else
      path.push_back({node.begin, end, node.id});
  }
  for (auto piece = path.rbegin(); piece != path.rend(); ++piece) {
    if (unknown_ && piece->id == *unknown_)
      push_unknown(word.substr(piece->begin, piece->end - piece->begin), ids);
    else
      ids.push_back(piece->id);
  }
}

/// Merged unknown characters may spell a token that the search found too expensive; in this case that token is used.
void Unigram::push_unknown(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (const std::int32_t id = trie_.find(text); id != Trie::none) return ids.push_back(id);
  const auto has_token = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)] != Trie::none; };
  if (byte_fallback_ && std::all_of(text.begin(), text.end(), has_token)) {
    for (const char byte : text) ids.push_back(bytes_[static_cast<unsigned char>(byte)]);
    return;
  }
  ids.push_back(*unknown_);
}

}  // namespace tessera::text
