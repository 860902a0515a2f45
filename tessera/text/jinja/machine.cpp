#include <tessera/text/jinja/machine.h>

#include <tessera/base/text.h>

namespace tessera::text::jinja {

void Machine::fail_steps() const {
  fail("the template takes more than ", limits_.steps, " steps, which is refused: it loops over too much");
}

void Machine::fail_bytes() const {
  fail("the template makes more than ", format_bytes(limits_.bytes), " of text and lists, which is refused");
}

void Machine::fail_depth() const {
  fail("expressions and macros stand more than ", limits_.depth,
       " deep within each other, which is refused: does a macro call itself without end?");
}

}  // namespace tessera::text::jinja
