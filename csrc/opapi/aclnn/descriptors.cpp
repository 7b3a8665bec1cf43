// aclCreate*/aclDestroy*: CANN's descriptors of operator arguments. Destroying a list destroys its elements, as in
// CANN.

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "device/bytes.h"
#include "opapi/aclnn/check.h"
#include "opapi/aclnn/format.h"
#include "opapi/aclnn/laid_over.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/tensor.h"
#include "opapi/aclnn/unbacked.h"

using namespace vnpu;
using namespace vnpu::opapi;

namespace {

// Bytes that the view reaches, from its storage's start. Nothing lies before that, so strides and offset are not
// negative.
uint64_t reach(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset, uint64_t itemsize) {
    if (offset < 0) fail(FaultKind::InvalidArgument, "offset is {}; it must not be negative.", offset);
    auto elements = static_cast<uint64_t>(offset);
    bool empty = false;
    for (size_t i = 0; i < sizes.size(); ++i) {
        if (sizes[i] < 0 || strides[i] < 0)
            fail(FaultKind::InvalidArgument, "Dimension {} has size {} and stride {}; neither may be negative.", i,
                 sizes[i], strides[i]);
        empty = empty || sizes[i] == 0;
        const uint64_t steps = sizes[i] == 0 ? 0 : static_cast<uint64_t>(sizes[i]) - 1;
        elements = bytes::sum(elements, bytes::product(steps, static_cast<uint64_t>(strides[i]), "stride"), "stride");
    }
    return empty ? 0 : bytes::product(bytes::sum(elements, 1, "stride"), itemsize, "stride");
}

// `storage_sizes`: the dimensions of the storage where a private format pads it, else none.
at::Tensor view(const int64_t *sizes, uint64_t rank, at::ScalarType dtype, const int64_t *strides, int64_t offset,
                void *data, at::IntArrayRef storage_sizes) {
    const auto meta = c10::scalarTypeToTypeMeta(dtype);
    const uint64_t reached = reach({sizes, rank}, {strides, rank}, offset, meta.itemsize());
    const uint64_t size = storage_sizes.empty() ? reached : whole(storage_sizes, meta.itemsize());
    if (size != 0 && data == nullptr) any_unbacked.store(true, std::memory_order_relaxed);
    return laid_over(data == nullptr || size == 0 ? nullptr : alias_of(data), size, meta, {sizes, rank},
                     {strides, rank}, offset);
}

// A descriptor is made even where it could not be filled; it then carries the reason to whoever reads it (tensor.h).
template <class Descriptor, class Fill>
Descriptor *described(const char *call, Fill fill) {
    auto made = std::make_unique<Descriptor>();
    try {
        fill(*made);
    } catch (const Fault &fault) {
        acl::caught(acl::Face::Operator, call);
        *made = {};
        made->fault = std::make_unique<const Fault>(fault);
    } catch (const c10::Error &error) {
        acl::caught(acl::Face::Operator, call);
        *made = {};
        made->fault = std::make_unique<const Fault>(FaultKind::InvalidArgument, error.what_without_backtrace());
    }
    return made.release();
}

// Dimensions that ATen's kernels can iterate over; a larger number is not a rank.
constexpr uint64_t kMostDimensions = 64;
// Elements of a list. Models have lists of thousands; a larger number is not a length.
constexpr uint64_t kLongestList = uint64_t{1} << 24;

void listed(const void *values, uint64_t size, uint64_t most, const char *name) {
    if (size > most)
        fail(FaultKind::InvalidArgument, "parameter {} is announced with {} elements, allowed are {}", name, size,
             most);
    if (size > 0) acl::not_null(values, name);
}

template <class List, class T>
List *list_of(const T *values, uint64_t size) {
    listed(values, size, kLongestList, "value");
    return new List{std::vector<T>(values, values + size)};
}

at::Scalar scalar_at(const void *value, at::ScalarType dtype) {
    switch (dtype) {  // what torch_npu passes all the time; a tensor for one number costs half a microsecond
        case at::kFloat:
            return *static_cast<const float *>(value);
        case at::kDouble:
            return *static_cast<const double *>(value);
        case at::kLong:
            return *static_cast<const int64_t *>(value);
        case at::kBool:
            return *static_cast<const bool *>(value);
        default:
            return at::from_blob(const_cast<void *>(value), {}, at::TensorOptions().dtype(dtype)).item();
    }
}

}  // namespace

