// Random templates render as in Python's jinja2, and fail where it fails: tests/parity/jinja_expressions.py.

#include <gtest/gtest.h>

#include <cstdlib>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/text/jinja/template.h>
#include <tests/paths.h>

namespace tessera::text::jinja {
namespace {

void compare(const std::string& path) {
  const tessera::Value file = read_json(path);
  Variables variables;
  for (const auto& [name, value] : file.at("variables").members()) variables.emplace_back(name, from_json(value));
  for (const tessera::Value& one : file.at("cases").items()) {
    const std::string& source = one.at("source").as_string();
    const tessera::Value* wanted = one.find("text");
    try {
      const std::string got = Template(source, "t").render(variables).text;
      if (wanted == nullptr)
        ADD_FAILURE() << source << "\n  gives " << got << "\n  but Python reports " << one.at("error").as_string();
      else
        EXPECT_EQ(got, wanted->as_string()) << source;
    } catch (const InputError& error) {
      if (wanted != nullptr)
        ADD_FAILURE() << source << "\n  " << error.what() << "\n  instead of " << wanted->as_string();
    }
  }
}

TEST(JinjaParity, RandomTemplates) {
  compare(tessera::testing::source_path("tests/fixtures/chat_templates/expressions.json"));
  if (const char* more = std::getenv("TESSERA_JINJA_CASES")) compare(more);
}

}  // namespace
}  // namespace tessera::text::jinja
