/* What the parts of the stub share: codes, handles, and the beginning and end of every call. */
#ifndef STUB_H
#define STUB_H

#include "scenario.h"

typedef int nvmlReturn_t;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    CORRUPTED_INFOROM = 14,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

/* One per GPU and one per MIG device; its address is the handle, stable for the life of the process. */
struct device {
    int gpu;
    int instance; /* 0 is the whole GPU, 1 its MIG device 0 */
};
typedef struct device *nvmlDevice_t;
/* The handle of a MIG device. */
nvmlDevice_t stub_instance(int gpu, unsigned index);
/* As stub_number, of mig_INDEX_NAME, else mig_NAME, of a MIG device. */
nvmlReturn_t stub_instance_number(const char *call, nvmlDevice_t handle, const char *name, double *value);

/*
 * Beginning of every call: refreshes the scenario, obeys its rules, and returns with the lock held
 * where the answer is SUCCESS. `gpu` is -1 for calls about no GPU.
 */
nvmlReturn_t stub_enter(const char *call, int gpu);
/* As stub_enter, and finds the GPU: says GPU_IS_LOST or NOT_FOUND where it is not there. */
nvmlReturn_t stub_enter_gpu(const char *call, nvmlDevice_t handle, struct gpu **gpu);
/* Gives the lock back; returns `code`. */
nvmlReturn_t stub_leave(nvmlReturn_t code);
/* A whole call that answers one number of the scenario, NOT_SUPPORTED where the GPU has none. */
nvmlReturn_t stub_number(const char *call, nvmlDevice_t handle, const char *name, double *value);
nvmlReturn_t stub_uint(const char *call, nvmlDevice_t handle, const char *name, unsigned *out);
/* Likewise for all of `count` numbers together. */
nvmlReturn_t stub_numbers(const char *call, nvmlDevice_t handle, const char **names, int count,
                          double *values);

#endif
