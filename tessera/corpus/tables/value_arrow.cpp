// Converts cells of Arrow arrays to values.

#include <array>
#include <chrono>
#include <cstdio>

#include <arrow/array.h>
#include <arrow/extension_type.h>
#include <arrow/scalar.h>
#include <arrow/type.h>
#include <arrow/util/float16.h>

#include <tessera/corpus/tables/arrow.h>

namespace tessera::corpus {
namespace {

template <class Array>
const Array& as(const arrow::Array& array) {
  return static_cast<const Array&>(array);
}

/// Splits a count of time units into whole seconds and the fraction.
struct Instant {
  std::int64_t seconds = 0, fraction = 0;
  int digits = 0;  // digits of the fraction
};

Instant instant_of(std::int64_t count, arrow::TimeUnit::type unit) {
  static constexpr std::array<std::pair<std::int64_t, int>, 4> units = {
      {{1, 0}, {1000, 3}, {1000000, 6}, {1000000000, 9}}};
  const auto [per_second, digits] = units.at(static_cast<std::size_t>(unit));
  std::int64_t seconds = count / per_second, fraction = count % per_second;
  if (fraction < 0) {
    --seconds;
    fraction += per_second;
  }
  return {seconds, fraction, digits};
}

std::string date_text(std::int64_t days) {
  // std::chrono's years end at 32767; beyond them only the day count can be printed
  constexpr std::int64_t most = 11'000'000;
  if (days > most || days < -most) return concat(days, " days since 1970-01-01");
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(static_cast<int>(days)))};
  char text[32];
  std::snprintf(text, sizeof text, "%04d-%02u-%02u", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                static_cast<unsigned>(date.day()));
  return text;
}

std::string time_text(const Instant& time) {
  char text[64];
  const auto seconds = static_cast<int>(time.seconds);
  std::snprintf(text, sizeof text, "%02d:%02d:%02d", seconds / 3600, seconds / 60 % 60, seconds % 60);
  std::string out = text;
  if (time.fraction == 0) return out;
  std::string digits = std::to_string(time.fraction);
  return out + "." + std::string(static_cast<std::size_t>(time.digits) - digits.size(), '0') + digits;
}

std::string timestamp_text(std::int64_t count, const arrow::TimestampType& type) {
  constexpr std::int64_t day = 86400;
  Instant instant = instant_of(count, type.unit());
  std::int64_t days = instant.seconds / day;
  if (instant.seconds % day < 0) --days;
  instant.seconds -= days * day;
  return concat(date_text(days), "T", time_text(instant), type.timezone().empty() ? "" : "+00:00");
}

std::string clock_text(std::int64_t count, arrow::TimeUnit::type unit) {
  const Instant time = instant_of(count, unit);
  if (time.seconds < 0 || time.seconds >= 86400) return std::to_string(count);
  return time_text(time);
}

Value items_of(const arrow::Array& values, std::int64_t begin, std::int64_t end, const SourcePos& where) {
  std::vector<Value> items;
  items.reserve(static_cast<std::size_t>(std::max<std::int64_t>(end - begin, 0)));
  for (std::int64_t i = begin; i < end; ++i) items.push_back(value_of(values, i, where));
  return Value::make_array(std::move(items));
}

template <class List>
Value list_of(const arrow::Array& array, std::int64_t row, const SourcePos& where) {
  const auto& list = as<List>(array);
  const std::int64_t begin = list.value_offset(row);
  return items_of(*list.values(), begin, begin + list.value_length(row), where);
}

Value map_of(const arrow::MapArray& map, std::int64_t row, const SourcePos& where) {
  std::vector<Value> pairs;
  for (std::int64_t i = map.value_offset(row); i < map.value_offset(row) + map.value_length(row); ++i) {
    std::vector<Value> pair{value_of(*map.keys(), i, where), value_of(*map.items(), i, where)};
    pairs.push_back(Value::make_array(std::move(pair)));
    pairs.back().set_where(where);
  }
  return Value::make_array(std::move(pairs));
}

Value struct_of(const arrow::StructArray& array, std::int64_t row, const SourcePos& where) {
  std::vector<Value::Member> members;
  for (int i = 0; i < array.num_fields(); ++i)
    members.emplace_back(array.struct_type()->field(i)->name(), value_of(*array.field(i), row, where));
  return Value::make_object(std::move(members));
}

