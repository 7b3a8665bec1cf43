// CANN's dump files. The numbers of the fields are those of DumpData, OpInput and OpOutput in dump_task.proto.
#include "ascendcl/dump.h"

namespace vnpu::acl {
namespace {

constexpr uint32_t kVersion = 1, kTime = 2, kOutput = 3, kInput = 4, kName = 6;
constexpr uint32_t kType = 1, kFormat = 2, kShape = 3, kInputSize = 5, kOutputSize = 6;
constexpr uint32_t kSizes = 1;     // of Shape
constexpr uint64_t kNoFormat = 2;  // FORMAT_ND: no special order of the dimensions

// Seven bits a byte, lowest first; the highest bit says that more follow.
void add_varint(std::string &message, uint64_t value) {
    for (; value >= 0x80; value >>= 7) message += static_cast<char>(value | 0x80);
    message += static_cast<char>(value);
}

void add(std::string &message, uint32_t field, uint64_t value) {
    add_varint(message, field << 3);
    add_varint(message, value);
}

void add(std::string &message, uint32_t field, std::string_view bytes) {
    add_varint(message, field << 3 | 2);
    add_varint(message, bytes.size());
    message += bytes;
}

void add(std::string &message, uint32_t field, const DumpedTensor &tensor) {
    std::string sizes, shape, part;
    for (const int64_t size : tensor.sizes) add_varint(sizes, static_cast<uint64_t>(size));
    add(shape, kSizes, sizes);
    add(part, kType, static_cast<uint64_t>(tensor.type));
    add(part, kFormat, kNoFormat);
    add(part, kShape, shape);
    add(part, field == kInput ? kInputSize : kOutputSize, tensor.bytes.size());
    add(message, field, part);
}

}  // namespace

std::string dump_file(const DumpedOperator &operation) {
    std::string header;
    add(header, kVersion, std::string_view("2.0"));
    add(header, kTime, static_cast<uint64_t>(operation.microseconds));
    for (const DumpedTensor &tensor : operation.outputs) add(header, kOutput, tensor);
    for (const DumpedTensor &tensor : operation.inputs) add(header, kInput, tensor);
    add(header, kName, operation.name);

    std::string file;
    for (size_t i = 0; i < sizeof(uint64_t); ++i) file += static_cast<char>(header.size() >> 8 * i);
    file += header;
    for (const auto *part : {&operation.inputs, &operation.outputs})
        for (const DumpedTensor &tensor : *part) file += tensor.bytes;
    return file;
}

}  // namespace vnpu::acl
