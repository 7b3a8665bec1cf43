// Notes every operator that torch's dispatcher is asked for, while it is on.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "record/arguments.h"
#include "record/devices.h"
#include "record/source.h"
#include "record/tables.h"

namespace torchport::record {

inline constexpr const char *kWrittenLater = "it is written by another thread";

enum Phase : int32_t { kForward, kBackward, kOptimizer, kRecompute };

struct Operator;
struct ActiveCall;
struct Elements;

// Storages and tensors that this step has seen. No reference is kept that would keep memory alive.
class Known {
  public:
    struct Storage {
        c10::weak_intrusive_ptr<c10::StorageImpl> held;  // its address is not given out again while this stands
        int64_t number = 0, generation = 0;
        bool awaited = false;  // another thread writes it until somebody waits for it
    };
    Storage &storage(const at::Tensor &tensor);
    void written(c10::StorageImpl *storage);
    // A functional collective has begun to write it, or was waited for.
    void begin_writing(const at::Tensor &tensor);
    void finish_writing(const at::Tensor &tensor);
    // The row of a tensor with this identity; -1 for a new one, whose row is then `row`.
    int32_t find(const at::Tensor &tensor, const Storage &storage, int32_t row);
    // The same for the bytes that it has, in whatever order of dimensions, where they lie side by side.
    int32_t find_bytes(const at::Tensor &tensor, const Elements &elements, int32_t row);
    // Whether memory is there still that had this number, and no recorded call has written it since.
    bool stands(c10::StorageImpl *storage, int64_t number, int64_t generation) const;
    // Anything may have been written: a graph has run.
    void written_anywhere();
    void forget();

  private:
    struct Identity {
        uint64_t first = 0x243F6A8885A308D3, second = 0x13198A2E03707344;
        void add(uint64_t value) noexcept;
        bool operator==(const Identity &) const = default;
    };
    struct Hash {
        size_t operator()(const Identity &one) const noexcept { return one.first; }
    };
    std::unordered_map<c10::StorageImpl *, Storage> storages_;
    std::unordered_map<Identity, int32_t, Hash> rows_, bytes_;
    int64_t next_ = 0;
};

// What the writer's thread is to do next.
struct Item {
    enum Kind { kEnd, kBlock, kStep } kind = kEnd;
    Block *block = nullptr;
    Step *step = nullptr;
};

class Recorder {
  public:
    enum class Level { Statistics, Tensor, Module, Calls };  // Calls: no tensor is looked into
    struct Check;
    Recorder(Level level, bool reductions, void *classify);
    ~Recorder();

    void start();
    void stop();
    void close();
    void set_reader(const DeviceReader *reader) noexcept { reader_.store(reader); }
    void optimizing(bool on) noexcept { optimizing_.store(on); }
    // Whether calls are noted at all now.
    void on(bool yes) noexcept { on_.store(yes); }
    // Only operators for which `filter` (a callable of Python's: name -> bool) says so; all without.
    void filter_operators(bool (*wanted)(const char *name)) noexcept { wanted_ = wanted; }
    // Whether operators outside of any module count, where modules are filtered.
    void outside(bool counts) noexcept { outside_ = counts; }

    Texts &texts() noexcept { return texts_; }
    void enter_module(int32_t text, bool counts);
    void leave_module();
    void quiet(bool begin) noexcept;
    void name_tensor(c10::TensorImpl *tensor, int32_t text);
    // Memory was written by no operator: a storage was resized, or (null) a graph that was captured runs again.
    void written(c10::StorageImpl *storage);
    int64_t calls();
    // A call that no operator made: what a module was given and gave.
    void note(std::string_view name, int32_t module, c10::ArrayRef<c10::TensorImpl *> inputs,
              c10::ArrayRef<c10::TensorImpl *> outputs, std::string_view arguments, std::string_view results);

