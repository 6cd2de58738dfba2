/* Stands between a process and the clock of its machine: adds to the date the seconds that the file named by CLOCK_FILE
   holds. Monotonic clocks pass untouched. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *added;

__attribute__((constructor)) static void open_file(void)
{
    int file = open(getenv("CLOCK_FILE"), O_RDONLY | O_CLOEXEC);
    void *page = mmap(NULL, sizeof *added, PROT_READ, MAP_SHARED, file, 0);

    if (file < 0 || page == MAP_FAILED)
        abort();
    close(file);
    added = page;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);

    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *added;
    return failed;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec time;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &time);
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
