/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

Test(error, every_code_has_its_name_and_a_text_of_its_own)
{
    static const struct {
        int code;
        const char *name, *text;
    } all[] = {
#define XX(name, value, text) {RSCHED_##name, "RSCHED_" #name, text},
        RSCHED_ERRNO_MAP(XX)
#undef XX
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        cr_assert_lt(all[i].code, 0);
        cr_assert(rs_is_error(all[i].code));
        cr_assert_str_eq(rsched_error_name(all[i].code), all[i].name);
        cr_assert_str_eq(rsched_strerror(all[i].code), all[i].text);
        for (size_t k = 0; k < i; k++) {
            cr_assert_neq(all[i].code, all[k].code);
            cr_assert_str_neq(all[i].text, all[k].text);
        }
    }
}

Test(error, names_are_not_expanded_by_errno_h)
{
    cr_assert_str_eq(rsched_error_name(RSCHED_EINVAL), "RSCHED_EINVAL");
    cr_assert_str_eq(rsched_error_name(RSCHED_ENOMEM), "RSCHED_ENOMEM");
}

Test(error, success_and_unknown_codes)
{
    cr_assert_str_eq(rsched_strerror(0), "success");
    cr_assert_str_eq(rsched_error_name(0), "0");
    cr_assert_str_eq(rsched_strerror(1), "unknown error");
    cr_assert_str_eq(rsched_error_name(-1000), "unknown");
    cr_assert(!rs_is_error(0) && !rs_is_error(1) && !rs_is_error(-1000));
}

Test(error, nothing_has_failed_at_first)
{
    cr_assert_str_eq(rsched_last_error(), "");
}

Test(error, fail_keeps_text_code_and_errno)
{
    errno = ENOENT;
    cr_assert_eq(rs_fail(RSCHED_ESYS, "open %s: %m", "x.yaml"), RSCHED_ESYS);
    cr_assert_eq(errno, ENOENT);
    cr_assert_str_eq(rsched_last_error(), "open x.yaml: No such file or directory");
}

Test(error, others_may_note_a_failure)
{
    errno = EIO;
    cr_assert_eq(rsched_fail(RSCHED_ESTATE, "100%s of %n"), RSCHED_ESTATE);
    cr_assert_str_eq(rsched_last_error(), "100%s of %n");
    cr_assert_eq(errno, EIO);
}

Test(error, within_puts_a_prefix_before_the_cause)
{
    rs_fail(RSCHED_EPEER, "peer %d is dead", 12);
    errno = EPIPE;
    cr_assert_eq(rs_fail_within(RSCHED_EPEER, "exchange %d", 3), RSCHED_EPEER);
    cr_assert_eq(errno, EPIPE);
    cr_assert_str_eq(rsched_last_error(), "exchange 3: peer 12 is dead");
    rs_fail_within(RSCHED_EPEER, "start: %m");
    cr_assert_str_eq(rsched_last_error(),
                     "start: Broken pipe: exchange 3: peer 12 is dead");
}

Test(error, the_last_text_may_be_part_of_the_next)
{
    rs_fail(RSCHED_EINVAL, "cause");
    rs_fail(RSCHED_EINVAL, "%s, and again: %s", rsched_last_error(),
            rsched_last_error());
    cr_assert_str_eq(rsched_last_error(), "cause, and again: cause");
    rs_fail_within(RSCHED_EINVAL, "[%s]", rsched_last_error());
    cr_assert_str_eq(rsched_last_error(),
                     "[cause, and again: cause]: cause, and again: cause");
}

Test(error, long_texts_are_cut_not_overrun)
{
    char text[3000];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    cr_assert_eq(rs_fail(RSCHED_EINVAL, "%s", text), RSCHED_EINVAL);
    cr_assert_eq(strlen(rsched_last_error()), 1023);
    rs_fail_within(RSCHED_EINVAL, "start");
    cr_assert_eq(strlen(rsched_last_error()), 1023);
    cr_assert_eq(strncmp(rsched_last_error(), "start: xxx", 10), 0);
    rs_fail_within(RSCHED_EINVAL, "%s", text);
    cr_assert_eq(strlen(rsched_last_error()), 1023);
}

static void *fail_in_thread(void *arg)
{
    int number = *(int *)arg;
    char expected[32];

    if (rsched_last_error()[0] != '\0')
        return "a new thread starts with a failure";
    snprintf(expected, sizeof(expected), "thread %d", number);
    for (int i = 0; i < 1000; i++) {
        rs_fail(RSCHED_EINVAL, "thread %d", number);
        if (strcmp(rsched_last_error(), expected) != 0)
            return "the text of another thread";
    }
    return NULL;
}

Test(error, every_thread_has_a_text_of_its_own)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    int numbers[THREADS];

    rs_fail(RSCHED_EINVAL, "main");
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        cr_assert_eq(pthread_create(&threads[i], NULL, fail_in_thread,
                                    &numbers[i]),
                     0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *complaint;

        cr_assert_eq(pthread_join(threads[i], &complaint), 0);
        cr_assert_null(complaint, "%s", (const char *)complaint);
    }
    cr_assert_str_eq(rsched_last_error(), "main");
}
