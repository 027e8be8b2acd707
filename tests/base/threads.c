/* SPDX-License-Identifier: BSD-3-Clause */
/* Many threads use what librsched/base shares, from the first call on. With a
 * main of its own, so that it runs under the thread sanitizer. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/log.h"

enum { THREADS = 4, ROUNDS = 200 };

static pthread_barrier_t together;

static int check_settings(void)
{
    const struct rsched_setting *setting;
    size_t count = 0;

    if (rsched_config_check() != RSCHED_EINVAL ||
        strstr(rsched_last_error(), "RSCHED_SPIN=x: ") == NULL)
        return 1;
    while ((setting = rsched_config_setting(count)) != NULL)
        count += setting->value != NULL;
    return count == 0 || rs_config()->log_level != RS_LOG_ERROR;
}

static void *work(void *arg)
{
    int number = *(int *)arg;
    char expected[64];

    pthread_barrier_wait(&together); /* the first call comes from all at once */
    for (int i = 0; i < ROUNDS; i++) {
        if (check_settings() != 0)
            return "settings";
        snprintf(expected, sizeof(expected), "exchange: thread %d", number);
        rs_fail(RSCHED_EINVAL, "thread %d", number);
        rs_fail_within(RSCHED_EINVAL, "exchange");
        if (strcmp(rsched_last_error(), expected) != 0)
            return "the text of another thread";
        rs_log_set_rank(number);
        rs_log(RS_LOG_WARN, "not printed");
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS], failed = 0;

    setenv("RSCHED_LOG_LEVEL", "error", 1);
    setenv("RSCHED_SPIN", "x", 1);
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, work, &numbers[i]) != 0) {
            perror("pthread_create");
            return 1;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        void *wrong = NULL;

        pthread_join(threads[i], &wrong);
        if (wrong != NULL) {
            fprintf(stderr, "thread %d: %s\n", i, (const char *)wrong);
            failed = 1;
        }
    }
    pthread_barrier_destroy(&together);
    return failed;
}
