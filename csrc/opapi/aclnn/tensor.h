// CANN's descriptors, and what an operator makes of them.
//
// aclTensor and its kin are made by torch_npu for one call and destroyed before the launch ends. An operator
// therefore owns what it needs: `own()` turns each descriptor into an ATen value over the kernel's alias of the
// device memory. Names are kept for messages: "aclnnAdd: other has shape [2, 3], ...".
#pragma once

#include <ATen/ATen.h>
#include <acl/acl_base.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/fault.h"

// The shape that a kernel with a data-dependent result found; read by aclGetViewShape after synchronisation.
struct ResultShape {
    std::vector<int64_t> sizes;
};

namespace vnpu::opapi {

// How a tensor in a private format lies in memory (format.h); false for base formats.
struct Layout {
    uint8_t format = 0;  // aclFormat
    uint8_t block = 0;   // elements in the innermost stored dimension, C0
    explicit operator bool() const noexcept { return block != 0; }
};

}  // namespace vnpu::opapi

// `fault`: why the descriptor could not be made. torch_npu does not look at what aclCreateTensor returns; a null
// pointer would reach the first phase as "parameter self is null", or as an optional parameter that was left out. So
// there is a descriptor all the same, and whoever reads it gets its fault.
struct aclTensor {
    at::Tensor view;  // the viewed elements, at the kernel's alias; with a layout, only its sizes and strides are valid
    aclFormat format = ACL_FORMAT_UNDEFINED;
    vnpu::opapi::Layout layout = {};
    mutable std::shared_ptr<ResultShape> result = {};
    std::unique_ptr<const vnpu::Fault> fault = {};
};
struct aclScalar {
    at::Scalar value;
    at::ScalarType dtype = at::kFloat;
    std::unique_ptr<const vnpu::Fault> fault = {};
};
struct aclIntArray {
    std::vector<int64_t> values;
};
struct aclBoolArray {
    std::vector<bool> values;
};
struct aclFloatArray {
    std::vector<float> values;
};
struct aclTensorList {
    std::vector<const aclTensor *> tensors;
};
struct aclScalarList {
    std::vector<const aclScalar *> scalars;
};

namespace vnpu::opapi {

// ATen's dtype for CANN's; Fault InvalidArgument for those that ATen lacks (INT4, HIFLOAT8 ...).
at::ScalarType aten_dtype(aclDataType dtype);

// What an argument is called, and whether it may be null.
class Named {
  public:
    explicit Named(const char *parameter) : parameter_(parameter) {}
    const char *parameter() const noexcept { return parameter_; }
    // By CANN's name for it, or as the operator says; asked of null arguments only, so not worked out before.
    bool may_be_null() const noexcept { return null_allowed_ || std::strstr(parameter_, "Optional") != nullptr; }
    void allow_null() noexcept { null_allowed_ = true; }

  private:
    const char *parameter_;
    bool null_allowed_ = false;
};

// Throws the descriptor's fault, naming the parameter.
[[noreturn]] void throw_fault(const Fault &fault, const char *name);

// A tensor argument. Undefined when the descriptor was null. Throws the fault of one that could not be made.
class Operand : public at::Tensor, public Named {
  public:
    Operand(const aclTensor *source, const char *name)
        : at::Tensor(source != nullptr ? source->view : at::Tensor()),
          Named(name),
          layout_(source != nullptr ? source->layout : Layout{}),
          source_(source) {
        if (source != nullptr && source->fault != nullptr) [[unlikely]]
            throw_fault(*source->fault, name);
    }
    using at::Tensor::operator=;
    // Null or defined: as std::optional, for ATen functions that take one.
    std::optional<at::Tensor> maybe() const { return defined() ? std::optional<at::Tensor>(*this) : std::nullopt; }
    // The descriptor; it is alive in the first phase only.
    const aclTensor *source() const noexcept { return source_; }

    // Its private format, if it has one, which the operator must have said that it takes: required() refuses others.
    Layout layout() const noexcept { return layout_; }
    bool may_have_layout() const noexcept { return may_have_layout_; }
    void allow_layout() noexcept { may_have_layout_ = true; }

    // Declares, in the first phase, that the kernel decides how much of this output it fills.
    void set_data_dependent();
    bool data_dependent() const noexcept { return result_ != nullptr; }
    // In dry mode, where no kernel does: so many along that dimension, or all there can be where those are fewer.
    void set_found(int64_t dimension, int64_t count);
    // Writes the result into this output and keeps its shape for aclGetViewShape.
    void publish(const at::Tensor &result);
    // What the kernel has written: the tensor, or as much of it as it has published.
    at::Tensor filled() const;

  private:
    Layout layout_;
    bool may_have_layout_ = false;
    const aclTensor *source_;
    std::shared_ptr<ResultShape> result_;
};

// A tensor list argument. Empty when the descriptor was null.
class Operands : public std::vector<Operand>, public Named {
  public:
    Operands(const aclTensorList *source, const char *name);
    bool null() const noexcept { return null_; }
    std::vector<at::Tensor> tensors() const { return {begin(), end()}; }

  private:
    bool null_;
};

// A scalar argument; nullopt when the descriptor was null. Passing a null one where ATen needs a value is an error
// that names the parameter.
class ScalarArgument : public std::optional<at::Scalar>, public Named {
  public:
    ScalarArgument(const aclScalar *source, const char *name);
    operator const at::Scalar &() const { return get(); }
    const at::Scalar &get() const;
    const std::optional<at::Scalar> &maybe() const { return *this; }
    template <class T>
    T to() const {
        return get().to<T>();
    }
    at::ScalarType dtype() const noexcept { return dtype_; }
    // As `dtype` holds it: floating-point values past its range become infinities, integers wrap. ATen would refuse
    // them, the hardware casts (masked_fill of float16 with -1e9).
    at::Scalar as(at::ScalarType dtype) const;
    // As the 0-dim operand that a Python number is for ATen: it promotes to a wider category only. Undefined for null.
    at::Tensor number() const;

  private:
    at::ScalarType dtype_ = at::kFloat;
};

// A list of integers; null and empty are told apart by `given`.
struct Ints : std::vector<int64_t> {
    Ints(const aclIntArray *source)
        : std::vector<int64_t>(source ? source->values : std::vector<int64_t>()), given(source != nullptr) {}
    bool given;
    // Null: ATen's "all" or "default" where a function takes an optional list.
    at::OptionalIntArrayRef maybe() const {
        return given ? at::OptionalIntArrayRef(at::IntArrayRef(*this)) : at::OptionalIntArrayRef();
    }
};

struct Bools : std::vector<bool> {
    Bools(const aclBoolArray *source) : std::vector<bool>(source ? source->values : std::vector<bool>()) {}
    template <size_t N>
    std::array<bool, N> mask() const {
        std::array<bool, N> bits{};
        for (size_t i = 0; i < N && i < size(); ++i) bits[i] = (*this)[i];
        return bits;
    }
};

inline Operand own(const aclTensor *tensor, const char *name) { return {tensor, name}; }
inline Operands own(const aclTensorList *list, const char *name) { return {list, name}; }
inline ScalarArgument own(const aclScalar *scalar, const char *name) { return {scalar, name}; }
inline Ints own(const aclIntArray *array, const char *) { return {array}; }
inline Bools own(const aclBoolArray *array, const char *) { return {array}; }
inline std::string own(const char *text, const char *) { return text != nullptr ? text : ""; }
std::vector<at::Scalar> own(const aclScalarList *list, const char *name);

}  // namespace vnpu::opapi
