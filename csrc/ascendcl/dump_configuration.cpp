// aclmdlInitDump, aclmdlSetDump, aclmdlFinalizeDump: when there is a dump, and what its configuration file may say.
#include <acl/acl_rt.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <utility>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "ascendcl/configuration.h"
#include "ascendcl/dump.h"

using namespace vnpu;
using acl::Error;
using acl::Json;

namespace {

std::atomic<bool> initialized{false};  // between aclmdlInitDump and aclmdlFinalizeDump

// The object "dump" of a configuration file, whose members are asked for by name.
class Configuration {
  public:
    explicit Configuration(const char *path) : path_(path) {
        document_ = acl::read_configuration(path_);
        const Json *dump = acl::member(&document_, "dump");
        members_ = dump == nullptr ? nullptr : std::get_if<Json::Object>(dump);
        if (members_ == nullptr) refuse("has no object \"dump\"");
    }

    [[noreturn]] void refuse(std::string_view reason) const {
        throw Error(ACL_ERROR_INVALID_DUMP_CONFIG, fmt::format("The dump's configuration {} {}.", path_, reason));
    }

    // One of `allowed`, the first where the file does not say.
    std::string choice(const std::string &name, std::initializer_list<std::string_view> allowed) const {
        const std::string value = text(name, *allowed.begin());
        for (const std::string_view each : allowed)
            if (value == each) return value;
        refuse(fmt::format("has {} \"{}\"; the virtual NPU offers {}", name, value, fmt::join(allowed, ", ")));
    }

    std::string text(const std::string &name, std::string_view otherwise) const {
        const auto found = members_->find(name);
        if (found == members_->end()) return std::string(otherwise);
        if (const auto *value = std::get_if<std::string>(&found->second)) return *value;
        refuse(fmt::format("has {} that is no string", name));
    }

    void only(std::initializer_list<std::string_view> names) const {
        for (const auto &[name, value] : *members_) {
            bool known = false;
            for (const std::string_view each : names) known = known || name == each;
            if (!known) refuse(fmt::format("sets {}; the virtual NPU offers {}", name, fmt::join(names, ", ")));
        }
        const auto models = members_->find("dump_list");
        if (models == members_->end()) return;
        const auto *list = std::get_if<Json::List>(&models->second);
        if (list == nullptr || !list->empty())
            refuse("has a dump_list that is not empty; the virtual NPU runs single operators, not models");
    }

  private:
    std::string path_;
    Json document_;
    const Json::Object *members_ = nullptr;
};

// The dump that the file asks for; null when it switches it off.
std::shared_ptr<acl::Dump> dump_of(const char *file) {
    const Configuration wanted(file);
    wanted.only({"dump_list", "dump_path", "dump_mode", "dump_op_switch", "dump_data", "dump_level"});
    const std::string mode = wanted.choice("dump_mode", {"output", "input", "all"});
    wanted.choice("dump_data", {"tensor"});
    wanted.choice("dump_level", {"all", "op", "kernel"});  // the same here: an operator is one kernel
    if (wanted.choice("dump_op_switch", {"off", "on"}) == "off") return nullptr;
    const std::string path = wanted.text("dump_path", "");
    if (path.empty()) wanted.refuse("has no dump_path");
    try {
        return std::make_shared<acl::Dump>(path, mode != "output", mode != "input");
    } catch (const std::filesystem::filesystem_error &error) {
        wanted.refuse(fmt::format("has a dump_path that cannot be used ({})", error.what()));
    }
}

void require_initialized() {
    if (!initialized) throw Error(ACL_ERROR_DUMP_NOT_RUN, "No dump is open: aclmdlInitDump comes first.");
}

// torch_npu 2.13 ignores what these functions return: without this a program would wait for files that never come.
template <class Body>
void report_failure(Body body) {
    try {
        body();
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "torchport: %s\n", failure.what());
        throw;
    }
}

}  // namespace

aclError aclmdlInitDump() {
    return VNPU_API() {
        report_failure([] {
            if (initialized.exchange(true))
                throw Error(ACL_ERROR_DUMP_ALREADY_RUN, "A dump is open already: aclmdlFinalizeDump ends it.");
        });
    };
}

// A second configuration takes the place of the first.
aclError aclmdlSetDump(const char *dumpCfgPath) {
    return VNPU_API(dumpCfgPath) {
        report_failure([&] {
            acl::not_null(dumpCfgPath, "dumpCfgPath");
            require_initialized();
            std::shared_ptr<acl::Dump> dump = dump_of(dumpCfgPath);
            acl::Dump::end();
            if (dump != nullptr) acl::Dump::begin(std::move(dump));
        });
    };
}

aclError aclmdlFinalizeDump() {
    return VNPU_API() {
        report_failure([] {
            require_initialized();
            initialized = false;
            acl::Dump::end();
        });
    };
}
