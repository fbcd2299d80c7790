// The Python package multigrain.trace (study/multigrain/trace/__init__.py, which documents it) is built on this module,
// multigrain.trace._native. Machines, options and results cross as JSON; references and events cross as bytes that
// NumPy views.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "trace/analysis/study.h"
#include "trace/format/trace_file.h"
#include "trace/format/trace_writer.h"
#include "trace/model/optimal.h"
#include "trace/model/policy_costs.h"
#include "trace/python/arrow.h"

namespace nb = nanobind;

namespace multigrain::trace {
namespace {

using nlohmann::json;

// multigrain.trace describes these layouts to NumPy.
static_assert(sizeof(Reference) == 16 && offsetof(Reference, address) == 0 && offsetof(Reference, site) == 8 &&
              offsetof(Reference, processor) == 12 && offsetof(Reference, access) == 14 &&
              offsetof(Reference, size) == 15);
static_assert(sizeof(Event) == 40 && offsetof(Event, position) == 0 && offsetof(Event, address) == 8 &&
              offsetof(Event, value) == 16 && offsetof(Event, name) == 24 && offsetof(Event, site) == 28 &&
              offsetof(Event, processor) == 32 && offsetof(Event, kind) == 34);

// This is an Error on its way to Python, where it becomes multigrain.trace.TraceError.
class TraceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename T>
T value_of(Result<T> result) {
  if (!result) throw TraceError(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

using Bytes = nb::ndarray<nb::numpy, const uint8_t, nb::shape<-1>, nb::c_contig>;
using InputBytes = nb::ndarray<const uint8_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;

// These are bytes that Python owns.
template <typename T>
Bytes copied(std::span<const T> items) {
  auto* const memory = new uint8_t[items.size_bytes() + 1];  // never null: NumPy needs a pointer
  if (!items.empty()) std::memcpy(memory, items.data(), items.size_bytes());
  const nb::capsule owner(memory, [](void* pointer) noexcept { delete[] static_cast<uint8_t*>(pointer); });
  return Bytes(memory, {items.size_bytes()}, owner);
}

template <typename T>
std::vector<T> items_of(const InputBytes& bytes) {
  if (bytes.size() % sizeof(T) != 0) throw TraceError("the array does not hold a whole number of records");
  std::vector<T> items(bytes.size() / sizeof(T));
  if (!items.empty()) std::memcpy(items.data(), bytes.data(), bytes.size());
  return items;
}

// This is a file that is read from the beginning to the end.
class Reader {
 public:
  Reader(const std::string& path, bool partial) {
    // The file is read in this thread, because then references always lie in the same memory, which lives as long as
    // the file. Arrays that view it stay readable, whatever becomes of their contents.
    file_ = value_of(TraceFile::open(path, {.allow_partial = partial}));
  }
  [[nodiscard]] const TraceFile& file() const { return *file_; }

  // Returns (first, references, events) of the next stretch, or None. References are not copied.
  static nb::object next(nb::handle self) {
    auto& reader = nb::cast<Reader&>(self);
    const Batch batch = reader.next_batch();
    if (batch.references.empty() && batch.events.empty()) return nb::none();
    static const uint8_t nothing = 0;
    const auto* const data =
        batch.references.empty() ? &nothing : reinterpret_cast<const uint8_t*>(batch.references.data());
    return nb::make_tuple(batch.first, nb::cast(Bytes(data, {batch.references.size_bytes()}, self)),
                          nb::cast(copied(batch.events)));
  }

  // Returns the same of at least `wanted` references, if there are as many, in memory of its own.
  nb::object read(uint64_t wanted) {
    std::vector<Reference> references;
    std::vector<Event> events;
    uint64_t first = 0;
    {
      const nb::gil_scoped_release others_may_run;
      while (references.size() < wanted) {
        const Batch batch = next_batch();
        if (batch.references.empty() && batch.events.empty()) break;
        if (references.empty() && events.empty()) first = batch.first;
        references.insert(references.end(), batch.references.begin(), batch.references.end());
        events.insert(events.end(), batch.events.begin(), batch.events.end());
      }
    }
    if (references.empty() && events.empty()) return nb::none();
    return nb::make_tuple(first, nb::cast(copied(std::span<const Reference>(references))),
                          nb::cast(copied(std::span<const Event>(events))));
  }

 private:
  Batch next_batch() {
    // Iterators in several threads have readers of their own. The use of one reader in two threads at once is refused,
    // so it is no race.
    if (!mutex_.try_lock()) throw TraceError("the trace is being read by another thread; open it once for each");
    const LockGuard lock(mutex_, std::adopt_lock);
    return value_of(file_->next());
  }

  std::unique_ptr<TraceFile> file_;  // read only with the mutex held
  Mutex mutex_;
};

OpenTrace opener(std::string path, bool partial) {
  return [path = std::move(path), partial]() -> Result<std::unique_ptr<TraceSource>> {
    auto file = TraceFile::open(path, {.threads = 1, .allow_partial = partial});
    if (!file) return tl::unexpected(file.error());
    return std::unique_ptr<TraceSource>(std::move(*file));
  };
}

// Takes a machine's name, or the machine itself as in a machine file.
Machine machine_of(const json& machine) {
  if (machine.is_string()) return value_of(find_machine(machine.get<std::string>()));
  return value_of(machine_from_json(machine));
}

// Returns the machines of a trace; the model has at least two processors.
std::vector<Machine> machines_of(const json& machines, unsigned processors) {
  std::vector<Machine> out;
  for (const json& machine : machines) {
    out.push_back(machine_of(machine));
    if (out.back().processors == 0) out.back().processors = std::max(2u, processors);
  }
  return out;
}

template <typename R>
json result_json(const R& result, std::string policy) {
  json hot = json::array();
  for (const BlockCost& block : result.hot)
    hot.push_back({{"address", block.block * result.machine.block_size},
                   {"references", block.references},
                   {"cost", block.cost},
                   {"moves", block.moves}});
  auto number = [](double value) { return std::isfinite(value) ? json(value) : json(nullptr); };
  return {{"machine", to_json(result.machine)},
          {"policy", std::move(policy)},
          {"cost", number(result.cost)},
          {"mcpr", number(result.mcpr)},
          {"parts", parts_json(result.parts)},
          {"references", result.references},
          {"private_references", result.private_references},
          {"blocks", result.blocks},
          {"hot", hot}};
}

std::string optimal_of(const std::string& path, const std::string& machines, bool replication, bool single_start,
                       unsigned hot_blocks, unsigned threads, bool partial) {
  json out = json::array();
  const nb::gil_scoped_release others_may_run;
  const auto source = value_of(opener(path, partial)());
  OptimalOptions options;
  options.replication = replication;
  options.single_start = single_start;
  options.hot_blocks = hot_blocks;
  options.threads = std::max(1u, threads);
  const auto list = machines_of(json::parse(machines), source->header().processors);
  for (const OptimalResult& result : value_of(optimal(*source, list, options)))
    out.push_back(result_json(result, "optimal"));
  return out.dump();
}

// This says where a Python policy wants a block; from 0 on, at that processor, without other copies.
constexpr int64_t kStay = -1, kLocal = -2, kGlobal = -3;

// This is what a Python policy sees of a block. It is copied, so that the policy may keep it.
struct BlockView {
  uint64_t number = 0;
  unsigned processors = 0;
  bool in_global = false;
  std::vector<uint64_t> copies;

  explicit BlockView(const BlockState& state)
      : number(state.block),
        processors(state.places),
        in_global(state.in_global),
        copies(state.copies.begin(), state.copies.end()) {}
  [[nodiscard]] bool has_copy(uint64_t processor) const {
    return processor < processors && ((copies[processor / 64] >> (processor % 64)) & 1) != 0;
  }
  [[nodiscard]] std::vector<unsigned> holders() const {
    std::vector<unsigned> out;
    for (unsigned processor = 0; processor < processors; ++processor)
      if (has_copy(processor)) out.push_back(processor);
    return out;
  }
};

// This is a policy whose decisions a Python object makes.
class PythonPolicy final : public Policy {
 public:
  // The caller has the interpreter's lock, as the destructor's caller has.
  PythonPolicy(nb::object policy, std::string name)
      : policy_(std::move(policy)), name_(std::move(name)), wants_local_(nb::cast<bool>(policy_.attr("wants_local"))) {}

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] bool wants_local() const override { return wants_local_; }
  Decision first(BlockState& block, const placement::Reference& reference) override {
    return ask("first", block, reference);
  }
  Decision on_reference(BlockState& block, const placement::Reference& reference) override {
    return ask("on_reference", block, reference);
  }
  // Raises the exception in Python that a decision has raised.
  void check() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  Decision ask(const char* method, const BlockState& block, const placement::Reference& reference) {
    if (error_) return Decision::stay();  // the evaluation goes on for nothing, because exceptions cannot cross it
    const nb::gil_scoped_acquire interpreter;
    try {
      const Reference& traced = static_cast<const TracedReference&>(reference).traced;
      const auto answer = nb::cast<int64_t>(policy_.attr(method)(BlockView(block), traced, reference.time));
      if (answer == kStay) return Decision::stay();
      if (answer == kLocal) return Decision::local();
      if (answer == kGlobal) return Decision::global();
      if (answer >= 0 && answer < block.places) return Decision::move(static_cast<ProcessorId>(answer));
      throw TraceError(
          fmt::format("{}() of the policy '{}' returned {}: return STAY, LOCAL, GLOBAL or a processor below {}", method,
                      name_, answer, block.places));
    } catch (const nb::cast_error&) {
      error_ = std::make_exception_ptr(TraceError(fmt::format(
          "{}() of the policy '{}' returned no decision: return STAY, LOCAL, GLOBAL or a processor", method, name_)));
    } catch (...) {
      error_ = std::current_exception();
    }
    return Decision::stay();
  }

  nb::object policy_;
  std::string name_;
  bool wants_local_;
  std::exception_ptr error_;
};

// These are names, or objects of Python, on every machine on which they mean something.
std::string evaluate_policies(const std::string& path, const std::string& machines,
                              const std::vector<nb::object>& policies, unsigned hot_blocks, unsigned threads,
                              bool partial) {
  std::vector<PolicyRun> runs;
  std::vector<std::string> names;
  std::vector<std::shared_ptr<PythonPolicy>> python;
  const auto source = value_of(opener(path, partial)());
  for (const Machine& machine : machines_of(json::parse(machines), source->header().processors)) {
    for (const nb::object& policy : policies) {
      PolicyRun run{.machine = machine, .policy = nullptr};
      if (nb::isinstance<nb::str>(policy)) {
        names.push_back(nb::cast<std::string>(policy));
        run.policy = value_of(make_policy(names.back(), machine));
        if (!policy_suits(names.back(), machine)) {
          names.pop_back();
          continue;
        }
      } else {
        names.push_back(nb::cast<std::string>(nb::str(policy.attr("name"))));
        // Returns a policy that begins anew, because it may be evaluated on several machines.
        python.push_back(std::make_shared<PythonPolicy>(policy.attr("fresh")(), names.back()));
        run.policy = python.back();
      }
      runs.push_back(std::move(run));
    }
  }
  std::vector<PolicyResult> results;
  {
    const nb::gil_scoped_release others_may_run;
    PolicyOptions options;
    options.hot_blocks = hot_blocks;
    options.threads = std::max(1u, threads);
    results = value_of(evaluate(*source, runs, options));
  }
  for (const auto& policy : python) policy->check();
  json out = json::array();
  for (size_t i = 0; i < results.size(); ++i) out.push_back(result_json(results[i], names[i]));
  return out.dump();
}

std::string study_of(const std::string& path, const std::string& text, bool partial) {
  const nb::gil_scoped_release others_may_run;
  const json wanted = json::parse(text);
  StudyOptions options;
  for (const json& machine : wanted.at("machines")) options.machines.push_back(machine_of(machine));
  if (options.machines.empty()) options.machines = default_machines();
  options.block_sizes = wanted.at("block_sizes").get<std::vector<uint64_t>>();
  options.policies = wanted.at("policies").get<std::vector<std::string>>();
  options.parameters = wanted.at("parameters").get<std::vector<std::string>>();
  for (const json& design : wanted.at("tlbs"))
    options.tlbs.push_back(value_of(parse_tlb_design(design.get<std::string>())));
  options.false_sharing = wanted.at("false_sharing").get<bool>();
  options.attribution_block_size = wanted.at("attribution_block_size").get<uint64_t>();
  options.word_bytes = wanted.at("word_bytes").get<unsigned>();
  options.perturbations = wanted.at("perturbations").get<unsigned>();
  options.seed = wanted.at("seed").get<uint64_t>();
  options.hot_blocks = wanted.at("hot_blocks").get<unsigned>();
  options.map = wanted.at("map").get<std::string>();
  options.variable_blocks = wanted.at("variable_blocks").get<bool>();
  options.contention = wanted.at("contention").get<bool>();
  options.caches =
      value_of(parse_caches(wanted.at("caches").get<std::string>(), wanted.at("cache_line").get<uint64_t>()));
  options.threads = std::max(1u, wanted.at("threads").get<unsigned>());
  json out = value_of(study(opener(path, partial), options));
  out["trace"]["file"] = path;
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

void write(const std::string& path, const std::string& header_text, const InputBytes& reference_bytes,
           const InputBytes& event_bytes, bool overwrite) {
  const json given = json::parse(header_text);
  TraceHeader header;
  header.processors = given.at("processors").get<unsigned>();
  header.program = given.at("program").get<std::string>();
  header.recorder = given.at("recorder").get<std::string>();
  header.dilation = given.at("dilation").get<double>();
  for (const json& site : given.at("sites"))
    header.sites.push_back({site.at(0).get<std::string>(), site.at(1).get<std::string>(), site.at(2).get<uint32_t>(),
                            site.at(3).get<SiteId>()});
  header.names = given.at("names").get<std::vector<std::string>>();
  const auto references = items_of<Reference>(reference_bytes);
  const auto events = items_of<Event>(event_bytes);
  for (const Reference& reference : references)
    if (reference.access != Access::kRead && reference.access != Access::kWrite)
      throw TraceError("a reference's access is neither 0 (read) nor 1 (write)");
  for (const Event& event : events)
    if (event.kind > EventKind::kEnd) throw TraceError("an event has a kind that there is not");
  const nb::gil_scoped_release others_may_run;
  const auto writer = value_of(TraceWriter::create(path, std::move(header), {.overwrite = overwrite}));
  size_t done = 0;
  for (const Event& event : events) {
    if (event.position < done || event.position > references.size())
      throw TraceError(
          fmt::format("an event's position {} is out of order or behind the last reference", event.position));
    value_of(writer->append(std::span(references).subspan(done, event.position - done)));
    done = event.position;
    value_of(writer->append(event));
  }
  value_of(writer->append(std::span(references).subspan(done)));
  value_of(writer->finish());
}

// Returns a capsule that holds an Arrow stream of the trace's references or events. The consumer that takes the stream
// out empties it.
nb::capsule arrow_stream(const std::string& path, bool partial, bool events) {
  auto source = value_of(opener(path, partial)());
  auto stream = std::make_unique<ArrowArrayStream>();
  make_arrow_stream(std::move(source), events ? ArrowRows::kEvents : ArrowRows::kReferences, stream.get());
  return {stream.release(), "arrow_array_stream", [](void* pointer) noexcept {
            auto* const held = static_cast<ArrowArrayStream*>(pointer);
            if (held->release != nullptr) held->release(held);
            delete held;
          }};
}

nb::list sites_of(const Reader& reader) {
  nb::list out;
  for (const Site& site : reader.file().header().sites)
    out.append(nb::make_tuple(site.file, site.function, site.line, site.caller));
  return out;
}

}  // namespace

NB_MODULE(_native, m) {
  nb::exception<TraceError>(m, "TraceError", PyExc_ValueError);
  m.attr("STAY") = kStay;
  m.attr("LOCAL") = kLocal;
  m.attr("GLOBAL") = kGlobal;

  nb::class_<Reader>(m, "Reader")
      .def(nb::init<const std::string&, bool>())
      .def_prop_ro("processors", [](const Reader& reader) { return reader.file().header().processors; })
      .def_prop_ro("program", [](const Reader& reader) { return reader.file().header().program; })
      .def_prop_ro("recorder", [](const Reader& reader) { return reader.file().header().recorder; })
      .def_prop_ro("dilation", [](const Reader& reader) { return reader.file().header().dilation; })
      .def_prop_ro("scale", [](const Reader& reader) { return reader.file().header().sampling.scale; })
      .def_prop_ro("names", [](const Reader& reader) { return reader.file().header().names; })
      .def_prop_ro("sites", sites_of)
      .def_prop_ro("references", [](const Reader& reader) { return reader.file().references(); })
      .def_prop_ro("events", [](const Reader& reader) { return reader.file().events(); })
      .def_prop_ro("bytes", [](const Reader& reader) { return reader.file().file_bytes(); })
      .def_prop_ro("damage", [](const Reader& reader) { return reader.file().damage(); })
      .def_static("next", &Reader::next)
      .def("read", &Reader::read);

  nb::class_<BlockView>(m, "Block")
      .def_ro("number", &BlockView::number)
      .def_ro("processors", &BlockView::processors)
      .def_ro("in_global", &BlockView::in_global)
      .def_prop_ro("holders", &BlockView::holders)
      .def("has_copy", &BlockView::has_copy);
  nb::class_<Reference>(m, "Reference")
      .def_ro("address", &Reference::address)
      .def_ro("site", &Reference::site)
      .def_ro("processor", &Reference::processor)
      .def_ro("size", &Reference::size)
      .def_prop_ro("write", [](const Reference& reference) { return reference.access == Access::kWrite; });

  m.def("optimal", optimal_of);
  m.def("evaluate", evaluate_policies);
  m.def("study", study_of);
  m.def("write", write);
  m.def("arrow_stream", arrow_stream);
  m.def("policy_names", policy_names);
  m.def("known_machines", [] {
    json out = json::array();
    for (const Machine& machine : known_machines()) out.push_back(to_json(machine));
    return out.dump();
  });
  m.def("machine", [](const std::string& text) { return to_json(machine_of(json::parse(text))).dump(); });
}

}  // namespace multigrain::trace
