#include <tessera/text/jinja/machine.h>

#include <tessera/base/text.h>

namespace tessera::text::jinja {

void Machine::fail_steps() const {
  fail("the template exceeds the limit of ", limits_.steps, " steps: its loops are too long");
}

void Machine::fail_bytes() const {
  fail("the template exceeds the limit of ", format_bytes(limits_.bytes), " of text and lists");
}

void Machine::fail_depth() const {
  fail("expressions and macros are nested deeper than the limit of ", limits_.depth,
       ": does a macro call itself endlessly?");
}

}  // namespace tessera::text::jinja
