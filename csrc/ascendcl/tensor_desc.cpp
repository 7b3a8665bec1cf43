// Descriptors, buffers and attributes of the old single-operator API. Plain values: nothing here touches a device.
#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "ascendcl/legacy_op.h"

using namespace vnpu;
using acl::not_null;
using acl::required;

namespace {

std::vector<int64_t> shape(int count, const int64_t *dims) {
    if (count < 0) fail(FaultKind::InvalidArgument, "numDims is {}; it must not be negative.", count);
    if (count > 0) not_null(dims, "dims");
    return {dims, dims + count};
}

template <class T>
aclError set_attribute(const char *call, aclopAttr *attr, const char *name, T &&value) {
    return acl::call<acl::Face::Runtime>(call, attr, name) <<
           [&] { required(attr, "attr").values.insert_or_assign(&required(name, "attrName"), std::forward<T>(value)); };
}

// The values of a list attribute; `count` of them.
template <class Element, class Source>
aclError set_list(const char *call, aclopAttr *attr, const char *name, int count, const Source *values) {
    return acl::call<acl::Face::Runtime>(call, attr, name, count) << [&] {
        if (count < 0) fail(FaultKind::InvalidArgument, "numValues is {}; it must not be negative.", count);
        if (count > 0) not_null(values, "values");
        required(attr, "attr")
            .values.insert_or_assign(&required(name, "attrName"), std::vector<Element>(values, values + count));
    };
}

}  // namespace

// --- buffers -------------------------------------------------------------------------------------------------------

aclDataBuffer *aclCreateDataBuffer(void *data, size_t size) {
    return VNPU_API(data, size) { return new aclDataBuffer{data, size}; };
}

aclError aclDestroyDataBuffer(const aclDataBuffer *dataBuffer) {
    return VNPU_API(dataBuffer) { delete &required(dataBuffer, "dataBuffer"); };
}

aclError aclUpdateDataBuffer(aclDataBuffer *dataBuffer, void *data, size_t size) {
    return VNPU_API(dataBuffer, data, size) { required(dataBuffer, "dataBuffer") = {data, size}; };
}

void *aclGetDataBufferAddr(const aclDataBuffer *dataBuffer) {
    return VNPU_API(dataBuffer) { return required(dataBuffer, "dataBuffer").data; };
}

size_t aclGetDataBufferSizeV2(const aclDataBuffer *dataBuffer) {
    return VNPU_API(dataBuffer) { return required(dataBuffer, "dataBuffer").size; };
}

// --- descriptors ---------------------------------------------------------------------------------------------------

aclTensorDesc *aclCreateTensorDesc(aclDataType dataType, int numDims, const int64_t *dims, aclFormat format) {
    return VNPU_API(dataType, numDims, format) {
        const std::vector<int64_t> sizes = shape(numDims, dims);
        return new aclTensorDesc{dataType, format, sizes, format, sizes, {}, ACL_MEMTYPE_DEVICE, {}};
    };
}

void aclDestroyTensorDesc(const aclTensorDesc *desc) { delete desc; }

aclDataType aclGetTensorDescType(const aclTensorDesc *desc) { return desc == nullptr ? ACL_DT_UNDEFINED : desc->dtype; }

aclFormat aclGetTensorDescFormat(const aclTensorDesc *desc) {
    return desc == nullptr ? ACL_FORMAT_UNDEFINED : desc->format;
}

size_t aclGetTensorDescNumDims(const aclTensorDesc *desc) {
    return VNPU_API(desc) { return required(desc, "desc").dims.size(); };
}

aclError aclGetTensorDescDimV2(const aclTensorDesc *desc, size_t index, int64_t *dimSize) {
    return VNPU_API(desc, index, dimSize) {
        const auto &dims = required(desc, "desc").dims;
        if (index >= dims.size())
            fail(FaultKind::InvalidArgument, "index is {}; the tensor has {} dimensions.", index, dims.size());
        required(dimSize, "dimSize") = dims[index];
    };
}

int64_t aclGetTensorDescDim(const aclTensorDesc *desc, size_t index) {
    return desc == nullptr || index >= desc->dims.size() ? -1 : desc->dims[index];
}

// Bytes of one element; 0 for what is none, and for parts of a byte, of which CANN gives 0 too.
size_t aclDataTypeSize(aclDataType dataType) {
    switch (dataType) {
        case ACL_INT8:
        case ACL_UINT8:
        case ACL_BOOL:
        case ACL_FLOAT8_E5M2:
        case ACL_FLOAT8_E4M3FN:
        case ACL_FLOAT8_E8M0:
        case ACL_HIFLOAT8:
            return 1;
        case ACL_FLOAT16:
        case ACL_BF16:
        case ACL_INT16:
        case ACL_UINT16:
            return 2;
        case ACL_FLOAT:
        case ACL_INT32:
        case ACL_UINT32:
        case ACL_COMPLEX32:
            return 4;
        case ACL_DOUBLE:
        case ACL_INT64:
        case ACL_UINT64:
        case ACL_COMPLEX64:
            return 8;
        case ACL_COMPLEX128:
        case ACL_STRING:  // its address and length
            return 16;
        default:
            return 0;
    }
}

