#include <tessera/config/core/origin.h>

#include <tessera/base/text.h>

namespace tessera::config {

Origin Origin::at(const SourcePos& where) {
  std::string name = where.file ? *where.file : std::string("(program)");
  if (where.kind == SourcePos::Kind::environment) return environment(std::move(name));
  if (where.kind == SourcePos::Kind::flag) return flag(std::move(name));
  return {Kind::file, "", std::move(name), where.line, where.column};
}

std::string Origin::str() const {
  switch (kind) {
    case Kind::by_default:
      return "default";
    case Kind::environment:
      return concat("environment ", name);
    case Kind::file:
      return line == 0 ? file : concat(file, ":", line);
    case Kind::derived:
      return concat("derived (", name, ")");
    case Kind::flag:
    case Kind::program:
      break;
  }
  return name;
}

bool printed_as_given(std::string_view origin) { return origin != Origin().str() && !origin.starts_with("derived ("); }

}  // namespace tessera::config
