#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/storage/xml.h>

namespace tessera::storage {
namespace {

TEST(Xml, ElementsAndText) {
  const XmlElement root = parse_xml(
      "\xEF\xBB\xBF<?xml version=\"1.0\" encoding='UTF-8'?>\n<!-- a -->\n<A xmlns='http://x' b = \"<>\"> "
      "<B>one &amp; &lt;two&gt; &#65;&#x20AC;</B><B/><!-- c --><C.d-e>\n x </C.d-e ></A>\n");
  EXPECT_EQ(root.name, "A");
  ASSERT_EQ(root.children.size(), 3u);
  EXPECT_EQ(root.text_of("B"), "one & <two> A\xE2\x82\xAC");
  EXPECT_EQ(root.text_of("C.d-e"), "x");
  EXPECT_EQ(root.find("none"), nullptr);
  EXPECT_EQ(root.text_of("none"), "");
  EXPECT_EQ(parse_xml("<a>x&unknown;<!-- --><![CDATA[<y>]]></a>").text, "x&unknown;<y>");
  EXPECT_EQ(parse_xml(concat("<a>", xml_escaped("<&\">"), "</a>")).text, "<&\">");
}

TEST(Xml, WhatIsNoneIsRefused) {
  for (const char* text : {"", "text", "<a>", "<a></b>", "<a/><b/>", "<a b></a>", "<a b=c></a>", "<a b='c></a>",
                           "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "< a/>", "<a/>x", "<a><!-- </a>"})
    EXPECT_THROW(parse_xml(text), Error) << text;
}

TEST(Xml, IsBounded) {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<a>";
  EXPECT_THROW(parse_xml(deep), Error);
  std::string many = "<a>";
  for (int i = 0; i < 200'001; ++i) many += "<b/>";
  EXPECT_THROW(parse_xml(many + "</a>"), Error);
}

}  // namespace
}  // namespace tessera::storage
