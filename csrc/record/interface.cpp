// The C functions that src/torchport/record/operators/hook.py calls. Each answers 0, or a code after which
// torchportRecordError() has a sentence. No exception leaves them.
#include <cstring>
#include <string>

#include "record/recorder.h"

using namespace torchport::record;

namespace {

thread_local std::string error;

template <class Body>
int guarded(Body &&body) noexcept {
    try {
        body();
        return 0;
    } catch (const std::exception &thrown) {
        error = thrown.what();
        return 1;
    }
}

// A step as one piece of memory for each table.
struct Flat {
    std::vector<CallRow> calls;
    std::vector<TensorRow> tensors;
    std::string strings;
};

thread_local Flat flat;  // of the step that the writer's thread has taken

Recorder &of(void *recorder) {
    if (recorder == nullptr) throw std::invalid_argument("there is no recorder");
    return *static_cast<Recorder *>(recorder);
}

}  // namespace

#define EXPORT extern "C" [[gnu::visibility("default")]]

EXPORT const char *torchportRecordError() noexcept { return error.c_str(); }
EXPORT const char *torchportRecordInstructions() noexcept { return instructions(); }

// level: 0 statistics, 1 tensor, 2 module, 3 calls alone. `classify` is that of Source; `wanted` may be null.
EXPORT void *torchportRecordMake(int level, int reductions, void *classify, bool (*wanted)(const char *), int outside) {
    Recorder *made = nullptr;
    guarded([&] {
        made = new Recorder(static_cast<Recorder::Level>(level), reductions != 0, classify);
        made->filter_operators(wanted);
        made->outside(outside != 0);
    });
    return made;
}
EXPORT int torchportRecordStart(void *recorder) {
    return guarded([&] { of(recorder).start(); });
}
EXPORT int torchportRecordStop(void *recorder) {
    return guarded([&] { of(recorder).stop(); });
}
EXPORT int torchportRecordClose(void *recorder) {
    return guarded([&] { of(recorder).close(); });
}
EXPORT int torchportRecordReader(void *recorder, const DeviceReader *reader) {
    return guarded([&] { of(recorder).set_reader(reader); });
}
EXPORT int torchportRecordOptimizing(void *recorder, int on) {
    return guarded([&] { of(recorder).optimizing(on != 0); });
}
EXPORT int torchportRecordOn(void *recorder, int on) {
    return guarded([&] { of(recorder).on(on != 0); });
}
EXPORT int torchportRecordQuiet(void *recorder, int begin) {
    return guarded([&] { of(recorder).quiet(begin != 0); });
}
EXPORT int torchportRecordText(void *recorder, const char *text, int32_t *number) {
    return guarded([&] { *number = of(recorder).texts().number(text); });
}
EXPORT int torchportRecordEnter(void *recorder, int32_t module, int counts) {
    return guarded([&] { of(recorder).enter_module(module, counts != 0); });
}
EXPORT int torchportRecordLeave(void *recorder) {
    return guarded([&] { of(recorder).leave_module(); });
}
EXPORT int torchportRecordName(void *recorder, void *tensor, int32_t text) {
    return guarded([&] { of(recorder).name_tensor(static_cast<c10::TensorImpl *>(tensor), text); });
}
// `storage`: a c10::StorageImpl; null for any.
EXPORT int torchportRecordWritten(void *recorder, void *storage) {
    return guarded([&] { of(recorder).written(static_cast<c10::StorageImpl *>(storage)); });
}
EXPORT int64_t torchportRecordCalls(void *recorder) {
    int64_t found = 0;
    guarded([&] { found = of(recorder).calls(); });
    return found;
}
EXPORT int torchportRecordNote(void *recorder, const char *name, int32_t module, void *const *inputs, int input_count,
                               void *const *outputs, int output_count, const char *arguments, const char *results) {
    return guarded([&] {
        const auto tensors = [](void *const *first, int count) {
            return c10::ArrayRef<c10::TensorImpl *>(reinterpret_cast<c10::TensorImpl *const *>(first),
                                                    static_cast<size_t>(count));
        };
        of(recorder).note(name, module, tensors(inputs, input_count), tensors(outputs, output_count), arguments,
                          results);
    });
}
EXPORT int torchportRecordEndStep(void *recorder, const char *name, int keep) {
    return guarded([&] { of(recorder).end_step(name, keep != 0); });
}

// What the writer's thread does next: 0 nothing more, 1 a block (`data`, `size`), 2 a step. `item` is for
// torchportRecordFree.
EXPORT int torchportRecordTake(void *recorder, void **item, const void **data, uint64_t *size) {
    int kind = 0;
    guarded([&] {
        const Item taken = of(recorder).take();
        kind = static_cast<int>(taken.kind);
        if (taken.kind == Item::kBlock) {
            *item = taken.block;
            *data = taken.block->bytes.get();
            *size = taken.block->size;
        } else if (taken.kind == Item::kStep) {
            *item = taken.step;
            flat.calls.assign(taken.step->calls.begin(), taken.step->calls.end());
            flat.tensors = taken.step->rows();
            flat.strings = taken.step->strings(of(recorder).texts());
        }
    });
    return kind;
}
// Of the step that this thread has taken: 0 calls, 1 tensors, 2 contents, 3 links, 4 dims, 5 changes, 6 strings, 7 its
// name.
EXPORT int torchportRecordTable(void *step, int which, const void **data, uint64_t *size) {
    return guarded([&] {
        const Step &one = *static_cast<Step *>(step);
        const auto give = [&](const auto &rows) {
            *data = rows.data();
            *size = rows.size() * sizeof(*rows.data());
        };
        switch (which) {
            case 0:
                return give(flat.calls);
            case 1:
                return give(flat.tensors);
            case 2:
                return give(one.contents());
            case 3:
                return give(one.links);
            case 4:
                return give(one.dims);
            case 5:
                return give(one.changes);
            case 6:
                return give(flat.strings);
            case 7:
                return give(one.name);
            default:
                throw std::invalid_argument("there is no table of that number");
        }
    });
}
EXPORT int64_t torchportRecordLost(void *step) noexcept { return static_cast<Step *>(step)->lost; }
EXPORT int torchportRecordFree(void *recorder, void *item, int kind) {
    return guarded([&] {
        if (kind == static_cast<int>(Item::kBlock)) of(recorder).free_block(static_cast<Block *>(item));
        if (kind == static_cast<int>(Item::kStep)) of(recorder).free_step(static_cast<Step *>(item));
    });
}

// The pass alone, for tests and benchmarks: eight numbers, of which the last are counts; the checksum apart.
EXPORT int torchportRecordMeasure(int dtype, const void *data, int64_t count, double *numbers, uint64_t *checksum) {
    return guarded([&] {
        const auto kind = static_cast<c10::ScalarType>(dtype);
        if (!measurable(kind)) throw std::invalid_argument("nothing measures this dtype");
        const Statistics found = measure(kind, data, count);
        const double all[] = {found.minimum,
                              found.maximum,
                              found.sum,
                              found.squares,
                              static_cast<double>(found.nans),
                              static_cast<double>(found.infinities),
                              static_cast<double>(found.zeros)};
        std::memcpy(numbers, all, sizeof all);
        *checksum = found.checksum;
    });
}
