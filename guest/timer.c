/*
 * How fast the guest's timer counts, as its kernel has measured it.
 *
 * A kernel without a TSC deadline timer, such as that of an emulated guest, measures the timer of its
 * processor against the processor's clock for 0.1 s while it boots. If the host does not run the processor
 * meanwhile, the rate is wrong; and if it is far too low, the kernel uses no timer: then whatever sleeps
 * never wakes up. The host does not use such a guest (node/src/driver/qemu/guest-timer.ts).
 *
 * Always: read once, while one processor runs. What the kernel's text does not say is unknown.
 */
#include "timer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMER_LIST_BYTES_MAX (32 * 1024)
#define FIRST_DEVICE "Per CPU device: 0\nClock Event Device: "
#define NO_DEVICE "<NULL>"
#define SHIFT_MAX 32

static int64_t khz = TIMER_UNKNOWN;

static int64_t number_after(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at == NULL ? -1 : strtoll(at + strlen(name), NULL, 10);
}

/* The kernel multiplies nanoseconds by `mult` and shifts them to get counts. */
static int64_t khz_in(const char *text)
{
	const char *device = strstr(text, FIRST_DEVICE);

	if (device == NULL)
		return TIMER_UNKNOWN;
	device += strlen(FIRST_DEVICE);
	if (strncmp(device, NO_DEVICE, strlen(NO_DEVICE)) == 0)
		return 0;
	int64_t mult = number_after(device, "\n mult:"), shift = number_after(device, "\n shift:");
	if (mult <= 0 || mult > UINT32_MAX || shift < 0 || shift > SHIFT_MAX)
		return TIMER_UNKNOWN;
	return (mult * 1000000) >> shift;
}

/* `list_path` is TIMER_LIST, or a copy of it. */
void timer_init(const char *list_path)
{
	static char text[TIMER_LIST_BYTES_MAX];
	size_t size = 0;
	ssize_t got = 0;
	int fd = open(list_path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	while (size < sizeof(text) - 1 && (got = read(fd, text + size, sizeof(text) - 1 - size)) > 0)
		size += (size_t)got;
	close(fd);
	text[size] = 0;
	khz = khz_in(text);
}

/* Thousands of counts in a second; 0: it has no timer; TIMER_UNKNOWN. */
int64_t timer_khz(void)
{
	return khz;
}
