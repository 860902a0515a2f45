#pragma once
/// \file
/// From tokens to a tree: the grammar of Jinja 3.1 with the extensions that transformers gives chat templates (break,
/// continue, generation). What reads other templates (extends, include, import, block) and recursive loops are refused
/// by name.

#include <tessera/text/jinja/lexer.h>
#include <tessera/text/jinja/tree.h>

namespace tessera::text::jinja {

struct Tree {
  Block block;
  bool has_generation = false;  ///< a `{% generation %}` stands somewhere
};

/// Throws InputError naming the place: not the grammar, or nested too deep.
Tree parse(const Source& source);

}  // namespace tessera::text::jinja
