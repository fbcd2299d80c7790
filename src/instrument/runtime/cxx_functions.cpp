// These are wrappers of the C++ library's functions that are not defined in headers, so that they have no checks.
// Their names are the library's mangled names behind the prefix. Their parameters are part of the binary
// interface of libstdc++.
#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstdarg>
#include <cstddef>
#include <ctime>
#include <istream>
#include <iterator>
#include <locale>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <typeinfo>
#include <unordered_map>

#include "instrument/runtime/entry.h"
#include "instrument/runtime/memory_functions.h"
#include "instrument/runtime/private_copies.h"

using namespace multigrain::checks;

// These declare a wrapper, and the library's own function.
#define MG_CXX_ENTRY(declaration, symbol) MG_ENTRY declaration __asm__("__multigrain_" symbol)
#define MG_CXX_REAL(declaration, symbol) extern "C" declaration __asm__(symbol)

// --- dynamic_cast

namespace {

// The library reads the virtual table pointers of an object and of its parts. The wrapper passes a private object that
// has only these pointers, at the same distances.
class VirtualPointers {
 public:
  explicit VirtualPointers(const void* object) {
    const auto at = static_cast<const char*>(object);
    const auto* const table = note(at);
    const ptrdiff_t to_whole = reinterpret_cast<const ptrdiff_t*>(table)[-2];
    const auto* const type = reinterpret_cast<const abi::__class_type_info* const*>(table)[-1];
    note(at + to_whole);
    visit(type, at + to_whole);
    begin_ = tables_.begin()->first;
    copy_ = std::make_unique<char[]>(static_cast<size_t>(tables_.rbegin()->first - begin_) + sizeof(void*));
    for (const auto& [place, pointer] : tables_)
      std::memcpy(&copy_[static_cast<size_t>(place - begin_)], &pointer, sizeof pointer);
  }
  [[nodiscard]] const void* copy_of(const void* at) const {
    return copy_.get() + (static_cast<const char*>(at) - begin_);
  }
  [[nodiscard]] void* original(const void* at) const {
    return at == nullptr ? nullptr : const_cast<char*>(begin_) + (static_cast<const char*>(at) - copy_.get());
  }

 private:
  const char* note(const char* at) {
    const auto known = tables_.find(at);
    if (known != tables_.end()) return known->second;
    return tables_[at] = load_shared(reinterpret_cast<const char* const*>(at));
  }
  // The library reads a part's own pointer only to find a virtual base.
  void visit(const abi::__class_type_info* type, const char* at) {
    if (const auto* const single = dynamic_cast<const abi::__si_class_type_info*>(type)) {
      visit(single->__base_type, at);
    } else if (const auto* const several = dynamic_cast<const abi::__vmi_class_type_info*>(type)) {
      for (unsigned i = 0; i < several->__base_count; ++i) {
        const abi::__base_class_type_info& base = several->__base_info[i];
        ptrdiff_t offset = base.__offset();
        if (base.__is_virtual_p()) std::memcpy(&offset, note(at) + offset, sizeof offset);
        visit(base.__base_type, at + offset);
      }
    }
  }

  std::map<const char*, const char*> tables_;
  const char* begin_ = nullptr;
  std::unique_ptr<char[]> copy_;
};

}  // namespace

MG_CXX_ENTRY(void* cast(const void* object, const abi::__class_type_info* from, const abi::__class_type_info* to,
                        ptrdiff_t hint),
             "__dynamic_cast");
void* cast(const void* object, const abi::__class_type_info* from, const abi::__class_type_info* to, ptrdiff_t hint) {
  if (!is_shared(object)) return abi::__dynamic_cast(object, from, to, hint);
  const VirtualPointers pointers(object);
  return pointers.original(abi::__dynamic_cast(pointers.copy_of(object), from, to, hint));
}

// --- Hashes

MG_CXX_ENTRY(size_t hash(const void* bytes, size_t size, size_t seed), "_ZSt11_Hash_bytesPKvmm");
size_t hash(const void* bytes, size_t size, size_t seed) {
  return std::_Hash_bytes(InBytes(bytes, size), size, seed);
}
MG_CXX_ENTRY(size_t fnv_hash(const void* bytes, size_t size, size_t seed), "_ZSt15_Fnv_hash_bytesPKvmm");
size_t fnv_hash(const void* bytes, size_t size, size_t seed) {
  return std::_Fnv_hash_bytes(InBytes(bytes, size), size, seed);
}

