/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Errors.
 *
 * Every function that can fail returns 0 or a negative RSCHED_E* code. The
 * code says what kind of failure it is; the text says which object, which id
 * and the exact cause ("exchange 3: peer 12 (pid 4711) is dead"). Output
 * parameters are written on success only.
 *
 * NULL is allowed where a function says so; elsewhere a pointer that is NULL is
 * undefined behavior. Refused with RSCHED_EINVAL is NULL in what programs compute:
 * the runs of a layout that has some, and the buffer of a put or receive that has
 * bytes, unless offsets count from address 0.
 */
#ifndef RSCHED_ERROR_H
#define RSCHED_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RSCHED_API __attribute__((visibility("default")))
#else
#define RSCHED_API
#endif

/** All errors: XX(name without prefix, value, text). */
#define RSCHED_ERRNO_MAP(XX)                                                 \
    XX(EINVAL, -1, "invalid argument")                                       \
    XX(ENOMEM, -2, "out of memory")                                          \
    XX(ESYS, -3, "a system call failed")                                     \
    XX(EPARSE, -4, "bad input file")                                         \
    XX(ENAME, -5, "no such name")                                            \
    XX(ENOTSUP, -6, "not supported")                                         \
    XX(ESTATE, -7, "not allowed in this state")                              \
    XX(EPEER, -8, "a peer process has failed")                               \
    XX(EMISMATCH, -9, "peers disagree")                                      \
    XX(ETRUNC, -10, "message longer than the receive buffer")                \
    XX(EUNREACH, -11, "no engine reaches the peer")                          \
    XX(ETIMEOUT, -12, "timed out")                                           \
    XX(ELIMIT, -13, "a limit is exceeded")

enum rsched_error {
#define RSCHED_XX(name, value, text) RSCHED_##name = (value),
    RSCHED_ERRNO_MAP(RSCHED_XX)
#undef RSCHED_XX
};

/**
 * The general text of an error code.
 *
 * @param error 0 or an RSCHED_E* code; other values give "unknown error".
 * @return a static string. Thread-safe.
 */
RSCHED_API const char *rsched_strerror(int error);

/**
 * The name of an error code, for instance "RSCHED_EPEER".
 *
 * @return a static string, "0" for 0. Thread-safe.
 */
RSCHED_API const char *rsched_error_name(int error);

/**
 * The full text of the last failure in the calling thread.
 *
 * The string belongs to the library and stays valid until the next failing
 * rsched call of the same thread; it is "" when nothing has failed yet.
 * Successful calls leave it alone.
 */
RSCHED_API const char *rsched_last_error(void);

/**
 * Note a failure of code that is built upon rsched (a halo library, a backend), so
 * that its users find all texts in one place.
 *
 * @param error one of RSCHED_E*
 * @param text  becomes the calling thread's rsched_last_error(); copied, up to
 *              1023 bytes
 * @return error. errno is kept. Thread-safe.
 */
RSCHED_API int rsched_fail(int error, const char *text);

#ifdef __cplusplus
}
#endif

#endif
