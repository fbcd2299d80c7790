// The functions of omp.h about devices: there is none but the host, whose number is 0.
#include <cstring>

#include "openmp/memory.h"
#include "openmp/team.h"

namespace multigrain::openmp {
namespace {

constexpr int kFailed = 22;  // EINVAL

bool is_host(int device) {
  return device == 0;
}

// Copies a box of `dimensions`, whose extents in elements are `volume`, between two arrays.
void copy_box(std::byte* to, const std::byte* from, size_t element, int dimensions, const size_t* volume,
              const size_t* to_offset, const size_t* from_offset, const size_t* to_size, const size_t* from_size) {
  size_t to_step = element, from_step = element;
  for (int i = 1; i < dimensions; ++i) {
    to_step *= to_size[i];
    from_step *= from_size[i];
  }
  to += to_offset[0] * to_step;
  from += from_offset[0] * from_step;
  if (dimensions == 1) {
    std::memcpy(to, from, element * volume[0]);
    return;
  }
  for (size_t i = 0; i < volume[0]; ++i)
    copy_box(to + i * to_step, from + i * from_step, element, dimensions - 1, volume + 1, to_offset + 1,
             from_offset + 1, to_size + 1, from_size + 1);
}

}  // namespace

MG_OPENMP_BEGIN

int omp_get_num_devices(void) {
  return 0;
}
int omp_get_initial_device(void) {
  return 0;
}
int omp_get_device_num(void) {
  return 0;
}
int omp_is_initial_device(void) {
  return 1;
}
int omp_get_default_device(void) {
  return this_thread().frame->controls.default_device;
}
void omp_set_default_device(int device) {
  this_thread().frame->controls.default_device = device;
}

void* omp_target_alloc(size_t bytes, int device) {
  return is_host(device) ? try_allocate_shared(bytes, 0) : nullptr;
}
void omp_target_free(void* block, int) {
  mg_free(block);
}
int omp_target_is_present(const void*, int device) {
  return is_host(device) ? 1 : 0;
}
int omp_target_is_accessible(const void*, size_t, int device) {
  return is_host(device) ? 1 : 0;
}
int omp_target_memcpy(void* to, const void* from, size_t bytes, size_t to_offset, size_t from_offset, int to_device,
                      int from_device) {
  if (to == nullptr || from == nullptr || !is_host(to_device) || !is_host(from_device)) return kFailed;
  std::memcpy(static_cast<std::byte*>(to) + to_offset, static_cast<const std::byte*>(from) + from_offset, bytes);
  return 0;
}
// With neither array it says how many dimensions there can be.
int omp_target_memcpy_rect(void* to, const void* from, size_t element, int dimensions, const size_t* volume,
                           const size_t* to_offset, const size_t* from_offset, const size_t* to_size,
                           const size_t* from_size, int to_device, int from_device) {
  if (to == nullptr && from == nullptr) return INT32_MAX;
  if (to == nullptr || from == nullptr || dimensions < 1 || !is_host(to_device) || !is_host(from_device))
    return kFailed;
  copy_box(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), element, dimensions, volume, to_offset,
           from_offset, to_size, from_size);
  return 0;
}
// Nothing can be associated with memory of the host.
int omp_target_associate_ptr(const void*, const void*, size_t, size_t, int) {
  return kFailed;
}
int omp_target_disassociate_ptr(const void*, int) {
  return kFailed;
}
void* omp_get_mapped_ptr(const void* address, int device) {
  return is_host(device) ? const_cast<void*>(address) : nullptr;
}

MG_OPENMP_END

}  // namespace multigrain::openmp
