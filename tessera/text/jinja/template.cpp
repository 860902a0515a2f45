#include <tessera/text/jinja/template.h>

#include <tessera/text/jinja/evaluator.h>
#include <tessera/text/jinja/parser.h>

namespace tessera::text::jinja {

struct Template::Parts {
  Source source;
  Tree tree;
};

Template::Template(std::string_view source, std::string name) {
  Source read(source, std::move(name));
  Tree tree = parse(read);
  parts_ = std::make_unique<const Parts>(Parts{std::move(read), std::move(tree)});
}

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

Rendered Template::render(const Variables& variables, const Limits& limits, std::time_t now) const {
  return Evaluator(parts_->source, variables, limits, now).render(parts_->tree.block);
}

bool Template::has_generation() const { return parts_->tree.has_generation; }

const std::string& Template::source() const { return parts_->source.text(); }

}  // namespace tessera::text::jinja
