#pragma once
/// \file
/// Parses tokens into a tree: the grammar of Jinja 3.1 with transformers' extensions for chat templates (break,
/// continue, generation). Tags that read other templates (extends, include, import, block) and recursive loops are
/// refused by name.

#include <tessera/text/jinja/lexer.h>
#include <tessera/text/jinja/tree.h>

namespace tessera::text::jinja {

struct Tree {
  Block block;
  bool has_generation = false;  ///< it contains `{% generation %}`
};

/// Throws InputError naming the place of a syntax error or of excessive nesting.
Tree parse(const Source& source);

}  // namespace tessera::text::jinja
