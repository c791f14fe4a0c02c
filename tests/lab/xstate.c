/*
 * Lets User Mode Linux 6.1 run on processors with AMX.
 *
 * That kernel restores a process's vector registers with PTRACE_SETREGSET and a buffer of 2,696 bytes, the size of the
 * state up to AVX-512 and PKRU. A host with AMX wants all of its 11 KiB and refuses anything shorter with EFAULT, so the
 * first process of the guest dies before it has run. Loaded with LD_PRELOAD, this library reads the whole state first,
 * puts the given part over its beginning and writes all of it back. The tiles of AMX stay in their initial state: no
 * process of a guest may use them (the host grants them on request only, and the guest's kernel does not know how to ask).
 *
 * UML calls ptrace from one thread of each kernel process, so one buffer is enough.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

#define XSTATE 0x202           /* NT_X86_XSTATE of elf.h */
#define XSTATE_BV 512          /* where the header of the state says which parts are not initial (Intel SDM 1, 13.4.2) */
#define TILES (3ULL << 17)     /* XTILECFG and XTILEDATA */

typedef long (*ptrace_call)(enum __ptrace_request, pid_t, void *, void *);

static char state[1 << 16] __attribute__((aligned(64)));

static long widen(ptrace_call call, pid_t pid, struct iovec *given) {
    struct iovec whole = {state, sizeof state};
    uint64_t parts;
    if (call(PTRACE_GETREGSET, pid, (void *)XSTATE, &whole) < 0) return -1;
    if (given->iov_len >= whole.iov_len) return call(PTRACE_SETREGSET, pid, (void *)XSTATE, given);
    memcpy(state, given->iov_base, given->iov_len);
    memcpy(&parts, state + XSTATE_BV, sizeof parts);
    parts &= ~TILES;
    memcpy(state + XSTATE_BV, &parts, sizeof parts);
    return call(PTRACE_SETREGSET, pid, (void *)XSTATE, &whole);
}

long ptrace(enum __ptrace_request request, ...) {
    static ptrace_call call;
    va_list args;
    va_start(args, request);
    pid_t pid = va_arg(args, pid_t);
    void *address = va_arg(args, void *);
    void *data = va_arg(args, void *);
    va_end(args);
    if (!call) call = (ptrace_call)dlsym(RTLD_NEXT, "ptrace");
    if (request == PTRACE_SETREGSET && (uintptr_t)address == XSTATE) return widen(call, pid, data);
    return call(request, pid, address, data);
}
