#pragma once
/// \file
/// The work of tokenizing, divided into items that any process may do: consecutive pieces of the sources with about
/// equal amounts of text. An item produces one or more shards and a summary, ITEM.done, whose existence marks the item
/// as done.

#include <tessera/corpus/cache/content_hash.h>
#include <tessera/corpus/cache/request.h>
#include <tessera/corpus/cache/tally.h>
#include <tessera/format/manifest/manifest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::corpus {

struct ItemPiece {
  std::size_t source = 0;  ///< index in the request
  Piece piece;
  bool first = false;                          ///< whether it is the first piece of its source
  std::uint64_t hash_begin = 0, hash_end = 0;  ///< chunks of the file to hash with this item
};

struct Item {
  std::vector<ItemPiece> pieces;
  std::uint64_t bytes = 0;  ///< approximate bytes of the sources
};

/// A pure function of the sources, so it is the same in every process.
std::vector<Item> plan_items(const std::vector<SourceFile>& sources);

struct ChunkHash {
  std::size_t source = 0;
  std::uint64_t chunk = 0;
  ContentHash hash;
};

struct ItemSummary {
  Tally tally;
  std::vector<format::ManifestFile> shards;
  std::vector<ChunkHash> hashes;
  std::vector<std::string> complaints;  ///< lines about unusable records; at most one more than is reported
};

inline constexpr std::size_t complaints_told = 20;

Value to_json(const ItemSummary& summary);
ItemSummary summary_from_json(const Value& value);

/// Creates the shards of item `number` in a folder, replacing files of earlier attempts. Returns the summary without
/// writing it. Throws Error (disk full) and InputError (a file that cannot be read at all).
ItemSummary encode_item(const TokenRequest& request, const Item& item, std::size_t number, const std::string& folder);

/// The name of an item's summary.
std::string done_name(std::size_t number);

}  // namespace tessera::corpus