// --- Numbers and text

namespace {

template <typename... Number>
std::to_chars_result write_number(char* first, char* last, Number... number_and_how) {
  const auto size = static_cast<size_t>(last - first);
  if (first > last || !touches_shared(first, size)) return std::to_chars(first, last, number_and_how...);
  const InOutBytes text(first, size);
  char* const begin = text;
  std::to_chars_result result = std::to_chars(begin, begin + size, number_and_how...);
  result.ptr = first + (result.ptr - begin);
  return result;
}

template <typename Number>
std::from_chars_result read_number(const char* first, const char* last, Number& number, std::chars_format format) {
  const InBytes text(first, static_cast<size_t>(last - first));
  const InOutBytes value = in_out(&number);
  const char* const begin = text;
  Number* const result_place = value;
  std::from_chars_result result = std::from_chars(begin, begin + (last - first), *result_place, format);
  result.ptr = first + (result.ptr - begin);
  return result;
}

}  // namespace

#define MG_NUMBERS(letter, T)                                                                                          \
  MG_CXX_ENTRY(std::to_chars_result to_chars_##letter(char* first, char* last, T value), "_ZSt8to_charsPcS_" #letter); \
  std::to_chars_result to_chars_##letter(char* first, char* last, T value) {                                           \
    return write_number(first, last, value);                                                                           \
  }                                                                                                                    \
  MG_CXX_ENTRY(                                                                                                        \
      std::to_chars_result to_chars_##letter##_as(char* first, char* last, T value, std::chars_format format),         \
      "_ZSt8to_charsPcS_" #letter "St12chars_format");                                                                 \
  std::to_chars_result to_chars_##letter##_as(char* first, char* last, T value, std::chars_format format) {            \
    return write_number(first, last, value, format);                                                                   \
  }                                                                                                                    \
  MG_CXX_ENTRY(std::to_chars_result to_chars_##letter##_by(char* first, char* last, T value, std::chars_format format, \
                                                           int precision),                                             \
               "_ZSt8to_charsPcS_" #letter "St12chars_formati");                                                       \
  std::to_chars_result to_chars_##letter##_by(char* first, char* last, T value, std::chars_format format,              \
                                              int precision) {                                                         \
    return write_number(first, last, value, format, precision);                                                        \
  }                                                                                                                    \
  MG_CXX_ENTRY(std::from_chars_result from_chars_##letter(const char* first, const char* last, T& value,               \
                                                          std::chars_format format),                                   \
               "_ZSt10from_charsPKcS0_R" #letter "St12chars_format");                                                  \
  std::from_chars_result from_chars_##letter(const char* first, const char* last, T& value,                            \
                                             std::chars_format format) {                                               \
    return read_number(first, last, value, format);                                                                    \
  }
MG_NUMBERS(f, float)
MG_NUMBERS(d, double)
MG_NUMBERS(e, long double)

// --- Words and lines from streams. The library has compiled their forms for char.

namespace {

// The members of an object of std::string.
struct StringFields {
  char* characters;
  size_t size;
  union {
    char own[16];
    size_t capacity;
  };
};
static_assert(sizeof(StringFields) == sizeof(std::string));

bool is_shared(const std::string& string) {
  return multigrain::checks::is_shared(static_cast<const void*>(&string)) ||
         multigrain::checks::is_shared(static_cast<const void*>(string.data()));
}

// Assigns `text` to `string` with checked accesses.
void assign(std::string& string, const std::string& text) {
  auto* const object = reinterpret_cast<StringFields*>(&string);
  const StringFields now = load_shared(object);
  const bool is_own = now.characters == object->own;
  char* characters = now.characters;
  if (text.size() > (is_own ? sizeof now.own - 1 : now.capacity)) {
    characters = static_cast<char*>(::operator new(text.size() + 1));
    if (!is_own) ::operator delete(now.characters);
    store_shared(&object->characters, characters);
    store_shared(&object->capacity, text.size());
  }
  __multigrain_memcpy(characters, text.c_str(), text.size() + 1);
  store_shared(&object->size, text.size());
}

}  // namespace

