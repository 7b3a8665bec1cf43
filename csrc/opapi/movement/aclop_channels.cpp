// Operators that put tensors into a channel to the program or take them from one (device/channel.h). MindSpore prints,
// dumps and summarises what a compiled graph computes by the first, and reads its data ahead by the others.
#include <acl/acl_tdt.h>

#include <cstring>

#include "ascendcl/time_limits.h"
#include "device/channel.h"
#include "device/live_memory.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/text.h"

namespace vnpu::opapi {
namespace {

aclDataType sent_as(const at::Tensor &tensor) {
    switch (tensor.scalar_type()) {
        case at::kFloat:
            return ACL_FLOAT;
        case at::kHalf:
            return ACL_FLOAT16;
        case at::kBFloat16:
            return ACL_BF16;
        case at::kDouble:
            return ACL_DOUBLE;
        case at::kChar:
            return ACL_INT8;
        case at::kByte:
            return ACL_UINT8;
        case at::kShort:
            return ACL_INT16;
        case at::kUInt16:
            return ACL_UINT16;
        case at::kInt:
            return ACL_INT32;
        case at::kUInt32:
            return ACL_UINT32;
        case at::kLong:
            return ACL_INT64;
        case at::kUInt64:
            return ACL_UINT64;
        case at::kBool:
            return ACL_BOOL;
        case at::kComplexFloat:
            return ACL_COMPLEX64;
        case at::kComplexDouble:
            return ACL_COMPLEX128;
        default:
            return is_text(tensor) ? ACL_STRING : ACL_DT_UNDEFINED;
    }
}

Deadline time_limit() {
    if (const auto limit = acl::execute_limit()) return Clock::now() + *limit;
    return std::nullopt;
}

std::string channel_of(const aclopAttr &attributes) {
    const std::string name = attribute<std::string>(attributes, "channel_name", "");
    if (name.empty()) fail(FaultKind::InvalidArgument, "attribute channel_name is empty");
    return name;
}

Parcel parcel(const at::Tensor &tensor) {
    Parcel made{ACL_TENSOR_DATA_TENSOR, sent_as(tensor), {}, {}};
    if (is_text(tensor)) {
        const std::string text = text_of(tensor);
        made.bytes.resize(text.size());
        if (!text.empty()) std::memcpy(made.bytes.data(), text.data(), text.size());
        return made;
    }
    const at::Tensor rows = tensor.contiguous();
    made.sizes = rows.sizes().vec();
    made.bytes.resize(rows.nbytes());
    if (rows.nbytes() != 0) std::memcpy(made.bytes.data(), rows.const_data_ptr(), rows.nbytes());
    return made;
}

// The last input is the name under which the others go (GE's OutfeedEnqueueOpV2).
void check_enqueue(LegacyArguments &call) {
    channel_of(call.attributes);
    const size_t count = call.in.empty() ? 0 : call.in.size() - 1;
    if (!call.in[count].defined() || !is_text(call.in[count]))
        fail(FaultKind::InvalidArgument, "input {}, the name, is no string", count);
    for (size_t i = 0; i < count; ++i) {
        if (!call.in[i].defined()) fail(FaultKind::NullArgument, "input {} is missing", i);
        if (sent_as(call.in[i]) == ACL_DT_UNDEFINED)
            fail(FaultKind::InvalidArgument, "input {} is {}", i, describe(call.in[i]));
    }
    const int64_t seconds = attribute<int64_t>(call.attributes, "wait_time", 0);
    if (seconds < 0) fail(FaultKind::InvalidArgument, "attribute wait_time is {}", seconds);
}

// Tensors travel whole: slice_size is for a device that has no memory for them in its queues. Where the receiver wants
// a sign that they are complete (slice_sync), it is a shipment of its own, the end of a sequence.
void enqueue(LegacyArguments &call) {
    const auto channel = find_channel(running_device(), channel_of(call.attributes));
    const int64_t seconds = attribute<int64_t>(call.attributes, "wait_time", 0);
    const auto put = [&](Shipment shipment) {
        put_from_kernel(*channel, std::move(shipment),
                        seconds > 0 ? Clock::now() + std::chrono::seconds(seconds) : time_limit());
    };
    Shipment shipment{text_of(call.in.back()), {}};
    for (size_t i = 0; i + 1 < call.in.size(); ++i) shipment.parcels.push_back(parcel(call.in[i]));
    put(std::move(shipment));
    if (attribute<bool>(call.attributes, "slice_sync", false))
        put({"", {Parcel{ACL_TENSOR_DATA_END_OF_SEQUENCE, ACL_BOOL, {}, {}}}});
}

void announce(const LegacyArguments &call) { announce_channel(running_device(), channel_of(call.attributes)); }

void check_next(LegacyArguments &call) {
    channel_of(call.attributes);
    if (call.out.empty()) fail(FaultKind::InvalidArgument, "there are no outputs to take tensors into");
}

// One shipment, a tensor for each output (GE's GetNext).
void next(LegacyArguments &call) {
    const std::string name = channel_of(call.attributes);
    const auto channel = find_channel(running_device(), name);
    const Shipment come = take_in_kernel(*channel, time_limit());
    if (!come.parcels.empty() && come.parcels.front().kind == ACL_TENSOR_DATA_END_OF_SEQUENCE)
        fail(FaultKind::DeviceCpuFailure, "channel {} has come to the end of its data", name);
    if (come.parcels.size() != call.out.size())
        fail(FaultKind::DeviceCpuFailure, "channel {} gave {} tensors for {} outputs", name, come.parcels.size(),
             call.out.size());
    for (size_t i = 0; i < call.out.size(); ++i) {
        const Parcel &parcel = come.parcels[i];
        at::Tensor &out = call.out[i];
        if (parcel.dtype != sent_as(out) || parcel.bytes.size() != out.nbytes())
            fail(FaultKind::DeviceCpuFailure, "channel {} gave {} bytes of aclDataType {} for output {}, which is {}",
                 name, parcel.bytes.size(), parcel.dtype, i, describe(out));
        if (out.nbytes() != 0) std::memcpy(out.mutable_data_ptr(), parcel.bytes.data(), parcel.bytes.size());
    }
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(OutfeedEnqueueOpV2, check_enqueue(arguments), enqueue(arguments))
LEGACY(InitData, channel_of(attributes), announce(arguments))
LEGACY(GetNext, check_next(arguments), next(arguments))
