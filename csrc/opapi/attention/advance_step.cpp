// vLLM's bookkeeping between two steps of decoding over a paged cache, as the kernels do it (ops-nn: advance_step.h,
// advance_step_spec.h), which leave rows out where there are more of them than cores.
#include "device/machine.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi {
namespace {

struct Steps {
    Operand &tokens, &sampled, &positions, &lengths, &slots, &tables;
    int64_t sequences, queries, block;
};

// Without both of the optional operands the kernel is the first version's, which wants rows to fill up.
void check_steps(const Steps &s, const at::Tensor &spec, const at::Tensor &accepted) {
    for (const Operand *each : {&s.tokens, &s.sampled, &s.positions, &s.lengths, &s.slots, &s.tables}) require(*each);
    for (const auto &[number, name] :
         {std::pair{s.sequences, "numSeqs"}, {s.queries, "numQueries"}, {s.block, "blockSize"}})
        tiled(number >= 1, "parameter {} is {}, allowed is >= 1", name, number);
    if (spec.defined())
        tiled(spec.dim() == 2 && spec.size(0) == s.sequences, "parameter specToken is {}, expected [{}, ...]",
              describe(spec), s.sequences);
    if (accepted.defined())
        tiled(accepted.dim() == 1 && accepted.size(0) == s.sequences, "parameter acceptedNum is {}, expected [{}]",
              describe(accepted), s.sequences);
    const bool guessed = spec.defined() && accepted.defined();
    if (!guessed)
        tiled(s.sequences > s.queries, "parameter numSeqs is {}, expected more than numQueries, which is {}",
              s.sequences, s.queries);
    const int64_t each = guessed ? spec.size(1) + 1 : 1, rows = guessed ? s.sequences : s.queries;
    for (const Operand *list : {&s.tokens, &s.positions, &s.lengths, &s.slots})
        tiled(list->dim() == 1 && list->size(0) == s.sequences * each, "parameter {} is {}, expected [{}]",
              list->parameter(), describe(*list), s.sequences * each);
    tiled(s.sampled.dim() == 2 && s.sampled.size(0) == rows && s.sampled.size(1) == each,
          "parameter sampledTokenIds is {}, expected [{}, {}]", describe(s.sampled), rows, each);
    tiled(s.tables.dim() == 2 && s.tables.size(0) == s.sequences && s.tables.size(1) > 0,
          "parameter blockTables is {}, expected [{}, 1 or more]", describe(s.tables), s.sequences);
}

int64_t read(const at::Tensor &list, int64_t at) { return list.const_data_ptr<int64_t>()[at]; }

// The rows behind the queries are those that fill up a batch.
void advance(const Steps &s) {
    const int64_t cores = Machine::instance().settings().chip->vector_cores;
    for (int64_t row = s.queries; row < s.sequences; row += cores) {
        s.tokens[row].zero_();
        s.positions[row].zero_();
        s.slots[row].fill_(-1);
    }
    const at::Tensor tables = s.tables.contiguous().view({-1}), sampled = s.sampled.contiguous().view({-1});
    for (int64_t row = 0; row < std::min(cores, s.queries); ++row) {
        const int64_t length = s.lengths[row].item().toLong();
        s.tokens[row].fill_(read(sampled, row));
        s.lengths[row].fill_(length + 1);
        s.positions[row].fill_(length);
        TORCH_CHECK_INDEX(length / s.block < tables.size(0), "position ", length, " is in block ", length / s.block,
                          " of ", tables.size(0));
        s.slots[row].fill_((read(tables, length / s.block) + s.tables.size(1) * row) * s.block + length % s.block);
    }
}

// With tokens that were guessed ahead: of each sequence the accepted ones count, and the last that was sampled.
void advance_guessed(const Steps &s, const at::Tensor &spec, const at::Tensor &accepted) {
    const int64_t each = s.sampled.size(1);
    const at::Tensor places = s.positions + accepted.repeat_interleave(each) + 1;
    s.positions.copy_(places);
    s.lengths.copy_(places + 1);
    const at::Tensor rows = at::arange(s.sequences).repeat_interleave(each);
    const at::Tensor at = rows * s.tables.size(1) + places.div(s.block, "trunc");
    const at::Tensor blocks = s.tables.reshape({-1}).index_select(0, at);
    s.slots.copy_(blocks * s.block + places.fmod(s.block));
    const at::Tensor ended = at::cat({s.sampled, at::full({s.sequences, 1}, -1, at::kLong)}, 1);
    const at::Tensor last = (ended.argmin(1, true) - 1).clamp_min(0);
    const at::Tensor first = s.sampled.gather(1, last);
    s.tokens.copy_((each > 1 ? at::cat({first, spec}, 1) : first).reshape({-1}));
}

}  // namespace
}  // namespace vnpu::opapi

#define STEPS \
    {inputTokens, sampledTokenIds, inputPositions, seqLens, slotMapping, blockTables, numSeqs, numQueries, blockSize}

OP(aclnnAdvanceStep, check_steps(STEPS, {}, {}), advance(STEPS))
OP(aclnnAdvanceStepV2, optional(specToken, acceptedNum);
   check_steps(STEPS, specToken, acceptedNum),
   if (specToken.defined() && acceptedNum.defined()) advance_guessed(STEPS, specToken, acceptedNum);
   else advance(STEPS))