#define MG_GET_CHARACTERS "_ZNSi7getlineEPclc"
MG_CXX_REAL(std::istream& library_get_characters(std::istream& from, char* to, std::streamsize size, char end),
            MG_GET_CHARACTERS);
MG_CXX_ENTRY(std::istream& get_characters(std::istream& from, char* to, std::streamsize size, char end),
             MG_GET_CHARACTERS);
std::istream& get_characters(std::istream& from, char* to, std::streamsize size, char end) {
  return library_get_characters(from, InOutBytes(to, size > 0 ? static_cast<size_t>(size) : 0), size, end);
}
#define MG_EXTRACT "_ZSt17__istream_extractRSiPcl"
MG_CXX_REAL(void library_extract(std::istream& from, char* to, std::streamsize size), MG_EXTRACT);
MG_CXX_ENTRY(void extract(std::istream& from, char* to, std::streamsize size), MG_EXTRACT);
void extract(std::istream& from, char* to, std::streamsize size) {
  constexpr std::streamsize kKnown = 1 << 16;
  if (!multigrain::checks::is_shared(static_cast<const void*>(to))) return library_extract(from, to, size);
  if (size <= kKnown)
    return library_extract(from, InOutBytes(to, static_cast<size_t>(std::max<std::streamsize>(size, 0))), size);
  // If the program passed a pointer, the library does not know how much room there is.
  std::string word;
  from >> word;
  __multigrain_memcpy(to, word.c_str(), word.size() + 1);
}
#define MG_GETLINE \
  "_ZSt7getlineIcSt11char_traitsIcESaIcEERSt13basic_istreamIT_T0_ES7_RNSt7__cxx1112basic_stringIS4_S5_T1_EES4_"
MG_CXX_ENTRY(std::istream& get_line(std::istream& from, std::string& to, char end), MG_GETLINE);
std::istream& get_line(std::istream& from, std::string& to, char end) {
  if (!is_shared(to)) return std::getline(from, to, end);
  std::string line;
  const bool read = static_cast<bool>(from);
  std::getline(from, line, end);
  if (read) assign(to, line);
  return from;
}
#define MG_WORD "_ZStrsIcSt11char_traitsIcESaIcEERSt13basic_istreamIT_T0_ES7_RNSt7__cxx1112basic_stringIS4_S5_T1_EE"
MG_CXX_ENTRY(std::istream& get_word(std::istream& from, std::string& to), MG_WORD);
std::istream& get_word(std::istream& from, std::string& to) {
  if (!is_shared(to)) return from >> to;
  std::string word;
  const bool read = static_cast<bool>(from);
  from >> word;
  if (read) assign(to, word);
  return from;
}

// --- Exceptions. Their constructors copy the text.