Value unsigned_of(std::uint64_t number) {
  if (number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return Value::of(static_cast<std::int64_t>(number));
  return Value::of(static_cast<double>(number));
}

template <class Array>
Value integer_of(const arrow::Array& array, std::int64_t row) {
  return Value::of(static_cast<std::int64_t>(as<Array>(array).Value(row)));
}

template <class Array>
Value text_of(const arrow::Array& array, std::int64_t row) {
  return Value::of(std::string(as<Array>(array).GetView(row)));
}

/// Fallback for all other types: the text that Arrow prints.
Value shown(const arrow::Array& array, std::int64_t row, const SourcePos& where) {
  const auto scalar = require(array.GetScalar(row), where.str());
  return Value::of(scalar->ToString());
}

Value bare_value(const arrow::Array& array, std::int64_t row, const SourcePos& where) {
  using Type = arrow::Type;
  switch (array.type_id()) {
    case Type::NA:
      return Value();
    case Type::BOOL:
      return Value::of(as<arrow::BooleanArray>(array).Value(row));
    case Type::INT8:
      return integer_of<arrow::Int8Array>(array, row);
    case Type::INT16:
      return integer_of<arrow::Int16Array>(array, row);
    case Type::INT32:
      return integer_of<arrow::Int32Array>(array, row);
    case Type::INT64:
      return integer_of<arrow::Int64Array>(array, row);
    case Type::UINT8:
      return integer_of<arrow::UInt8Array>(array, row);
    case Type::UINT16:
      return integer_of<arrow::UInt16Array>(array, row);
    case Type::UINT32:
      return integer_of<arrow::UInt32Array>(array, row);
    case Type::UINT64:
      return unsigned_of(as<arrow::UInt64Array>(array).Value(row));
    case Type::HALF_FLOAT:
      return Value::of(
          static_cast<double>(arrow::util::Float16::FromBits(as<arrow::HalfFloatArray>(array).Value(row)).ToFloat()));
    case Type::FLOAT:
      return Value::of(static_cast<double>(as<arrow::FloatArray>(array).Value(row)));
    case Type::DOUBLE:
      return Value::of(as<arrow::DoubleArray>(array).Value(row));
    case Type::STRING:
    case Type::BINARY:
      return text_of<arrow::BinaryArray>(array, row);
    case Type::LARGE_STRING:
    case Type::LARGE_BINARY:
      return text_of<arrow::LargeBinaryArray>(array, row);
    case Type::STRING_VIEW:
    case Type::BINARY_VIEW:
      return text_of<arrow::BinaryViewArray>(array, row);
    case Type::FIXED_SIZE_BINARY:
      return text_of<arrow::FixedSizeBinaryArray>(array, row);
    case Type::DATE32:
      return Value::of(date_text(as<arrow::Date32Array>(array).Value(row)));
    case Type::DATE64:
      return Value::of(
          date_text(instant_of(as<arrow::Date64Array>(array).Value(row), arrow::TimeUnit::MILLI).seconds / 86400));
    case Type::TIME32:
      return Value::of(clock_text(as<arrow::Time32Array>(array).Value(row),
                                  static_cast<const arrow::Time32Type&>(*array.type()).unit()));
    case Type::TIME64:
      return Value::of(clock_text(as<arrow::Time64Array>(array).Value(row),
                                  static_cast<const arrow::Time64Type&>(*array.type()).unit()));
    case Type::TIMESTAMP:
      return Value::of(timestamp_text(as<arrow::TimestampArray>(array).Value(row),
                                      static_cast<const arrow::TimestampType&>(*array.type())));
    case Type::DURATION:
      return integer_of<arrow::DurationArray>(array, row);
    case Type::DECIMAL32:
      return Value::of(as<arrow::Decimal32Array>(array).FormatValue(row));
    case Type::DECIMAL64:
      return Value::of(as<arrow::Decimal64Array>(array).FormatValue(row));
    case Type::DECIMAL128:
      return Value::of(as<arrow::Decimal128Array>(array).FormatValue(row));
    case Type::DECIMAL256:
      return Value::of(as<arrow::Decimal256Array>(array).FormatValue(row));
    case Type::LIST:
      return list_of<arrow::ListArray>(array, row, where);
    case Type::LARGE_LIST:
      return list_of<arrow::LargeListArray>(array, row, where);
    case Type::FIXED_SIZE_LIST:
      return list_of<arrow::FixedSizeListArray>(array, row, where);
    case Type::LIST_VIEW:
      return list_of<arrow::ListViewArray>(array, row, where);
    case Type::LARGE_LIST_VIEW:
      return list_of<arrow::LargeListViewArray>(array, row, where);
    case Type::MAP:
      return map_of(as<arrow::MapArray>(array), row, where);
    case Type::STRUCT:
      return struct_of(as<arrow::StructArray>(array), row, where);
    case Type::DICTIONARY: {
      const auto& coded = as<arrow::DictionaryArray>(array);
      return value_of(*coded.dictionary(), coded.GetValueIndex(row), where);
    }
    case Type::EXTENSION:
      return value_of(*as<arrow::ExtensionArray>(array).storage(), row, where);
    default:
      return shown(array, row, where);
  }
}

}  // namespace

Value value_of(const arrow::Array& array, std::int64_t row, const SourcePos& where) {
  Value value = array.IsNull(row) ? Value() : bare_value(array, row, where);
  value.set_where(where);
  return value;
}

}  // namespace tessera::corpus