    void end_step(std::string name, bool keep);
    Item take();
    void free_step(Step *step);
    void free_block(Block *block);

    std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction &function);
    void end(const at::RecordFunction &function, ActiveCall &call);

  private:
    struct Batch;
    bool noted(const Operator &known, const at::RecordFunction &function) const;
    void identify(ActiveCall &call, const at::RecordFunction &function);
    // As they are behind the call `after`; what `checks` names is looked at again.
    std::vector<int32_t> look_at(const std::shared_ptr<Step> &step, const Tensors &tensors, const char *reason,
                                 int32_t after, std::vector<Check> checks = {});
    void remember_inputs(ActiveCall &call, const Tensors &tensors, const std::vector<int32_t> &rows, size_t before);
    std::vector<Check> choose_checks(ActiveCall &call);
    void verify(const Batch &batch, const Check &check, const void *data);
    void follow_results(const ActiveCall &call, const Tensors &tensors, const std::vector<int32_t> &rows);
    void follow_collective(const Operator &known, const Tensors &results);
    int32_t look_at(const std::shared_ptr<Step> &step, const at::Tensor &tensor, const char *reason, int32_t after,
                    std::unique_ptr<Batch> &later);
    void fill(const std::shared_ptr<Step> &step, TensorRow &row, int32_t number, const at::Tensor &tensor,
              int32_t after, std::unique_ptr<Batch> &later);
    void measure_into(Step &step, TensorRow &row, const Elements &elements, const void *data);
    void submit(std::unique_ptr<Batch> batch);
    void explain(Step &step, TensorRow &row, const char *reason);
    void require_open(const Step &step) const;  // with mutex_; throws
    void reduce(const std::shared_ptr<Step> &step, TensorRow &row, const at::Tensor &tensor);
    void read_reductions();
    static int &local_quiet() noexcept;
    void release(Step &step);
    // A step that somebody adds to: until its end the writer leaves it alone.
    struct Adding {
        Recorder &recorder;
        const std::shared_ptr<Step> step;
        ~Adding() { recorder.release(*step); }
    };
    Adding adding();
    void wait_for_room();
    static void seen(void *data, const void *const *views) noexcept;

    const int number_;  // how many there were before in this process
    const Level level_;
    const bool reductions_;
    Texts texts_;
    Source source_;
    std::atomic<bool> on_{true};
    std::atomic<bool> optimizing_{false};
    std::atomic<const DeviceReader *> reader_{nullptr};
    bool (*wanted_)(const char *name) = nullptr;
    bool outside_ = true;
    at::CallbackHandle handle_ = 0;
    bool started_ = false;

    std::atomic<int64_t> lost_{0};

    std::mutex mutex_;  // of what follows
    std::shared_ptr<Step> step_;
    Known known_;
    struct Where {
        int32_t module, function, source;
    };
    std::unordered_map<int64_t, Where> forwards_;  // by autograd's number
    // Whose results were written over in some step. In later steps they are looked at behind each call, which says
    // what ran meanwhile.
    struct Suspect {
        int32_t operator_name, module, source;
        bool operator==(const Suspect &) const = default;
    };
    std::vector<Suspect> suspects_;
    std::vector<Check> followed_;
    struct Named {
        std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> held;
        std::vector<std::pair<int64_t, int32_t>> at;  // offset, text
    };
    std::unordered_map<const c10::StorageImpl *, Named> names_;
    struct Reduced {
        std::shared_ptr<Step> step;
        TensorRow *row;
        int64_t elements;
        at::Tensor values;
    };
    std::vector<Reduced> reduced_;

    std::mutex queue_mutex_;
    std::condition_variable queue_changed_;
    std::deque<std::shared_ptr<Step>> queue_;  // in order; the last one is that which grows
    std::shared_ptr<Step> taken_;              // by the writer's thread
    std::atomic<int64_t> waiting_bytes_{0};
    bool closed_ = false;
};

}  // namespace torchport::record