#define MG_FROM_TEXT(symbol)                                                  \
  MG_CXX_REAL(void library_##symbol(void* self, const char* text), #symbol);  \
  MG_CXX_ENTRY(void checked_##symbol(void* self, const char* text), #symbol); \
  void checked_##symbol(void* self, const char* text) {                       \
    library_##symbol(self, Text(text));                                       \
  }
MG_FROM_TEXT(_ZNSt13runtime_errorC1EPKc)
MG_FROM_TEXT(_ZNSt13runtime_errorC2EPKc)
MG_FROM_TEXT(_ZNSt11range_errorC1EPKc)
MG_FROM_TEXT(_ZNSt11range_errorC2EPKc)
MG_FROM_TEXT(_ZNSt14overflow_errorC1EPKc)
MG_FROM_TEXT(_ZNSt14overflow_errorC2EPKc)
MG_FROM_TEXT(_ZNSt15underflow_errorC1EPKc)
MG_FROM_TEXT(_ZNSt15underflow_errorC2EPKc)
MG_FROM_TEXT(_ZNSt11logic_errorC1EPKc)
MG_FROM_TEXT(_ZNSt11logic_errorC2EPKc)
MG_FROM_TEXT(_ZNSt12domain_errorC1EPKc)
MG_FROM_TEXT(_ZNSt12domain_errorC2EPKc)
MG_FROM_TEXT(_ZNSt16invalid_argumentC1EPKc)
MG_FROM_TEXT(_ZNSt16invalid_argumentC2EPKc)
MG_FROM_TEXT(_ZNSt12length_errorC1EPKc)
MG_FROM_TEXT(_ZNSt12length_errorC2EPKc)
MG_FROM_TEXT(_ZNSt12out_of_rangeC1EPKc)
MG_FROM_TEXT(_ZNSt12out_of_rangeC2EPKc)

namespace {

// Copies a string. The string object may be shared, and so may its characters, independently of each other.
std::string copy_of(const std::string& text) {
  struct {
    const char* data;
    size_t size;
  } fields;
  __multigrain_load(&text, sizeof fields, &fields);
  const InBytes bytes(fields.data, fields.size);
  return {static_cast<const char*>(bytes), fields.size};
}

}  // namespace

#define MG_FROM_STRING(symbol)                                                       \
  MG_CXX_REAL(void library_##symbol(void* self, const std::string& text), #symbol);  \
  MG_CXX_ENTRY(void checked_##symbol(void* self, const std::string& text), #symbol); \
  void checked_##symbol(void* self, const std::string& text) {                       \
    library_##symbol(self, copy_of(text));                                           \
  }
MG_FROM_STRING(_ZNSt13runtime_errorC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE)
MG_FROM_STRING(_ZNSt13runtime_errorC2ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE)
MG_FROM_STRING(_ZNSt11logic_errorC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE)
MG_FROM_STRING(_ZNSt11logic_errorC2ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE)
MG_FROM_STRING(_ZNSt16invalid_argumentC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE)
MG_FROM_STRING(_ZNSt12out_of_rangeC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE)
MG_FROM_STRING(_ZNSt12length_errorC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE)
MG_FROM_STRING(_ZNSt12domain_errorC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE)
MG_FROM_STRING(_ZNSt11range_errorC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE)
MG_FROM_STRING(_ZNSt14overflow_errorC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE)
MG_FROM_STRING(_ZNSt15underflow_errorC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE)

#define MG_THROW(symbol)                                          \
  MG_CXX_REAL(void library_##symbol(const char* text), #symbol);  \
  MG_CXX_ENTRY(void checked_##symbol(const char* text), #symbol); \
  void checked_##symbol(const char* text) {                       \
    library_##symbol(Text(text));                                 \
  }
MG_THROW(_ZSt20__throw_out_of_rangePKc)
MG_THROW(_ZSt21__throw_runtime_errorPKc)
MG_THROW(_ZSt19__throw_logic_errorPKc)
MG_THROW(_ZSt20__throw_length_errorPKc)
MG_THROW(_ZSt24__throw_invalid_argumentPKc)

MG_CXX_ENTRY(void throw_out_of_range(const char* format, ...), "_ZSt24__throw_out_of_range_fmtPKcz");
void throw_out_of_range(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  __multigrain_vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  throw std::out_of_range(text);
}

// --- The last step of std::get_time

#define MG_FINALIZE "_ZNSt16__time_get_state17_M_finalize_stateEP2tm"
MG_CXX_REAL(void library_finalize(void* state, std::tm* time), MG_FINALIZE);
MG_CXX_ENTRY(void finalize(void* state, std::tm* time), MG_FINALIZE);
void finalize(void* state, std::tm* time) {
  library_finalize(state, in_out(time));
}

// --- The policy of hash tables (std::unordered_map and its like), which says when to make more room

using Policy = std::__detail::_Prime_rehash_policy;
using NeedRehash = std::pair<bool, std::size_t>;
namespace {
auto copy_of(const Policy* policy) {
  return in_out(const_cast<Policy*>(policy));
}
}  // namespace
__extension__ MG_CXX_ENTRY(NeedRehash need_rehash(const Policy* policy, size_t buckets, size_t elements, size_t more),
                           "_ZNKSt8__detail20_Prime_rehash_policy14_M_need_rehashEmmm");
NeedRehash need_rehash(const Policy* policy, size_t buckets, size_t elements, size_t more) {
  const InOutBytes copy = copy_of(policy);
  const Policy* const own = copy;
  return own->_M_need_rehash(buckets, elements, more);
}
MG_CXX_ENTRY(size_t next_buckets(const Policy* policy, size_t wanted),
             "_ZNKSt8__detail20_Prime_rehash_policy11_M_next_bktEm");
size_t next_buckets(const Policy* policy, size_t wanted) {
  const InOutBytes copy = copy_of(policy);
  const Policy* const own = copy;
  return own->_M_next_bkt(wanted);
}

// --- std::thread objects

MG_CXX_ENTRY(void join(std::thread* thread), "_ZNSt6thread4joinEv");
void join(std::thread* thread) {
  const InOutBytes copy = in_out(thread);
  std::thread* const own = copy;
  own->join();
}
MG_CXX_ENTRY(void detach(std::thread* thread), "_ZNSt6thread6detachEv");
void detach(std::thread* thread) {
  const InOutBytes copy = in_out(thread);
  std::thread* const own = copy;
  own->detach();
}
#define MG_START "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE"
MG_CXX_REAL(void library_start(std::thread* thread, void* state, void (*depend)()), MG_START);
MG_CXX_ENTRY(void start(std::thread* thread, void* state, void (*depend)()), MG_START);
void start(std::thread* thread, void* state, void (*depend)()) {
  library_start(in_out(thread), state, depend);
}

// --- Virtual functions of the library's own objects: the buffers of files, such as std::cout's, and the facets that
// read numbers and times. Calls go through the library's virtual tables, so the compiler's pass cannot redirect them.
// The functions here have the library's names and interpose the library's functions.

namespace {

template <typename Function>
Function* library_function(Function*, const char* symbol) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, symbol));
}

template <typename Char>
using In = std::istreambuf_iterator<Char>;
template <typename Char>
using Out = std::ostreambuf_iterator<Char>;

}  // namespace