size_t aclGetTensorDescSize(const aclTensorDesc *desc) {
    return desc == nullptr ? 0 : aclGetTensorDescElementCount(desc) * aclDataTypeSize(desc->dtype);
}

size_t aclGetTensorDescElementCount(const aclTensorDesc *desc) {
    return VNPU_API(desc) {
        const auto &dims = required(desc, "desc").dims;
        return static_cast<size_t>(std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>()));
    };
}

void aclSetTensorDescName(aclTensorDesc *desc, const char *name) {
    VNPU_API(desc, name) {
        if (desc != nullptr) desc->name = name == nullptr ? "" : name;
    };
}

const char *aclGetTensorDescName(aclTensorDesc *desc) { return desc == nullptr ? "" : desc->name.c_str(); }

aclError aclSetTensorFormat(aclTensorDesc *desc, aclFormat format) {
    return VNPU_API(desc, format) { required(desc, "desc").storage_format = format; };
}

aclError aclSetTensorShape(aclTensorDesc *desc, int numDims, const int64_t *dims) {
    return VNPU_API(desc, numDims) { required(desc, "desc").storage_dims = shape(numDims, dims); };
}

aclError aclSetTensorOriginFormat(aclTensorDesc *desc, aclFormat format) {
    return VNPU_API(desc, format) { required(desc, "desc").format = format; };
}

aclError aclSetTensorOriginShape(aclTensorDesc *desc, int numDims, const int64_t *dims) {
    return VNPU_API(desc, numDims) { required(desc, "desc").dims = shape(numDims, dims); };
}

aclError aclSetTensorConst(aclTensorDesc *desc, void *dataBuffer, size_t length) {
    return VNPU_API(desc, dataBuffer, length) {
        const auto *bytes = static_cast<const std::byte *>(dataBuffer);
        if (length > 0) not_null(dataBuffer, "dataBuffer");
        required(desc, "desc").constant.assign(bytes, bytes + length);
    };
}

aclError aclSetTensorPlaceMent(aclTensorDesc *desc, aclMemType memType) {
    return VNPU_API(desc, memType) { required(desc, "desc").placement = memType; };
}

// --- attributes ----------------------------------------------------------------------------------------------------

aclopAttr *aclopCreateAttr() {
    return VNPU_API() { return new aclopAttr; };
}

void aclopDestroyAttr(const aclopAttr *attr) { delete attr; }

aclError aclopSetAttrBool(aclopAttr *attr, const char *attrName, uint8_t attrValue) {
    return set_attribute(__func__, attr, attrName, attrValue != 0);
}

aclError aclopSetAttrInt(aclopAttr *attr, const char *attrName, int64_t attrValue) {
    return set_attribute(__func__, attr, attrName, attrValue);
}

aclError aclopSetAttrFloat(aclopAttr *attr, const char *attrName, float attrValue) {
    return set_attribute(__func__, attr, attrName, attrValue);
}

aclError aclopSetAttrString(aclopAttr *attr, const char *attrName, const char *attrValue) {
    return set_attribute(__func__, attr, attrName, attrValue == nullptr ? "" : attrValue);
}

aclError aclopSetAttrDataType(aclopAttr *attr, const char *attrName, aclDataType attrValue) {
    return set_attribute(__func__, attr, attrName, attrValue);
}

aclError aclopSetAttrListDataType(aclopAttr *attr, const char *attrName, int numValues, const aclDataType values[]) {
    return set_list<aclDataType>(__func__, attr, attrName, numValues, values);
}

aclError aclopSetAttrListBool(aclopAttr *attr, const char *attrName, int numValues, const uint8_t *values) {
    return set_list<bool>(__func__, attr, attrName, numValues, values);
}

aclError aclopSetAttrListInt(aclopAttr *attr, const char *attrName, int numValues, const int64_t *values) {
    return set_list<int64_t>(__func__, attr, attrName, numValues, values);
}

aclError aclopSetAttrListFloat(aclopAttr *attr, const char *attrName, int numValues, const float *values) {
    return set_list<float>(__func__, attr, attrName, numValues, values);
}

aclError aclopSetAttrListString(aclopAttr *attr, const char *attrName, int numValues, const char **values) {
    return set_list<std::string>(__func__, attr, attrName, numValues, values);
}

aclError aclopSetAttrListListInt(aclopAttr *attr, const char *attrName, int numLists, const int *numValues,
                                 const int64_t *const values[]) {
    return VNPU_API(attr, attrName, numLists) {
        if (numLists > 0) {
            not_null(numValues, "numValues");
            not_null(values, "values");
        }
        std::vector<std::vector<int64_t>> lists;
        for (int i = 0; i < numLists; ++i) lists.push_back(shape(numValues[i], values[i]));
        required(attr, "attr").values.insert_or_assign(&required(attrName, "attrName"), std::move(lists));
    };
}