OP_EXPORT aclTensor *aclCreateTensor(const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType,
                                     const int64_t *stride, int64_t offset, aclFormat format,
                                     const int64_t *storageDims, uint64_t storageDimsNum, void *tensorData) {
    return VNPU_OPERATOR_API() {
        return described<aclTensor>("aclCreateTensor", [&](aclTensor &made) {
            listed(viewDims, viewDimsNum, kMostDimensions, "viewDims");
            listed(stride, viewDimsNum, kMostDimensions, "stride");
            made.format = format;
            at::IntArrayRef stored;
            if (format > ACL_FORMAT_ND) {  // private formats, and a few base formats of rare ranks
                listed(storageDims, storageDimsNum, kMostDimensions, "storageDims");
                const at::IntArrayRef storage(storageDims, storageDimsNum);
                made.layout = layout_of(format, storage);
                if (made.layout) stored = storage;
            }
            made.view = view(viewDims, viewDimsNum, aten_dtype(dataType), stride, offset, tensorData, stored);
        });
    };
}

OP_EXPORT aclScalar *aclCreateScalar(void *value, aclDataType dataType) {
    return VNPU_OPERATOR_API() {
        return described<aclScalar>("aclCreateScalar", [&](aclScalar &made) {
            acl::not_null(value, "value");
            made.dtype = aten_dtype(dataType);
            made.value = scalar_at(value, made.dtype);
        });
    };
}

OP_EXPORT aclIntArray *aclCreateIntArray(const int64_t *value, uint64_t size) {
    return VNPU_OPERATOR_API() { return list_of<aclIntArray>(value, size); };
}

OP_EXPORT aclBoolArray *aclCreateBoolArray(const bool *value, uint64_t size) {
    return VNPU_OPERATOR_API() { return list_of<aclBoolArray>(value, size); };
}

OP_EXPORT aclFloatArray *aclCreateFloatArray(const float *value, uint64_t size) {
    return VNPU_OPERATOR_API() { return list_of<aclFloatArray>(value, size); };
}

OP_EXPORT aclTensorList *aclCreateTensorList(const aclTensor *const *value, uint64_t size) {
    return VNPU_OPERATOR_API() { return list_of<aclTensorList>(value, size); };
}

OP_EXPORT aclScalarList *aclCreateScalarList(const aclScalar *const *value, uint64_t size) {
    return VNPU_OPERATOR_API() { return list_of<aclScalarList>(value, size); };
}

// What is destroyed below is plain data, whose destructors throw nothing.
OP_EXPORT aclnnStatus aclDestroyTensor(const aclTensor *tensor) {
    delete tensor;
    return 0;
}

OP_EXPORT aclnnStatus aclDestroyScalar(const aclScalar *scalar) {
    delete scalar;
    return 0;
}

OP_EXPORT aclnnStatus aclDestroyIntArray(const aclIntArray *array) {
    delete array;
    return 0;
}

OP_EXPORT aclnnStatus aclDestroyBoolArray(const aclBoolArray *array) {
    delete array;
    return 0;
}

OP_EXPORT aclnnStatus aclDestroyFloatArray(const aclFloatArray *array) {
    delete array;
    return 0;
}

OP_EXPORT aclnnStatus aclDestroyTensorList(const aclTensorList *list) {
    if (list != nullptr)
        for (const aclTensor *tensor : list->tensors) delete tensor;
    delete list;
    return 0;
}

OP_EXPORT aclnnStatus aclDestroyScalarList(const aclScalarList *list) {
    if (list != nullptr)
        for (const aclScalar *scalar : list->scalars) delete scalar;
    delete list;
    return 0;
}

// The shape of a tensor, or what the kernel made of it. The caller deletes the array (delete[]).
OP_EXPORT aclnnStatus aclGetViewShape(const aclTensor *tensor, int64_t **viewDims, uint64_t *viewDimsNum) {
    return VNPU_OPERATOR_API(tensor) {
        const aclTensor &shown = acl::required(tensor, "tensor");
        if (shown.fault != nullptr) throw_fault(*shown.fault, "tensor");
        int64_t *&dims = acl::required(viewDims, "viewDims");
        uint64_t &rank = acl::required(viewDimsNum, "viewDimsNum");
        const auto sizes = shown.result ? shown.result->sizes : shown.view.sizes().vec();
        dims = new int64_t[sizes.size()];
        std::copy(sizes.begin(), sizes.end(), dims);
        rank = sizes.size();
    };
}
