// Real chat templates render as in Python's transformers, and fail where it fails: tests/parity/chat_templates.py.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/hash.h>
#include <tessera/text/chat_template.h>
#include <tests/paths.h>

namespace tessera::text {
namespace {

std::string hash_of(const std::string& text) {
  char digits[20];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(fnv1a(text)));
  return digits;
}

ChatOptions options_of(const Value& conversation, const Value& one, const Value& file) {
  ChatOptions options;
  options.now = file.at("now").as_int();
  options.add_generation_prompt = one.at("prompt").as_bool();
  if (const Value* tools = conversation.find("tools")) options.tools = *tools;
  if (const Value* documents = conversation.find("documents")) options.documents = *documents;
  if (const Value* asked = conversation.find("continue_final_message"))
    options.continue_final_message = asked->as_bool();
  if (const Value* variables = conversation.find("variables"))
    for (const auto& [name, value] : variables->members()) options.variables.emplace_back(name, value);
  return options;
}

void compare_one(const ChatTemplate& chat, const Value& conversation, const Value& one, const ChatOptions& options) {
  const Value *text = one.find("text"), *hash = one.find("hash"), *refused = one.find("refused");
  jinja::Rendered rendered;
  try {
    rendered = chat.render(conversation.at("messages"), options);
  } catch (const InputError& error) {
    if (refused == nullptr) ADD_FAILURE() << error.what();
    return;
  }
  if (refused != nullptr) {
    ADD_FAILURE() << "rendered, but transformers refuses it: " << refused->as_string();
    return;
  }
  if (text != nullptr) {
    EXPECT_EQ(rendered.text, text->as_string());
  } else {
    EXPECT_EQ(hash_of(rendered.text), hash->as_string()) << rendered.text;
  }
  const Value* spans = one.find("generated");
  if (spans == nullptr) return;
  std::vector<jinja::Span> wanted;
  for (const Value& span : spans->items())
    wanted.push_back(
        {static_cast<std::size_t>(span.items()[0].as_int()), static_cast<std::size_t>(span.items()[1].as_int())});
  EXPECT_EQ(rendered.generated, wanted);
}

void compare(const std::string& path) {
  const Value file = read_json(path);
  ChatTemplate::Tokens tokens;
  for (const auto& [name, token] : file.at("special").members()) tokens.named.emplace_back(name, token.as_string());
  for (const Value& one : file.at("templates").items()) {
    const std::string source = (std::filesystem::path(path).parent_path() / one.at("path").as_string()).string();
    const ChatTemplate chat({read_file(source), source}, std::nullopt, tokens);
    for (const Value& wanted : one.at("cases").items()) {
      const Value& conversation = file.at("conversations").at(wanted.at("conversation").as_string());
      SCOPED_TRACE(concat(source, ", conversation \"", wanted.at("conversation").as_string(), "\"",
                          wanted.at("prompt").as_bool() ? ", with generation prompt" : ""));
      compare_one(chat, conversation, wanted, options_of(conversation, wanted, file));
    }
  }
}

TEST(ChatTemplateParity, RealTemplates) {
  ::setenv("TZ", "UTC", 1);  // strftime_now() depends on it
  ::tzset();
  compare(tessera::testing::source_path("tests/fixtures/chat_templates/expected.json"));
  if (const char* more = std::getenv("TESSERA_CHAT_CASES")) compare(more);
}

}  // namespace
}  // namespace tessera::text
