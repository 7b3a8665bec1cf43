#include "record/arguments.h"

#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <ATen/core/Tensor.h>

#include <cmath>

namespace torchport::record {
namespace {

void text(std::string &out, std::string_view value) {
    out += '"';
    for (const char letter : value) {
        if (letter == '"' || letter == '\\')
            out += '\\', out += letter;
        else if (static_cast<unsigned char>(letter) < 0x20)
            fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(letter));
        else
            out += letter;
    }
    out += '"';
}

void number(std::string &out, double value) {
    if (std::isfinite(value)) {
        const size_t start = out.size();
        fmt::format_to(std::back_inserter(out), "{}", value);
        // A float stays one for whoever reads it.
        if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
        return;
    }
    out += std::isnan(value) ? R"({"float":"nan"})" : value > 0 ? R"({"float":"inf"})" : R"({"float":"-inf"})";
}

const char *format_name(c10::MemoryFormat format) {
    switch (format) {
        case c10::MemoryFormat::Contiguous:
            return "contiguous_format";
        case c10::MemoryFormat::ChannelsLast:
            return "channels_last";
        case c10::MemoryFormat::ChannelsLast3d:
            return "channels_last_3d";
        default:
            return "preserve_format";
    }
}

const char *layout_name(c10::Layout layout) {
    switch (layout) {
        case c10::Layout::Strided:
            return "strided";
        case c10::Layout::Sparse:
            return "sparse_coo";
        default:
            return "other";
    }
}

std::string dtype_name(c10::ScalarType dtype);

class Json {
  public:
    Json(std::string &out, Tensors &tensors) : out_(out), tensors_(tensors) {}

    // `type` is what the schema declares: it tells a dtype from a number.
    void add(const c10::IValue &value, const c10::Type &type) {
        if (value.isTensor()) {
            const at::Tensor &tensor = value.toTensor();
            fmt::format_to(std::back_inserter(out_), R"({{"t":{}}})", tensors_.size());
            tensors_.push_back(tensor.defined() ? &tensor : nullptr);
        } else if (value.isNone()) {
            out_ += "null";
        } else if (value.isBool()) {
            out_ += value.toBool() ? "true" : "false";
        } else if (value.isInt()) {
            integer(value.toInt(), type);
        } else if (value.isDouble()) {
            number(out_, value.toDouble());
        } else if (value.isComplexDouble()) {
            const c10::complex<double> both = value.toComplexDouble();
            out_ += R"({"complex":[)";
            number(out_, both.real());
            out_ += ',';
            number(out_, both.imag());
            out_ += "]}";
        } else if (value.isString()) {
            text(out_, value.toStringRef());
        } else if (value.isDevice()) {
            out_ += R"({"device":)";
            text(out_, value.toDevice().str());
            out_ += '}';
        } else if (value.isList()) {
            list(value, type);
        } else if (value.isGenerator()) {
            out_ += R"({"generator":)";
            text(out_, value.toGenerator().defined() ? value.toGenerator().device().str() : "");
            out_ += '}';
        } else if (value.isSymInt() || value.isSymFloat() || value.isSymBool()) {
            out_ += R"({"other":"SymInt"})";  // a number that a compiler has not decided about
        } else {
            out_ += R"({"other":)";
            text(out_, value.tagKind());
            out_ += '}';
        }
    }

  private:
    void integer(int64_t value, const c10::Type &declared) {
        const c10::Type *type = &declared;
        if (const auto *optional = type->castRaw<c10::OptionalType>()) type = optional->getElementType().get();
        switch (type->kind()) {
            case c10::TypeKind::ScalarTypeType:
                out_ += R"({"dtype":")" + dtype_name(static_cast<c10::ScalarType>(value)) + "\"}";
                return;
            case c10::TypeKind::LayoutType:
                fmt::format_to(std::back_inserter(out_), R"({{"layout":"{}"}})",
                               layout_name(static_cast<c10::Layout>(value)));
                return;
            case c10::TypeKind::MemoryFormatType:
                fmt::format_to(std::back_inserter(out_), R"({{"memory_format":"{}"}})",
                               format_name(static_cast<c10::MemoryFormat>(value)));
                return;
            default:
                fmt::format_to(std::back_inserter(out_), "{}", value);
        }
    }

    void list(const c10::IValue &value, const c10::Type &type) {
        const c10::Type *element = &type;
        if (const auto *optional = element->castRaw<c10::OptionalType>()) element = optional->getElementType().get();
        if (const auto *list = element->castRaw<c10::ListType>()) element = list->getElementType().get();
        out_ += '[';
        bool first = true;
        // Its elements live in the list, whose values are those of the call.
        for (const c10::IValue &part : value.toListRef()) {
            if (!first) out_ += ',';
            first = false;
            add(part, *element);
        }
        out_ += ']';
    }

    std::string &out_;
    Tensors &tensors_;
};

std::string dtype_name(c10::ScalarType dtype) {
    switch (dtype) {
#define CASE(name, text)        \
    case c10::ScalarType::name: \
        return text;
        CASE(Float, "float32")
        CASE(Double, "float64")
        CASE(Half, "float16")
        CASE(BFloat16, "bfloat16")
        CASE(Bool, "bool")
        CASE(Byte, "uint8")
        CASE(Char, "int8")
        CASE(Short, "int16")
        CASE(UInt16, "uint16")
        CASE(Int, "int32")
        CASE(UInt32, "uint32")
        CASE(Long, "int64")
        CASE(UInt64, "uint64")
        CASE(ComplexHalf, "complex32")
        CASE(ComplexFloat, "complex64")
        CASE(ComplexDouble, "complex128")
        CASE(Float8_e4m3fn, "float8_e4m3fn")
        CASE(Float8_e5m2, "float8_e5m2")
        CASE(Float8_e4m3fnuz, "float8_e4m3fnuz")
        CASE(Float8_e5m2fnuz, "float8_e5m2fnuz")
        CASE(Float8_e8m0fnu, "float8_e8m0fnu")
#undef CASE
        default:
            return c10::toString(dtype);
    }
}

}  // namespace

std::string name_of(c10::ScalarType dtype) { return dtype_name(dtype); }

std::string as_json(c10::ArrayRef<c10::IValue> values, const std::vector<c10::Argument> &declared, Tensors &tensors) {
    std::string out = "[";
    Json json(out, tensors);
    for (size_t i = 0; i < values.size(); ++i) {
        if (i > 0) out += ',';
        // A kernel that is boxed may give more than its schema says.
        json.add(values[i], i < declared.size() ? *declared[i].real_type() : *c10::AnyType::get());
    }
    return out + ']';
}

}  // namespace torchport::record