#define MG_IN_FRONT_OF(declaration, symbol) MG_ENTRY declaration __asm__(symbol)

#define MG_FILEBUF(function) "_ZNSt13basic_filebufIcSt11char_traitsIcEE" function
MG_IN_FRONT_OF(std::streamsize multigrain_filebuf_write(void* self, const char* from, std::streamsize size),
               MG_FILEBUF("6xsputnEPKcl"));
std::streamsize multigrain_filebuf_write(void* self, const char* from, std::streamsize size) {
  static auto* const library = library_function(&multigrain_filebuf_write, MG_FILEBUF("6xsputnEPKcl"));
  return library(self, InBytes(from, size > 0 ? static_cast<size_t>(size) : 0), size);
}
MG_IN_FRONT_OF(std::streamsize multigrain_filebuf_read(void* self, char* to, std::streamsize size),
               MG_FILEBUF("6xsgetnEPcl"));
std::streamsize multigrain_filebuf_read(void* self, char* to, std::streamsize size) {
  static auto* const library = library_function(&multigrain_filebuf_read, MG_FILEBUF("6xsgetnEPcl"));
  return library(self, InOutBytes(to, size > 0 ? static_cast<size_t>(size) : 0), size);
}

#define MG_NUM_GET(name, Char, letter, type_letter, T)                                                                \
  MG_IN_FRONT_OF(In<Char> name(const void* self, In<Char> begin, In<Char> end, std::ios_base& stream,                 \
                               std::ios_base::iostate& state, T& value),                                              \
                 "_ZNKSt7num_getI" letter "St19istreambuf_iteratorI" letter "St11char_traitsI" letter                 \
                 "EEE6do_getES3_S3_RSt8ios_baseRSt12_Ios_IostateR" type_letter);                                      \
  In<Char> name(const void* self, In<Char> begin, In<Char> end, std::ios_base& stream, std::ios_base::iostate& state, \
                T& value) {                                                                                           \
    static auto* const library =                                                                                      \
        library_function(&name, "_ZNKSt7num_getI" letter "St19istreambuf_iteratorI" letter "St11char_traitsI" letter  \
                                "EEE6do_getES3_S3_RSt8ios_baseRSt12_Ios_IostateR" type_letter);                       \
    const InOutBytes copy = in_out(&value);                                                                           \
    T* const own = copy;                                                                                              \
    return library(self, begin, end, stream, state, *own);                                                            \
  }
