#pragma once
/// \file
/// The XML in which S3 answers, read by pugixml: elements and text. Attributes (name spaces) are passed over.

#include <string>
#include <string_view>
#include <vector>

namespace tessera::storage {

struct XmlElement {
  std::string name;
  std::string text;  ///< the element's own, entities resolved, without blanks around it
  std::vector<XmlElement> children;

  const XmlElement* find(std::string_view child) const;    ///< the first one, or nullptr
  std::string_view text_of(std::string_view child) const;  ///< "" when there is none
};

/// Parses a document. Throws Error for what is no XML, and for what S3 never sends: a document type, elements deeper
/// than 16, more than 200,000 of them. An unknown entity stays as it is written. Time and memory are linear in the
/// text.
XmlElement parse_xml(std::string_view text);

/// Text as it may stand in an element.
std::string xml_escaped(std::string_view text);

}  // namespace tessera::storage
