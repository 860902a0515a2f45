// The language of chat templates: results as defined by Jinja's manual and Python, and errors with their location.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/text/jinja/template.h>
#include <tests/error_of.h>

namespace tessera::text::jinja {
namespace {

using testing::error_of;

Variables variables_of(const std::string& json) {
  Variables variables;
  const tessera::Value object = parse_json(json, "variables");
  for (const auto& [name, value] : object.members()) variables.emplace_back(name, from_json(value));
  return variables;
}

std::string render(const std::string& source, const std::string& json = "{}") {
  return Template(source, "t").render(variables_of(json)).text;
}

std::string refusal(const std::string& source, const Limits& limits = {}) {
  return error_of([&] { Template(source, "t").render({}, limits); });
}

TEST(Jinja, TrimsBlocksAndLines) {
  EXPECT_EQ(render("a\n  {% if true %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
  EXPECT_EQ(render("a\n  {%+ if true %}\nb{% endif %}"), "a\n  b");
  EXPECT_EQ(render("a \n {%- if true -%} \n b {%- endif %}"), "ab");
  EXPECT_EQ(render("{% if true +%}\nb{% endif %}"), "\nb");
  EXPECT_EQ(render("a {{- 1 -}} \n b"), "a1b");
  EXPECT_EQ(render("a\n  {# note #}\nb {#- note -#} c"), "a\nbc");
  EXPECT_EQ(render("x\r\n{{ 1 }}\r\n\r\n"), "x\n1\n");
  EXPECT_EQ(render("{% raw %}{{ x }}{% if %}{% endraw %}"), "{{ x }}{% if %}");
}

TEST(Jinja, ValuesPrintAsPythons) {
  EXPECT_EQ(render("{{ [1, 'a', none, true, 1.0, 1e16, 1e-5, {'k': ('x',)}, \"it's\", '\\n\\u00e9\\x00'] }}"),
            "[1, 'a', None, True, 1.0, 1e+16, 1e-05, {'k': ('x',)}, \"it's\", '\\né\\x00']");
  EXPECT_EQ(render("{{ none }}{{ missing }}{{ true }}"), "NoneTrue");
  EXPECT_EQ(render("{{ x|tojson }} {{ x|tojson(indent=1) }} {{ 'é<'|tojson(ensure_ascii=true) }}",
                   "{\"x\": {\"b\": [1, 2.5, null, true, \"é\\\"\\n\"], \"a\": {}}}"),
            "{\"b\": [1, 2.5, null, true, \"é\\\"\\n\"], \"a\": {}} {\n \"b\": [\n  1,\n  2.5,\n  null,\n  true,\n  "
            "\"é\\\"\\n\"\n ],\n \"a\": {}\n} \"\\u00e9<\"");
}

TEST(Jinja, OperatorsAreOfPythons) {
  EXPECT_EQ(render("{{ 7 // -2 }} {{ 7 % -2 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }}"),
            "-4 -1 3.5 1024 0.5 -4.0 0.5");
  EXPECT_EQ(render("{{ 1 ~ 'a' ~ none }} {{ [1] + [2] }} {{ 'ab' * 2 }} {{ 1 < 2 <= 2 }} {{ 'b' in 'abc' }}"),
            "1aNone [1, 2] abab True True");
  EXPECT_EQ(render("{{ 'aé☃x'[1:3] }} {{ 'abc'[::-1] }} {{ [1,2,3][-1] }} {{ (0 or 'x') and 'y' }} {{ 1 if false }}"),
            "é☃ cba 3 y ");
  EXPECT_EQ(render("{{ '%s-%03d-%.2f' % ('a', 7, 1.5) }} {{ '{}:{:>4}'.format('a', 7) }} "
                   "{{ '{1:<3}|{0:.2f}|{n:03d}'.format(1.5, 'b', n=-7) }} {{ '%(k)-3s|%5.1f' % {'k': 'x'} if 0 }}"),
            "a-007-1.50 a:   7 b  |1.50|-07 ");
  EXPECT_EQ(render("{{ {'items': 1}.items is callable }}{{ {'items': 1}['items'] }}"), "True1");
}

TEST(Jinja, ScopesAreJinjas) {
  EXPECT_EQ(render("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }} {% endfor %}{{ x }}"), "15 15 1");
  EXPECT_EQ(render("{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}"),
            "3");
  EXPECT_EQ(render("{% if true %}{% set x = 2 %}{% endif %}{{ x }}{% set y %}a{{ x }}{% endset %}{{ y|upper }}"),
            "2A2");
  EXPECT_EQ(
      render("{% macro m(a, b=a) %}{{ a }}{{ b }}{{ late }}{{ caller() if caller }}{% endmacro %}{% set late = 3 %}"
             "{{ m(1) }} {{ m(1, b=2) }} {% call m(4) %}!{% endcall %}"),
      "113 123 443!");
  EXPECT_EQ(render("{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}{% filter upper %}x{% endfilter %}"), "3X");
}

TEST(Jinja, Loops) {
  EXPECT_EQ(render("{% for k, v in {'a': 1, 'b': 2}.items() if v > 0 %}{{ loop.index }}{{ k }}{{ v }}"
                   "{{ ',' if not loop.last }}{% else %}none{% endfor %}"),
            "1a1,2b2");
  EXPECT_EQ(
      render("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i > 3 %}{% break %}{% endif %}"
             "{{ loop.previtem }}{{ i }}{{ loop.nextitem }} {% endfor %}{% for i in [] %}{% else %}none{% endfor %}"),
      "01 123 234 none");
}

TEST(Jinja, FiltersAndTests) {
  const std::string people =
      "{\"p\": [{\"n\": \"Bo\", \"a\": 3}, {\"n\": \"al\", \"a\": 1}, {\"n\": \"Cy\"}], \"d\": {\"b\": 1, \"A\": 2}}";
  EXPECT_EQ(
      render("{{ p|map(attribute='n')|join(',') }} {{ p|selectattr('a', 'defined')|list|length }} "
             "{{ p|sort(attribute='n')|map(attribute='n')|list }} {{ d|dictsort }} {{ p|sum(attribute='b') if 0 }}",
             people),
      "Bo,al,Cy 2 ['al', 'Bo', 'Cy'] [('A', 2), ('b', 1)] ");
  EXPECT_EQ(render("{{ '  x y '|trim|title }} {{ 'a\\nb'|indent(2) }} {{ '12x'|int(7) }} {{ x|default(1) }}"
                   " {{ [3, 1]|sort|first }} {{ 'ß'|upper }}"),
            "X Y a\n  b 7 1 1 SS");
  EXPECT_EQ(render("{{ 1 is number }}{{ x is not defined }}{{ 'a' is string }}{{ [] is sequence }}{{ {} is mapping }}"
                   "{{ 4 is divisibleby 2 }}{{ 'a' is in ['a'] }}"),
            "TrueTrueTrueTrueTrueTrueTrue");
}

TEST(Jinja, MarksGeneration) {
  const Rendered rendered =
      Template("a{% for m in [1, 2] %}é{% generation %}x{{ m }}{% endgeneration %};{% endfor %}", "t").render({});
  EXPECT_EQ(rendered.text, "aéx1;éx2;");
  EXPECT_EQ(rendered.generated, (std::vector<Span>{{3, 5}, {8, 10}}));
  EXPECT_TRUE(Template("{% set x %}{% generation %}y{% endgeneration %}{% endset %}", "t").render({}).generation_lost);
}

TEST(Jinja, TheClockIsGiven) {
  EXPECT_EQ(Template("{{ strftime_now('%Y') }}", "t").render({}, {}, 1700000000).text, "2023");
}

TEST(Jinja, ErrorsNameThePlace) {
  EXPECT_EQ(refusal("a\n {{ x.y }}"), "t:2:6: 'x' is undefined");
  EXPECT_EQ(refusal("{{ raise_exception('Roles must ' ~ 'alternate') }}"),
            "t:1:19: the template refuses: Roles must alternate");
  EXPECT_EQ(refusal("{{ 'a' + 1 }}"), "t:1:8: a str and a int are added: both must be str (or use ~)");
  EXPECT_EQ(refusal("{{ 1|upperr }}"), "t:1:6: unknown filter 'upperr' (near: 'upper')");
  EXPECT_EQ(refusal("{{ [].append(1) }}"),
            "t:1:13: the method 'append' of a list would change it, which templates cannot (use + or a namespace)");
  EXPECT_EQ(refusal("x\n{% if a %}"), "t:2:11: the block that begins here is not closed: 'endif' is missing");
  EXPECT_EQ(refusal("{% include 'x' %}"), "t:1:1: the tag 'include' is not part of the language of chat templates");
  EXPECT_EQ(refusal("{{ (1 }}"), "t:1:7: unexpected '}', expected ')'");
  EXPECT_EQ(refusal("{{ 'a }}"), "t:1:4: the string that begins here is not closed");
  EXPECT_EQ(refusal("{% break %}"), "t:1:1: 'break' is outside a loop");
  EXPECT_EQ(refusal("\xff"), "t: the template is not UTF-8");
}

// Features of Jinja and Python that no chat template uses.
TEST(Jinja, WhatIsLeftOutIsRefusedByName) {
  EXPECT_EQ(refusal("a\n{{ 'x'|center(9) }}"), "t:2:8: unknown filter 'center'");
  EXPECT_EQ(refusal("{{ 2.5|round }}"), "t:1:8: unknown filter 'round'");
  EXPECT_EQ(refusal("{{ [1, 2]|batch(2) }}"), "t:1:11: unknown filter 'batch'");
  EXPECT_EQ(refusal("{{ 'x'.zfill(3) }}"), "t:1:13: the str has no attribute 'zfill'");
  EXPECT_EQ(refusal("{{ 'a b'.partition(' ') }}"), "t:1:19: the str has no attribute 'partition'");
  EXPECT_EQ(refusal("{{ 'x'.uper() }}"), "t:1:12: the str has no attribute 'uper' (near: 'upper')");
  EXPECT_EQ(refusal("{{ {}.item() }}"), "t:1:11: the dict has no attribute 'item' (near: 'items')");
  EXPECT_EQ(refusal("{{ '%x' % 255 }}"),
            "t:1:9: '%x' in a format is not supported; supported are %s, %r, %d, %i and %f");
  EXPECT_EQ(
      refusal("{{ '{:,}'.format(1000) }}"),
      "t:1:17: the format ',' of a int is not supported; supported is [<>][0][width][.precision] before s, d or f");
  EXPECT_EQ(refusal("{{ '{!r}'.format(1) }}"),
            "t:1:17: '{!r}': nested fields and conversions in a format are not supported");
}

TEST(Jinja, EverythingIsBounded) {
  const Limits small{.steps = 10'000, .bytes = 100'000, .depth = 100};
  const auto contains = [&](const std::string& source, const std::string& what) {
    EXPECT_NE(refusal(source, small).find(what), std::string::npos) << source << ": " << refusal(source, small);
  };
  contains("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "steps");
  contains("{% for i in range(300) %}{% for j in range(300) %}{% endfor %}{% endfor %}", "exceeds the limit");
  contains("{{ 'x' * 1000000000000 }}", "of text and lists");
  contains("{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
           "of text");
  contains("{{ 'aaaa'|replace('', 'b' * 50000) }}", "of text and lists");
  contains("{{ ('%' ~ '99999999999s') % 'x' }}", "is refused");
  contains("{{ '{:99999}'.format('x') }}", "of text and lists");
  contains("{{ [1]|tojson(indent=100000000) }}", "of text and lists");
  contains("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested deeper than the limit");
  contains("{% set ns = namespace(l=[]) %}{% for i in range(200) %}{% set ns.l = [ns.l] %}{% endfor %}",
           "nested deeper than the limit");
  contains("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "nested deeper than the limit");
  contains("{% set ns = namespace(l=[1]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
           "steps");
  const std::string brackets = std::string(100'000, '(') + "1" + std::string(100'000, ')');
  std::string sums = "{{ 1";
  for (int i = 0; i < 100'000; ++i) sums += "+1";
  EXPECT_NE(refusal("{{ " + brackets + " }}").find("nested too deep"), std::string::npos);
  EXPECT_NE(refusal(sums + " }}").find("nested expressions"), std::string::npos);
}

}  // namespace
}  // namespace tessera::text::jinja
