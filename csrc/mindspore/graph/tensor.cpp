// ge's values: strings, shapes, descriptions of tensors, tensors in host memory. Each class holds one pointer to what
// is defined here.
#include <graph/ascend_string.h>
#include <graph/tensor.h>
#include <graph/types.h>

#include <cstring>

namespace ge {

AscendString::AscendString(const char_t *const name)
    : name_(name == nullptr ? nullptr : std::make_shared<std::string>(name)) {}
const char_t *AscendString::GetString() const { return name_ == nullptr ? "" : name_->c_str(); }
bool AscendString::operator<(const AscendString &other) const {
    return std::strcmp(GetString(), other.GetString()) < 0;
}

class TensorTypeImpl {
  public:
    std::vector<DataType> types;
};
TensorType::TensorType(const std::initializer_list<DataType> &types)
    : tensor_type_impl_(std::make_shared<TensorTypeImpl>(TensorTypeImpl{types})) {}

Promote::Promote(const std::initializer_list<const char *> &symbols)
    : data_(std::make_shared<std::vector<const char *>>(symbols)) {}

class ShapeImpl {
  public:
    std::vector<int64_t> dims;
};

// One dimension of -2 says that even their number is unknown.
constexpr int64_t kUnknownRank = -2;

Shape::Shape() : impl_(std::make_shared<ShapeImpl>()) {}
Shape::Shape(const std::vector<int64_t> &dims) : impl_(std::make_shared<ShapeImpl>(ShapeImpl{dims})) {}
std::vector<int64_t> Shape::GetDims() const { return impl_->dims; }
size_t Shape::GetDimNum() const {
    return impl_->dims.size() == 1 && impl_->dims.front() == kUnknownRank ? 0 : impl_->dims.size();
}
int64_t Shape::GetDim(size_t index) const { return index < impl_->dims.size() ? impl_->dims[index] : 0; }
graphStatus Shape::SetDim(size_t index, int64_t value) {
    if (index >= impl_->dims.size()) return GRAPH_FAILED;
    impl_->dims[index] = value;
    return GRAPH_SUCCESS;
}
int64_t Shape::GetShapeSize() const {
    if (impl_->dims.empty()) return 0;
    int64_t elements = 1;
    for (const int64_t dim : impl_->dims) {
        if (dim < 0) return -1;
        if (__builtin_mul_overflow(elements, dim, &elements)) return 0;
    }
    return elements;
}

class TensorDescImpl {
  public:
    Shape shape, origin_shape;
    Format format = FORMAT_ND, origin_format = FORMAT_ND;
    DataType dtype = DT_FLOAT;
    Placement placement = kPlacementHost;
    int64_t real_dimensions = 0;
};

TensorDesc::TensorDesc() : impl(std::make_shared<TensorDescImpl>()) {}
TensorDesc::TensorDesc(Shape shape, Format format, DataType dt) : TensorDesc() {
    impl->shape = std::move(shape);
    impl->format = format;
    impl->dtype = dt;
}
TensorDesc::TensorDesc(const TensorDesc &other) : impl(std::make_shared<TensorDescImpl>(*other.impl)) {}
TensorDesc::TensorDesc(TensorDesc &&other) : TensorDesc() { impl.swap(other.impl); }
TensorDesc &TensorDesc::operator=(const TensorDesc &other) {
    if (this != &other) *impl = *other.impl;
    return *this;
}
TensorDesc &TensorDesc::operator=(TensorDesc &&other) {
    impl.swap(other.impl);
    return *this;
}
Shape TensorDesc::GetShape() const { return impl->shape; }
void TensorDesc::SetShape(const Shape &shape) { impl->shape = Shape(shape.GetDims()); }
Format TensorDesc::GetFormat() const { return impl->format; }
void TensorDesc::SetFormat(Format format) { impl->format = format; }
Shape TensorDesc::GetOriginShape() const { return impl->origin_shape; }
void TensorDesc::SetOriginShape(const Shape &shape) { impl->origin_shape = Shape(shape.GetDims()); }
Format TensorDesc::GetOriginFormat() const { return impl->origin_format; }
void TensorDesc::SetOriginFormat(Format format) { impl->origin_format = format; }
DataType TensorDesc::GetDataType() const { return impl->dtype; }
void TensorDesc::SetDataType(DataType dt) { impl->dtype = dt; }
Placement TensorDesc::GetPlacement() const { return impl->placement; }
void TensorDesc::SetPlacement(Placement placement) { impl->placement = placement; }
int64_t TensorDesc::GetRealDimCnt() const { return impl->real_dimensions; }
void TensorDesc::SetRealDimCnt(const int64_t count) { impl->real_dimensions = count; }

class TensorImpl {
  public:
    TensorDesc desc;
    std::unique_ptr<uint8_t[], Tensor::DeleteFunc> data;
    size_t size = 0;
};

Tensor::Tensor() : impl(std::make_shared<TensorImpl>()) {}
Tensor::Tensor(const TensorDesc &desc) : Tensor() { impl->desc = desc; }
Tensor::Tensor(const TensorDesc &desc, const uint8_t *data, size_t size) : Tensor(desc) { SetData(data, size); }
TensorDesc Tensor::GetTensorDesc() const { return impl->desc; }
graphStatus Tensor::SetTensorDesc(const TensorDesc &desc) {
    impl->desc = desc;
    return GRAPH_SUCCESS;
}
const uint8_t *Tensor::GetData() const { return impl->data.get(); }
uint8_t *Tensor::GetData() { return impl->data.get(); }
size_t Tensor::GetSize() const { return impl->size; }
graphStatus Tensor::SetData(uint8_t *data, size_t size, const DeleteFunc &deleter) {
    impl->data = {data, deleter};
    impl->size = size;
    return GRAPH_SUCCESS;
}
graphStatus Tensor::SetData(const uint8_t *data, size_t size) {
    if (data == nullptr && size > 0) return GRAPH_FAILED;
    auto *copy = new uint8_t[size];
    std::copy_n(data, size, copy);
    return SetData(copy, size, [](uint8_t *bytes) { delete[] bytes; });
}
graphStatus Tensor::SetData(const std::string &data) {
    return SetData(reinterpret_cast<const uint8_t *>(data.c_str()), data.size() + 1);
}
std::unique_ptr<uint8_t[], Tensor::DeleteFunc> Tensor::ResetData() {
    impl->size = 0;
    return std::move(impl->data);
}

}  // namespace ge
