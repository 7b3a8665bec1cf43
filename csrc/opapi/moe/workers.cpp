// What passes between ranks that compute attention and those that compute experts (ops-transformer:
// attention_worker_combine, ffn_worker_batching). Both see a table of 1,024 bytes with the addresses of buffers in this
// device's memory, which the other side fills and flags. A kernel that schedules waits for the flags of its micro
// batch.
#include <chrono>
#include <cstring>
#include <thread>

#include "device/abort.h"
#include "device/live_memory.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/precision.h"
#include "opapi/distributed/group.h"

namespace vnpu::opapi {
namespace {

constexpr int64_t kTable = 1024;
constexpr int64_t kNoExpert = 1'000'000;  // ids from here on are of tokens that are masked
constexpr int kCleared = std::numeric_limits<int>::max();

// Bytes of the table from its beginning.
enum Place : int64_t {
    kSessions = 0,
    kMicroBatches = 4,
    kMicroBatchSize = 8,
    kRowsOfToken = 12,  // the experts that are selected, and the shared one
    kRowBytes = 20,
    kAttentionInfo = 256,
    kAttentionData = 272,
    kAttentionMicroBatch = 288,
    kExpertsInfo = 384,
    kExpertsData = 400,
    kPolling = 416,
    kSessionIds = 528,
    kMicroBatchIds = 544,
    kExpertIds = 560,
    kSessionsOut = 576,
};

template <class T>
T field(const at::Tensor &table, Place place) {
    T value;
    std::memcpy(&value, table.const_data_ptr<int8_t>() + place, sizeof value);
    return value;
}

template <class T>
void set_field(const at::Tensor &table, Place place, T value) {
    std::memcpy(table.mutable_data_ptr<int8_t>() + place, &value, sizeof value);
}

// The buffer whose address stands in the table. Faults InvalidAddress, OutOfBounds.
at::Tensor buffer(const at::Tensor &table, Place place, at::IntArrayRef sizes, at::ScalarType type, const char *name) {
    const auto *address = reinterpret_cast<const void *>(field<uint64_t>(table, place));
    const auto bytes = static_cast<uint64_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
    if (bytes == 0) return at::empty(sizes, type);
    return at::from_blob(live_range(address, bytes, name, running_device()), sizes, type);
}

// `flags` looks at the memory anew each time.
template <class Flags>
void wait_for(Flags flags, int64_t ready) {
    while (flags().sum().template item<int64_t>() != ready) {
        refuse_aborted();
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
}

void check_table(const Operand &table, int64_t schedule) {
    shape(table, {kTable});
    tiled(table.is_contiguous(), "parameter scheduleContext is not contiguous");
    tiled(schedule == 0 || schedule == 1, "parameter needSchedule is {}, allowed are 0 and 1", schedule);
}

void check_token_dtype(const Operand &y, int64_t type, std::initializer_list<at::ScalarType> types) {
    tiled(type >= 0 && type < static_cast<int64_t>(types.size()), "parameter tokenDtype is {}, allowed are 0 to {}",
          type, types.size() - 1);
    dtype(y, {types.begin()[type]});
}

void check_combine(const Operand &table, const Operand &scales, const Operand &layer, int64_t hidden, int64_t type,
                   int64_t schedule, const Operand &y, const Operand &next) {
    check_table(table, schedule);
    rank(scales, {2});
    tiled(scales.size(1) <= 64, "parameter expertScales is {}, allowed are at most 64 experts", describe(scales));
    shape(layer, {1});
    // The released tiling asks for 1 alone: torch.half as a number, 5, is what op-plugin's test hands over.
    dtype(y, {type == 1 ? at::kBFloat16 : at::kHalf});
    shape(y, {scales.size(0), hidden});
    shape(next, {1});
}

void combine(const at::Tensor &table, const at::Tensor &scales, const at::Tensor &layer, int64_t hidden, bool schedule,
             at::Tensor &y, at::Tensor &next) {
    const int64_t tokens = scales.size(0), experts = scales.size(1);
    int64_t batch = field<uint32_t>(table, kAttentionMicroBatch);
    if (schedule) batch = (batch + 1) % std::max<int64_t>(field<uint32_t>(table, kMicroBatches), 1);
    const auto flags = [&] {
        return buffer(table, kAttentionInfo, {batch + 1, tokens, experts + 1}, at::kInt, "attention.token_info_buf")
            .select(0, batch);
    };
    if (schedule) wait_for(flags, tokens * (experts + 1));
    const at::Tensor rows = buffer(table, kAttentionData, {batch + 1, tokens, experts + 1, hidden}, y.scalar_type(),
                                   "attention.token_data_buf")
                                .select(0, batch);
    at::Tensor sum = at::zeros({tokens, hidden}, at::kFloat);  // in the kernel's order, the shared expert last
    for (int64_t i = 0; i < experts; ++i)
        sum.add_(rows.select(1, i).to(at::kFloat) * scales.select(1, i).unsqueeze(-1));
    y.copy_(sum.add_(rows.select(1, experts).to(at::kFloat)));
    next.copy_(layer + 1);
    if (!schedule) return;
    flags().zero_();
    set_field(table, kAttentionMicroBatch, static_cast<uint32_t>(batch));
}

void check_batching(const Operand &table, int64_t experts, const Ints &most, int64_t type, int64_t schedule,
                    const Operand &y, const Operand &groups, std::initializer_list<const Operand *> of_rows,
                    const Operand &total) {
    check_table(table, schedule);
    tiled(experts > 0 && experts <= 8192, "parameter expertNum is {}, allowed are 1 to 8192", experts);
    tiled(
        most.size() == 4 && most[0] > 0 && most[0] <= 1024 && most[1] > 0 && most[2] > 0 && most[2] <= 64 &&
            most[3] > 0,
        "parameter maxOutShape has to be up to 1024 sessions, the tokens of each, up to 64 rows of a token, and their "
        "length");
    check_token_dtype(y, type, {at::kHalf, at::kBFloat16, at::kChar});
    const int64_t rows = most[0] * most[1] * most[2];
    shape(y, {rows, most[3]});
    shape(groups, {experts, 2});
    for (const Operand *one : of_rows) shape(*one, {rows});
    shape(total, {1});
}

struct Rows {
    at::Tensor y, groups, sessions, batches, tokens, offsets, scales, total;
};

// What is known of the tokens before they are sorted: for each session, its number, its micro batch and the experts of
// its rows.
struct Arrived {
    at::Tensor experts, sessions, batches;
};

Arrived arrived(const at::Tensor &table, int64_t sessions, int64_t batches, int64_t rows, bool schedule) {
    if (!schedule) {
        const int64_t out = field<uint32_t>(table, kSessionsOut);
        return {buffer(table, kExpertIds, {out, rows}, at::kInt, "ffn.expert_ids_buf"),
                buffer(table, kSessionIds, {out}, at::kInt, "ffn.session_ids_buf"),
                buffer(table, kMicroBatchIds, {out}, at::kInt, "ffn.micro_batch_ids_buf")};
    }
    const auto batch = static_cast<int64_t>(field<uint64_t>(table, kPolling));
    if (batch >= batches)
        fail(FaultKind::OutOfBounds, "ffn.polling_index is {}, there are {} micro batches", batch, batches);
    const auto info = [&] {  // of each session: a flag, the layer, the experts
        return buffer(table, kExpertsInfo, {sessions, batches, rows + 2}, at::kInt, "ffn.token_info_buf")
            .select(1, batch);
    };
    wait_for([&] { return info().select(1, 0); }, sessions);
    set_field(table, kPolling, static_cast<uint64_t>((batch + 1) % batches));
    const at::Tensor of_batch = info();
    Arrived result{of_batch.slice(1, 2).clone(), at::arange(sessions, at::kInt), at::full({sessions}, batch, at::kInt)};
    of_batch.slice(1, 2).fill_(kCleared);
    of_batch.select(1, 0).zero_();
    return result;
}

void batch_experts(const at::Tensor &table, int64_t type, bool schedule, Rows to) {
    const int64_t sessions = field<uint32_t>(table, kSessions), batches = field<uint32_t>(table, kMicroBatches);
    const int64_t size = field<uint32_t>(table, kMicroBatchSize), width = field<uint32_t>(table, kRowsOfToken);
    const int64_t bytes = field<uint32_t>(table, kRowBytes), used = to.y.size(1) * to.y.element_size();
    if (bytes < used + (type == 2 ? 4 : 0))
        fail(FaultKind::OutOfBounds, "attn_to_ffn_token_size is {}, a row has {} bytes", bytes, used);
    const Arrived came = arrived(table, sessions, batches, size * width, schedule);
    const at::Tensor experts = came.experts.reshape({-1}).to(at::kLong);
    const at::Tensor there = at::nonzero(experts < kNoExpert).reshape({-1});
    const auto [sorted, order] = at::sort(experts.index_select(0, there), true, 0, false);
    const int64_t count = sorted.size(0);
    if (count > to.y.size(0))
        fail(FaultKind::OutOfBounds, "{} rows have come, the results have {}", count, to.y.size(0));
    const at::Tensor place = there.index_select(0, order), row = place % (size * width);
    const at::Tensor of = at::floor_divide(place, size * width), token = at::floor_divide(row, width);
    const at::Tensor session = came.sessions.index_select(0, of), batch = came.batches.index_select(0, of);
    to.total.fill_(count);
    to.groups.zero_();
    const auto [each, inverse, counts] = at::unique_consecutive(sorted, false, true);
    if (each.size(0) > to.groups.size(0))
        fail(FaultKind::OutOfBounds, "rows have come for {} experts, there are {}", each.size(0), to.groups.size(0));
    to.groups.slice(0, 0, each.size(0)).copy_(at::stack({each, counts}, 1));
    const auto give_rows = [&](const at::Tensor &out, const at::Tensor &values) {
        out.slice(0, 0, count).copy_(values);  // what is behind stays as it is
    };
    give_rows(to.sessions, session);
    give_rows(to.batches, batch);
    give_rows(to.tokens, token);
    give_rows(to.offsets, row % width);
    const at::Tensor data =
        buffer(table, kExpertsData, {sessions, batches, size, width, bytes}, at::kByte, "ffn.token_data_buf");
    const at::Tensor moved = data.index({session.to(at::kLong), batch.to(at::kLong), token, row % width});
    give_rows(to.y, moved.slice(1, 0, used).contiguous().view(to.y.scalar_type()));
    if (type == 2) give_rows(to.scales, moved.slice(1, used, used + 4).contiguous().view(at::kFloat).reshape({-1}));
}

}  // namespace
}  // namespace vnpu::opapi

RANKS_OP(aclnnAttentionWorkerCombine,
         check_combine(scheduleContext, expertScales, layerId, hiddenSize, tokenDtype, needSchedule, y, nextLayerId),
         combine(scheduleContext, expertScales, layerId, hiddenSize, needSchedule == 1, y, nextLayerId))
RANKS_OP(aclnnFfnWorkerBatching,
         check_batching(scheduleContext, expertNum, maxOutShape, tokenDtype, needSchedule, y, groupList,
                        {&sessionIds, &microBatchIds, &tokenIds, &expertOffsets, &dynamicScale}, actualTokenNum),
         batch_experts(scheduleContext, tokenDtype, needSchedule == 1,
                       {y, groupList, sessionIds, microBatchIds, tokenIds, expertOffsets, dynamicScale,
                        actualTokenNum}))