#define MG_NUM_GETS(name, Char, letter)                                \
  MG_NUM_GET(name##_bool, Char, letter, "b", bool)                     \
  MG_NUM_GET(name##_ushort, Char, letter, "t", unsigned short)         \
  MG_NUM_GET(name##_uint, Char, letter, "j", unsigned)                 \
  MG_NUM_GET(name##_long, Char, letter, "l", long)                     \
  MG_NUM_GET(name##_ulong, Char, letter, "m", unsigned long)           \
  MG_NUM_GET(name##_long_long, Char, letter, "x", long long)           \
  MG_NUM_GET(name##_ulong_long, Char, letter, "y", unsigned long long) \
  MG_NUM_GET(name##_float, Char, letter, "f", float)                   \
  MG_NUM_GET(name##_double, Char, letter, "d", double)                 \
  MG_NUM_GET(name##_long_double, Char, letter, "e", long double)       \
  MG_NUM_GET(name##_pointer, Char, letter, "Pv", void*)
MG_NUM_GETS(multigrain_num_get, char, "c")
MG_NUM_GETS(multigrain_wide_num_get, wchar_t, "w")

#define MG_TIME_PUT(name, Char, letter)                                                                                \
  MG_IN_FRONT_OF(Out<Char> name(const void* self, Out<Char> to, std::ios_base& stream, Char fill, const std::tm* time, \
                                char format, char modifier),                                                           \
                 "_ZNKSt8time_putI" letter "St19ostreambuf_iteratorI" letter "St11char_traitsI" letter                 \
                 "EEE6do_putES3_RSt8ios_base" letter "PK2tmcc");                                                       \
  Out<Char> name(const void* self, Out<Char> to, std::ios_base& stream, Char fill, const std::tm* time, char format,   \
                 char modifier) {                                                                                      \
    static auto* const library =                                                                                       \
        library_function(&name, "_ZNKSt8time_putI" letter "St19ostreambuf_iteratorI" letter "St11char_traitsI" letter  \
                                "EEE6do_putES3_RSt8ios_base" letter "PK2tmcc");                                        \
    return library(self, to, stream, fill, in(time), format, modifier);                                                \
  }
MG_TIME_PUT(multigrain_time_put, char, "c")
MG_TIME_PUT(multigrain_wide_time_put, wchar_t, "w")

// libstdc++ has std::time_get in its old and in its new binary interface.
#define MG_TIME_GET(name, Char, where, letter, self_number)                                                           \
  MG_IN_FRONT_OF(In<Char> name(const void* self, In<Char> begin, In<Char> end, std::ios_base& stream,                 \
                               std::ios_base::iostate& state, std::tm* time, char format, char modifier),             \
                 where letter "St19istreambuf_iteratorI" letter "St11char_traitsI" letter                             \
                              "EEE6do_getE" self_number self_number "RSt8ios_baseRSt12_Ios_IostateP2tmcc");           \
  In<Char> name(const void* self, In<Char> begin, In<Char> end, std::ios_base& stream, std::ios_base::iostate& state, \
                std::tm* time, char format, char modifier) {                                                          \
    static auto* const library = library_function(                                                                    \
        &name, where letter "St19istreambuf_iteratorI" letter "St11char_traitsI" letter                               \
                            "EEE6do_getE" self_number self_number "RSt8ios_baseRSt12_Ios_IostateP2tmcc");             \
    return library(self, begin, end, stream, state, in_out(time), format, modifier);                                  \
  }
MG_TIME_GET(multigrain_time_get, char, "_ZNKSt8time_getI", "c", "S3_")
MG_TIME_GET(multigrain_wide_time_get, wchar_t, "_ZNKSt8time_getI", "w", "S3_")
MG_TIME_GET(multigrain_new_time_get, char, "_ZNKSt7__cxx118time_getI", "c", "S4_")
MG_TIME_GET(multigrain_new_wide_time_get, wchar_t, "_ZNKSt7__cxx118time_getI", "w", "S4_")
